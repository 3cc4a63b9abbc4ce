# ruff: noqa: PTH103, PTH105, PTH108, PTH118, PTH120, PTH123
"""Files of a box on the far machine: written and read below its own folders, never through a link that leads out."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

LARGEST_FILE = 1 << 28
OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO)


class Refused(Exception):
    """A path that cannot be put or got."""


class DiskFault(Exception):
    """The far machine's disk is full, or broken."""


class Files:
    """The folders that a box may be given files in, and asked for files of."""

    def __init__(self, workdir: str, folders: list[str]) -> None:
        self._workdir = workdir
        self._folders = [os.path.realpath(folder) for folder in folders]

    def write(self, path: str, mode: int, content: bytes) -> None:
        """Write by renaming: a link that stands there is replaced, and never written through."""
        _guarded(path, lambda: self._write(path, mode, content))

    def read(self, path: str) -> tuple[int, bytes] | None:
        """Get a file's mode and content; null where there is none."""
        return _guarded(path, lambda: self._read(path))  # type: ignore[return-value]

    def _write(self, path: str, mode: int, content: bytes) -> None:
        target = os.path.join(self._workdir, path)
        folder, name = os.path.split(target)
        if name in ("", ".", ".."):
            raise Refused(f"{path} names a folder, not a file")
        place = os.path.join(os.path.realpath(folder), name)
        self._hold_inside(place, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        new = os.path.join(os.path.dirname(place), f".{os.urandom(8).hex()}")
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fchmod(descriptor, mode)
            os.replace(new, place)
        except BaseException:
            if os.path.lexists(new):
                os.unlink(new)
            raise

    def _read(self, path: str) -> tuple[int, bytes] | None:
        place = os.path.realpath(os.path.join(self._workdir, path))
        self._hold_inside(place, path)
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with open(descriptor, "rb") as stream:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise Refused(f"{path} is no regular file")
            if about.st_size > LARGEST_FILE:
                raise Refused(f"{path} has {about.st_size} bytes; at most {LARGEST_FILE} are read")
            return stat.S_IMODE(about.st_mode), stream.read(LARGEST_FILE)

    def _hold_inside(self, place: str, path: str) -> None:
        if not any(place.startswith(f"{folder}/") for folder in self._folders):
            raise Refused(f"{path} leads outside the box's own folders")


def _guarded(path: str, act: Callable[[], object]) -> object:
    """Say what is wrong with a path; a disk that is full is no fault of it."""
    try:
        return act()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in OF_THE_DISK:
            raise DiskFault(f"{path}: {error.strerror}") from error
        shown = path if len(path) <= 80 else f"{path[:60]}... ({len(os.fsencode(path))} bytes)"
        raise Refused(f"{shown!r}: {error.strerror if isinstance(error, OSError) else error}") from error
