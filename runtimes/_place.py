"""What a box of bubblewrap sees of this machine: the arguments of `bwrap`, and the few files that are made for it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Folders of this machine that are its system: read-only in every box."""
SHARED_ETC = (
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "pki/ca-trust",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "protocols",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
"""What a box sees of /etc. No other: a configuration may name people, hosts, or hold a secret."""
JAVA = "java-*"
"""A Java reads its settings there."""
NAMESPACES = ("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
HARDENING = ("--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL")
MADE_ETC = ("passwd", "group", "hosts", "nsswitch.conf")
MADE = ("/proc", "/dev", "/tmp", "/run", "/sys")
"""Folders that are made for each box, whatever an image has there."""
NAME = "box"
"""The name of the machine, seen from inside."""


@dataclass(frozen=True)
class User:
    """Who commands run as, seen from inside."""

    name: str
    number: int


@dataclass(frozen=True, kw_only=True)
class Place:
    """How a box is to look."""

    folder: Path
    """Of the box, here: `root`, with the folders that it may write as they are called inside, and `etc`."""
    own: tuple[str, ...]
    """Absolute paths inside of the folders that it may write."""
    workdir: str
    home: str
    user: User
    mounts: tuple[Path, ...] = ()
    """Folders and files of this machine that are readable at their own path."""
    rootfs: Path | None = None
    open_network: bool = False

    def arguments(self, *further: str) -> list[str]:
        """Get the arguments of bwrap, but for the program; `further` ones put something more in the box."""
        return [
            *NAMESPACES,
            *(() if self.open_network else ("--unshare-net",)),
            *hardening(),
            *("--hostname", NAME, "--uid", str(self.user.number), "--gid", str(self.user.number)),
            *self._system(),
            *("--proc", "/proc", "--dev", "/dev", "--dir", "/run"),
            *self._writable(),
            *self._mounted(),
            *further,
            *("--remount-ro", "/", "--chdir", self.workdir),
        ]

    def make(self) -> None:
        """Make the folders and files here that the arguments name."""
        for path in self.own:
            made = Path(f"{self.folder}/root{path}")
            made.mkdir(parents=True, exist_ok=True)
        Path(f"{self.folder}/root/tmp").chmod(0o1777)
        etc = self.folder / "etc"
        etc.mkdir()
        for name, text in self._etc().items():
            (etc / name).write_text(text)

    def visible(self, path: Path) -> bool:
        """Whether a path of this machine is there inside, as the same thing."""
        if any(path.is_relative_to(mount) for mount in self.mounts):
            return True
        return (
            self.rootfs is None and path.is_absolute() and path.parts[1:2] != () and path.parts[1] in SYSTEM
        )

    def _system(self) -> Iterator[str]:
        if self.rootfs is not None:
            yield from self._image(self.rootfs, "")
            yield from self._laid_over_etc(self.rootfs)
            return
        for name in SYSTEM:
            path = Path("/", name)
            if path.is_symlink():
                yield from ("--symlink", str(path.readlink()), str(path))
            elif path.is_dir():
                yield from ("--ro-bind", str(path), str(path))
        yield from self._shared_etc()
        yield from (
            "--dir",
            "/home",
            "--dir",
            "/var",
            "--symlink",
            "../run",
            "/var/run",
            "--symlink",
            "../tmp",
            "/var/tmp",
        )

    def _image(self, rootfs: Path, below: str) -> Iterator[str]:
        """The folders of an image, read-only; one that is to have another in it is put together of its parts."""
        with os.scandir(f"{rootfs}{below}/") as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path = f"{below}/{entry.name}"
            if path in MADE:
                continue
            if entry.is_symlink():
                yield from ("--symlink", os.readlink(entry.path), path)  # noqa: PTH115
            elif entry.is_dir() and self._lacks_within(rootfs, path):
                yield from ("--dir", path)
                yield from self._image(rootfs, path)
            else:
                yield from ("--ro-bind", entry.path, path)

    def _lacks_within(self, rootfs: Path, path: str) -> bool:
        wanted = [*self.own, *map(str, self.mounts)]
        return any(
            each.startswith(f"{path}/") and not os.path.exists(f"{rootfs}{each}")  # noqa: PTH110
            for each in wanted
        )

    def _shared_etc(self) -> Iterator[str]:
        yield from ("--dir", "/etc")
        found = [Path("/etc", name) for name in SHARED_ETC] + sorted(Path("/etc").glob(JAVA))
        for path in found:
            yield from ("--ro-bind-try", str(path), str(path))
        for name in MADE_ETC:
            yield from ("--ro-bind", f"{self.folder}/etc/{name}", f"/etc/{name}")
        if self.open_network:
            yield from ("--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf")

    def _laid_over_etc(self, rootfs: Path) -> Iterator[str]:
        """An image has its own /etc; what names hosts is laid over it, where it can be."""
        laid = {"hosts": self.folder / "etc" / "hosts"}
        if self.open_network:
            laid["resolv.conf"] = Path("/etc/resolv.conf")
        for name, source in laid.items():
            if (rootfs / "etc" / name).is_file() and not (rootfs / "etc" / name).is_symlink():
                yield from ("--ro-bind-try", str(source), f"/etc/{name}")

    def _writable(self) -> Iterator[str]:
        for path in sorted(self.own):
            yield from ("--bind", f"{self.folder}/root{path}", path)

    def _mounted(self) -> Iterator[str]:
        for path in self.mounts:
            if not self._is_there(path):
                yield from ("--ro-bind", str(path), str(path))

    def _is_there(self, path: Path) -> bool:
        return self.rootfs is None and path.is_relative_to("/usr")

    def _etc(self) -> dict[str, str]:
        user, number = self.user.name, self.user.number
        root = () if number == 0 else (("root", 0),)
        people = [(user, number), *root, ("nobody", 65534)]
        return {
            "passwd": "".join(
                f"{name}:x:{uid}:{uid}::{self.home if uid == number else '/'}:/bin/sh\n"
                for name, uid in people
            ),
            "group": "".join(f"{name}:x:{gid}:\n" for name, gid in people),
            "hosts": f"127.0.0.1 localhost {NAME}\n::1 localhost\n",
            "nsswitch.conf": f"passwd: files\ngroup: files\nhosts: files{' dns' if self.open_network else ''}\n",
        }


@cache
def hardening() -> tuple[str, ...]:
    """Get the arguments that take rights away. No namespaces of their own for programs inside: bubblewrap 0.8 on."""
    known = subprocess.run(["bwrap", "--help"], capture_output=True, text=True).stdout
    return (*HARDENING, *(("--disable-userns",) if "--disable-userns" in known else ()))
