"""What a box of bubblewrap sees of this machine, as the arguments of `bwrap`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hotswap.runtimes._etc import NAME, User, shared_etc

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Folders of this machine that are its system: read-only in every box."""
NAMESPACES = ("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
HARDENING = ("--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL")
MADE = ("/proc", "/dev", "/tmp", "/run", "/sys")
"""Folders that are made for each box, whatever an image has there."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """How a box is to look."""

    folder: Path
    """Of the box, here; below its `root` are the folders that it may write, as they are called inside."""
    etc: Path
    """What is seen as /etc, or laid over that of an image."""
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
        yield from ("--ro-bind", str(self.etc), "/etc")
        for path in shared_etc():
            yield from ("--ro-bind", str(path), str(path))

    def _laid_over_etc(self, rootfs: Path) -> Iterator[str]:
        """An image has its own /etc; what names hosts is laid over it, where it can be."""
        for name in ("hosts", *(("resolv.conf",) if self.open_network else ())):
            file = rootfs / "etc" / name
            if file.is_file() and not file.is_symlink():
                yield from ("--ro-bind-try", f"{self.etc}/{name}", f"/etc/{name}")

    def _writable(self) -> Iterator[str]:
        for path in sorted(self.own):
            yield from ("--bind", f"{self.folder}/root{path}", path)

    def _mounted(self) -> Iterator[str]:
        for path in self.mounts:
            if not self._is_there(path):
                yield from ("--ro-bind", str(path), str(path))

    def _is_there(self, path: Path) -> bool:
        return self.rootfs is None and path.is_relative_to("/usr")


@cache
def hardening() -> tuple[str, ...]:
    """Get the arguments that take rights away. No namespaces of their own for programs inside: bubblewrap 0.8 on."""
    known = subprocess.run(["bwrap", "--help"], capture_output=True, text=True).stdout
    return (*HARDENING, *(("--disable-userns",) if "--disable-userns" in known else ()))
