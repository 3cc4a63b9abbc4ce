"""What a box of bubblewrap sees of this machine: the arguments of `bwrap`, and the few files that are made for it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Folders of this machine that are its system: read-only in every box."""
COPIED_ETC = (
    "debian_version",
    "inputrc",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "pki/tls/cert.pem",
    "protocols",
    "services",
    "shells",
    "ssl/openssl.cnf",
    "timezone",
)
"""Small files of /etc that boxes have. No other: a configuration may name people, hosts, or hold a secret."""
SHARED_ETC = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "java-*",
    "ld.so.cache",
    "pki/ca-trust",
    "pki/tls/certs",
    "ssl/certs",
)
"""What is larger, and seen in its place. Each is a mount, which costs as much as all the copies together."""
NAMESPACES = ("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
HARDENING = ("--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL")
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
            # Who is root here owns what stands in /proc/sys, even without rights: a program for crashed ones, say.
            *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--dir", "/run"),
            *self._writable(),
            *self._mounted(),
            *further,
            *("--remount-ro", "/", "--chdir", self.workdir),
        ]

    def make(self) -> None:
        """Make the folders and files here that the arguments name."""
        for path in self.own:
            self._make_own(path)
        os.chmod(f"{self.folder}/root/tmp", 0o1777)  # noqa: PTH101
        folders, files = ((), {}) if self.rootfs else _etc()
        for folder in ("etc", *folders):
            os.mkdir(f"{self.folder}/{folder}")  # noqa: PTH102
        for name, content in {**files, **self._made_etc()}.items():
            with open(f"{self.folder}/etc/{name}", "wb") as file:  # noqa: PTH123 (pathlib would cost more than the rest)
                file.write(content)

    def _make_own(self, path: str) -> None:
        """Make a folder that the box may write: with what an image has there, where it is the working directory."""
        target = f"{self.folder}/root{path}"
        source = "" if self.rootfs is None else os.path.realpath(f"{self.rootfs}{path}")
        if path == self.workdir and source.startswith(f"{self.rootfs}/") and os.path.isdir(source):  # noqa: PTH112
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            os.makedirs(target, exist_ok=True)  # noqa: PTH103

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
        yield from ("--ro-bind", f"{self.folder}/etc", "/etc")
        for path in _shared_etc():
            yield from ("--ro-bind", str(path), str(path))

    def _laid_over_etc(self, rootfs: Path) -> Iterator[str]:
        """An image has its own /etc; what names hosts is laid over it, where it can be."""
        for name in ("hosts", *(("resolv.conf",) if self.open_network else ())):
            file = rootfs / "etc" / name
            if file.is_file() and not file.is_symlink():
                yield from ("--ro-bind-try", f"{self.folder}/etc/{name}", f"/etc/{name}")

    def _writable(self) -> Iterator[str]:
        for path in sorted(self.own):
            yield from ("--bind", f"{self.folder}/root{path}", path)

    def _mounted(self) -> Iterator[str]:
        for path in self.mounts:
            if not self._is_there(path):
                yield from ("--ro-bind", str(path), str(path))

    def _is_there(self, path: Path) -> bool:
        return self.rootfs is None and path.is_relative_to("/usr")

    def _made_etc(self) -> dict[str, bytes]:
        """Files that are made for this box."""
        user, number = self.user.name, self.user.number
        root = () if number == 0 else (("root", 0),)
        people = [(user, number), *root, ("nobody", 65534)]
        made = {
            "passwd": "".join(
                f"{name}:x:{uid}:{uid}::{self.home if uid == number else '/'}:/bin/sh\n"
                for name, uid in people
            ),
            "group": "".join(f"{name}:x:{gid}:\n" for name, gid in people),
            "hosts": f"127.0.0.1 localhost {NAME}\n::1 localhost\n",
            "nsswitch.conf": f"passwd: files\ngroup: files\nhosts: files{' dns' if self.open_network else ''}\n",
        }
        found = {name: text.encode() for name, text in made.items()}
        if self.open_network:
            found |= _read(("resolv.conf",))
        return found


@cache
def _etc() -> tuple[tuple[str, ...], dict[str, bytes]]:
    """Get the folders that a box's /etc is made with, parents first, and its files: copies, and places for mounts."""
    files = _read(COPIED_ETC)
    folders = set()
    for path in _shared_etc():
        name = str(path.relative_to("/etc"))
        if path.is_dir():
            folders.add(Path("etc", name))
        else:
            files[name] = b""
    folders |= {Path("etc", name).parent for name in files}
    folders |= {above for folder in folders for above in folder.parents}
    return tuple(str(folder) for folder in sorted(folders - {Path(), Path("etc")})), files


def _read(names: Iterable[str]) -> dict[str, bytes]:
    """Get those files of /etc that are there."""
    return {name: path.read_bytes() for name in names if (path := Path("/etc", name)).is_file()}


@cache
def _shared_etc() -> tuple[Path, ...]:
    return tuple(path for name in SHARED_ETC for path in sorted(Path("/etc").glob(name)))


@cache
def hardening() -> tuple[str, ...]:
    """Get the arguments that take rights away. No namespaces of their own for programs inside: bubblewrap 0.8 on."""
    known = subprocess.run(["bwrap", "--help"], capture_output=True, text=True).stdout
    return (*HARDENING, *(("--disable-userns",) if "--disable-userns" in known else ()))
