"""A file of JSON lines that is only ever appended to, and survives being killed at any moment.

A line is written by one call and is there once its newline is. What follows the last newline was torn: it is
cut off when the file is opened to append, and passed over in reading.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hotswap.errors import StoreError

CHUNK = 1 << 16


class Line(NamedTuple):
    """One whole line and where it stands."""

    offset: int
    content: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.content)


def read_lines(path: Path, start: int = 0, end: int | None = None) -> Iterator[Line]:
    """Iterate over the whole lines that begin in `start` to `end` (excluded); one is in memory at a time."""
    with path.open("rb") as file:
        file.seek(start)
        offset = start
        for content in file:
            if not content.endswith(b"\n") or (end is not None and offset >= end):
                return
            yield Line(offset, content)
            offset += len(content)


class Lines:
    """A file of lines, open to append. There may be one such writer at a time: see `lock`."""

    def __init__(self, path: Path, flags: int = 0) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | flags, 0o644)
        self.size = os.fstat(self._file).st_size
        self._closed = False

    def repair(self) -> int:
        """Cut off a torn last line; get how many bytes it had."""
        whole = self._last_newline()
        torn = self.size - whole
        if torn:
            self._cut(whole)
        return torn

    def append(self, line: bytes) -> int:
        """Write one line, newline included, and get its offset. After a StoreError nothing of it is left."""
        if self._closed:
            raise StoreError(f"cannot write {self.path}: it is closed")
        offset = self.size
        try:
            self._write(line)
        except OSError as error:
            with contextlib.suppress(
                OSError
            ):  # where even this fails, the torn line is cut off by the next `repair`
                self._cut(offset)
            raise StoreError(cannot_write(self.path, error)) from error
        self.size += len(line)
        return offset

    def lock(self) -> bool:
        """Keep every other process from writing, until this file is closed; false where another one does."""
        import fcntl  # not on Windows, where reading a run must still work

        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.size = os.fstat(self._file).st_size
        return True

    def close(self) -> None:
        """Close it, with all that was written on the disk. May be called again."""
        if not self._closed:
            self._closed = True
            try:
                os.fsync(self._file)
            finally:
                os.close(self._file)

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:  # one call writes all, but where the disk is full or a signal came in between
            rest = rest[os.write(self._file, rest) :]

    def _cut(self, size: int) -> None:
        os.ftruncate(self._file, size)
        self.size = size

    def _last_newline(self) -> int:
        """The offset behind the last newline."""
        end = self.size
        while end > 0:
            start = max(0, end - CHUNK)
            at = os.pread(self._file, end - start, start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
        return 0


def cannot_write(path: Path, error: OSError) -> str:
    """Say that a file cannot be written and why, in one line."""
    return f"cannot write {path}: {error.strerror}. What was recorded before stays; the run stops here"
