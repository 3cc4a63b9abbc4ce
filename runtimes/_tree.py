"""Files of a box as they lie here, read and written as if its root were the root: no link leads out of it.

What is in the tree was written by agent code, which may change it at any moment. The kernel resolves each path in one
step, below the root (`openat2` with RESOLVE_IN_ROOT), and what is found is used by its descriptor alone.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from hotswap.contracts.runtime import File, Files, PathError
from hotswap.errors import Fault

SMALL = 1 << 20
"""Bytes that are read or written at once without a thread."""
LARGEST_FILE = 1 << 28
OPENAT2 = 437
"""The number of the system call, the same on every kind of processor."""
RESOLVE_NO_MAGICLINKS, RESOLVE_IN_ROOT = 0x02, 0x10
HOW = struct.Struct("QQQ")
NO_SUCH_FILE = (errno.ENOENT, errno.ENOTDIR)
OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO)
FOLDER = os.O_PATH | os.O_DIRECTORY if hasattr(os, "O_PATH") else os.O_DIRECTORY


class Tree:
    """A folder here that is the root of what a box writes; `own` are the folders in it that the box has."""

    def __init__(self, root: Path, own: Sequence[str]) -> None:
        self.root = root
        self._own = [f"{root}{folder}".rstrip("/") for folder in own]

    async def put(self, files: Files) -> None:
        """Write files at absolute paths. A link at the place of a file is replaced. Raises PathError."""
        if sum(len(file.content) for file in files.values()) <= SMALL:
            self._write_all(files)
        else:
            await asyncio.to_thread(self._write_all, files)

    async def read(self, path: str, shown: str) -> File | None:
        """Read the file at an absolute path; null where there is none. Raises PathError, with the path as `shown`."""
        with bad_path(shown):
            descriptor = self._found(path)
            if descriptor is None:
                return None
            try:
                about = self._about(descriptor, shown)
                if about.st_size <= SMALL:
                    content = _all_of(descriptor)
                else:
                    content = await asyncio.to_thread(_all_of, descriptor)
            finally:
                os.close(descriptor)
            return File(content, stat.S_IMODE(about.st_mode))

    def _found(self, path: str) -> int | None:
        try:
            return self._open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if error.errno in NO_SUCH_FILE:
                return None
            raise

    def _about(self, descriptor: int, path: str) -> os.stat_result:
        """Refuse what is not read."""
        self._hold_inside(descriptor, path)
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise PathError(f"{path} is no regular file")
        if about.st_size > LARGEST_FILE:
            raise PathError(f"{path} has {about.st_size} bytes; at most {LARGEST_FILE} are read")
        return about

    def _write_all(self, files: Files) -> None:
        for path, file in files.items():
            with bad_path(path):
                self._write(path, file)

    def _write(self, path: str, file: File) -> None:
        """Write by renaming: what stands there is replaced, and never written through."""
        parent, name = os.path.split(path)
        if name in ("", ".", ".."):
            raise PathError(f"{path} names a folder, not a file")
        new = f".{os.urandom(8).hex()}"
        folder = self._folder(parent)
        try:
            self._hold_inside(folder, path)
            descriptor = os.open(
                new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder
            )
            try:
                with open(descriptor, "wb") as stream:  # noqa: PTH123
                    stream.write(file.content)
                    stream.flush()
                    os.fchmod(descriptor, file.mode)
                os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(new, dir_fd=folder)
                raise
        finally:
            os.close(folder)

    def _folder(self, path: str) -> int:
        """Open a folder, made with those above it where need be."""
        try:
            return self._open(path, FOLDER)
        except FileNotFoundError:
            if path == "/":
                raise
        above = self._folder(os.path.dirname(path))  # noqa: PTH120
        try:
            self._hold_inside(above, path)
            with suppress(FileExistsError):
                os.mkdir(os.path.basename(path), 0o755, dir_fd=above)  # noqa: PTH119
        finally:
            os.close(above)
        return self._open(path, FOLDER)

    def _hold_inside(self, descriptor: int, path: str) -> None:
        """Refuse what the box does not have, such as a file beside its folders."""
        found = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
        if not any(f"{found}/".startswith(f"{folder}/") for folder in self._own):
            raise PathError(f"{path} leads outside the box's own folders")

    def _open(self, path: str, flags: int) -> int:
        root = os.open(self.root, FOLDER | os.O_CLOEXEC)
        try:
            return open_below(root, path, flags)
        finally:
            os.close(root)


def open_below(root: int, path: str, flags: int) -> int:
    """Open a path as if the folder `root` were the root. Raises OSError, and ValueError for a NUL in the path."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError("embedded null byte")
    how = HOW.pack(flags | os.O_CLOEXEC, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)
    for _ in range(128):  # EAGAIN: somebody was moving folders about just then
        descriptor = int(_syscall()(OPENAT2, root, encoded, how, len(how)))
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number), path)


def can_hold() -> bool:
    """Whether the kernel can resolve paths below a root: from Linux 5.6 on."""
    root = os.open("/", FOLDER)
    try:
        os.close(open_below(root, "/", FOLDER))
    except OSError:
        return False
    finally:
        os.close(root)
    return True


@cache
def _syscall() -> ctypes._NamedFuncPointer:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
    function.restype = ctypes.c_long
    return function


def _all_of(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as stream:
        return stream.read(LARGEST_FILE)


@contextmanager
def bad_path(path: str) -> Iterator[None]:
    """Say what is wrong with a path; a disk that is full is no fault of it."""
    try:
        yield
    except PathError:
        raise
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in OF_THE_DISK:
            raise Fault("runtime", "box", "disk", f"{path}: {error.strerror}") from error
        shown = path if len(path) <= 80 else f"{path[:60]}... ({len(os.fsencode(path))} bytes)"
        raise PathError(f"{shown!r}: {error.strerror if isinstance(error, OSError) else error}") from error
