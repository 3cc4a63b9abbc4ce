"""Writing `exchanges/ROLLOUT.zst`: each exchange when it is over, so that a crash loses the unfinished ones only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from hotswap.errors import StoreError
from hotswap.exchanges.similar import Mask, Sent, differ, edits, moved_lengths, nearest
from hotswap.masking import is_secret_name
from hotswap.proxy.packed import NotPacked, TooLarge, UnknownCoding, Unpacker, coding_of
from hotswap.proxy.tape import Tape

if TYPE_CHECKING:
    from zstandard import ZstdCompressor

SCHEMA = 1
LEVEL = 3
NEVER = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie", "set-cookie"}
)
"""Headers that are left out: they are there to hold a secret."""
KEPT = 4
"""Conversations of a rollout that may be referred to at one time."""
LARGE = 1 << 20
"""Bytes from which on an exchange is masked and compressed in a thread."""
SMALL = 1 << 10
"""Bytes below which a request is kept whole, and referred to by none."""
LARGEST_BASE = 1 << 25
"""A larger request is kept in memory for nobody to refer to."""
_ENCODER = json.JSONEncoder(separators=(",", ":"))
CONTINUED = 0.9
"""A request that has so much of an earlier one takes its place."""


@dataclass(frozen=True)
class About:
    """What is recorded in a file."""

    rollout: str
    cell: str
    taskset: str
    harness: str
    runtime: str
    model: str
    """As it was asked for: `openai/gpt-5-mini`."""
    served: str
    """The model's id, as the program was shown it."""
    task: str
    attempt: int
    context: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """What the run set for the model's answers."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the cell's parts, by kind."""

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> About:
        return cls(**{name: record[name] for name in cls.__dataclass_fields__ if name in record})


class Recorder:
    """The file of one rollout, open to be appended to. `append` may be called from one thread."""

    def __init__(self, path: Path, about: About, mask: Mask) -> None:
        """`mask` takes the secrets out of bytes. Raises StoreError where the file cannot be written."""
        self._path = path
        self._mask = mask
        self._sent: list[Sent] = []
        self._count = 0
        self._pending = 0
        self._lock = Lock()
        self._error: OSError | None = None
        self._closed = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(_cannot(path, error)) from error
        self._size = os.fstat(self._file).st_size
        self._write(mask(_line({"schema": SCHEMA, **asdict(about)})), compressor())

    def append(self, tape: Tape) -> None:
        """Keep an exchange. What is wrong with the disk is said by `close`."""
        if self._closed or self._error is not None:
            return
        number, self._count = self._count, self._count + 1
        size = len(tape.asked.body) + sum(len(data) for _, data in tape.chunks)
        large = size >= LARGE or bool(coding_of(dict(tape.headers)))  # who knows what is packed in it
        if not large or not self._in_thread(lambda: self._keep(number, tape, _new_compressor())):
            self._keep(number, tape, compressor())

    def close(self) -> None:
        """Close the file. Raises StoreError where not everything could be written. May be called again."""
        with self._lock:
            self._closed = True
            self._close_unused()
        if self._error is not None:
            raise StoreError(_cannot(self._path, self._error)) from self._error

    def _in_thread(self, work: Callable[[], None]) -> bool:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        with self._lock:
            self._pending += 1
        loop.run_in_executor(None, self._worked_off, work)
        return True

    def _worked_off(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            with self._lock:
                self._pending -= 1
                if self._closed:
                    self._close_unused()

    def _close_unused(self) -> None:
        if self._file >= 0 and not self._pending:
            os.close(self._file)
            self._file = -1

    def _keep(self, number: int, tape: Tape, zstd: ZstdCompressor) -> None:
        asked, (pieces, headers) = tape.asked, _unpacked(tape)
        base, new = self._new_in(number, asked.body)
        answer = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        header = {
            "n": number,
            "started": tape.started,
            "method": asked.method,
            "path": asked.path,
            "query": _query(asked.query),
            "asked": _harmless(asked.headers),
            "dialect": asked.dialect,
            "call": asked.call,
            "agent": asked.agent,
            "base": base,
            "body": len(new),
            "status": tape.status,
            "headers": _harmless(headers),
            "chunks": [(round(at, 4), len(data)) for (at, _), data in zip(tape.chunks, pieces, strict=True)],
            "cut": tape.cut,
            "translated": tape.translated,
            "fault": tape.fault,
            "verdict": tape.verdict.to_json() if tape.verdict is not None else None,
        }
        record = _line(header) + new + answer
        if self._mask(record) is not record:
            new = self._mask(new) if len(asked.body) < SMALL else new
            masked = self._mask(answer)
            lengths = moved_lengths([len(data) for data in pieces], edits(answer, masked))
            timed = [(round(at, 4), length) for (at, _), length in zip(tape.chunks, lengths, strict=True)]
            record = self._mask(_line({**header, "body": len(new), "chunks": timed})) + new + masked
        self._write(record, zstd)

    def _new_in(self, number: int, body: bytes) -> tuple[tuple[int, int, int] | None, bytes]:
        """Get what is new in a request, and what it refers to; masked, but for a small one."""
        if len(body) < SMALL:
            return None, body
        with self._lock:
            earlier = list(self._sent)
        difference = differ(number, body, *nearest(earlier, body), self._mask)
        self._remember(difference.sent, difference.base)
        return difference.base, difference.new

    def _remember(self, sent: Sent, base: tuple[int, int, int] | None) -> None:
        if sent.length > LARGEST_BASE:
            return
        with self._lock:
            old = next((one for one in self._sent if base and one.number == base[0]), None)
            if old is not None and base is not None and base[1] + base[2] >= CONTINUED * old.length:
                self._sent.remove(old)
            self._sent = [*self._sent, sent][-KEPT:]

    def _write(self, record: bytes, zstd: ZstdCompressor) -> None:
        """Write one frame; what is left of one that could not be written whole is cut off again."""
        frame = memoryview(zstd.compress(record))
        with self._lock:
            try:
                written = 0
                while written < len(frame):
                    written += os.write(self._file, frame[written:])
                self._size += written
            except OSError as error:
                self._error = error
                with contextlib.suppress(OSError):  # then it is passed over when the file is read
                    os.ftruncate(self._file, self._size)


def _unpacked(tape: Tape) -> tuple[list[bytes], Sequence[tuple[str, str]]]:
    """Get an answer's pieces and headers so that what is in it can be read, and masked; as they went to the program
    where they were not packed, or cannot be unpacked."""
    pieces = [data for _, data in tape.chunks]
    coding = coding_of(dict(tape.headers))
    if not coding:
        return pieces, tape.headers
    try:
        unpacker = Unpacker(coding)
        plain = [b"".join(unpacker.feed(data)) for data in pieces]
    except (NotPacked, TooLarge, UnknownCoding):
        return pieces, tape.headers
    return plain, [(name, value) for name, value in tape.headers if name.lower() != "content-encoding"]


@cache
def compressor() -> ZstdCompressor:
    """Get the one that all rollouts share: its memory is taken once."""
    return _new_compressor()


def _new_compressor() -> ZstdCompressor:
    from zstandard import ZstdCompressor

    return ZstdCompressor(level=LEVEL, write_content_size=True)


def _line(record: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(record).encode() + b"\n"


def _query(query: str) -> str:
    """Get a query without what only opens doors; with its `?`, so that what is a secret in it is known as one."""
    if not query:
        return ""
    kept = "&".join(part for part in query.split("&") if part and not part.lower().startswith("key="))
    return f"?{kept}" if kept else ""


def _harmless(headers: Iterable[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    return [(name, value) for name, value in headers if _is_harmless(name)]


@cache
def _is_harmless_lower(name: str) -> bool:
    return name not in NEVER and not is_secret_name(name)


def _is_harmless(name: str) -> bool:
    return _is_harmless_lower(name.lower())


def _cannot(path: Path, error: OSError) -> str:
    from hotswap.lines import cannot_write

    return cannot_write(path, error)
