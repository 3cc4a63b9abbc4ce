"""The file of one rollout's tokens: `tokens/ROLLOUT.bin` in the run directory.

All numbers are little-endian. The file begins with 16 bytes: `hotswap`, a zero byte, the version (u32), a zero (u32).
Then one record for each choice of each call, in the order in which the calls were answered:

    u32  size      bytes of the record after this field and the next
    u32  check     CRC-32 of these bytes
    u32  call      place of the call in the trace's `calls`
    u32  choice    place of the answer among those of the call; mostly 0
    u32  flags     1: the prompt does not extend what the call before read and wrote
    u32  base      number of the record, from 1, that the prompt begins like; 0: none
    u32  shared    so many of that record's ids, prompt and output together, come first in the prompt
    u32  new       ids of the prompt after these
    u32  output    ids that the model wrote
    u32  x new, u32 x output, f32 x output (log-probabilities; NaN where the endpoint gave none)

A record that was torn by a crash is the last one, and is passed over.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from hotswap.errors import StoreError

MAGIC, VERSION = b"hotswap\0", 1
HEADER = struct.Struct("<8sII")
FRAME, HEAD = struct.Struct("<II"), struct.Struct("<7I")
BREAK = 1
"""The flag of a prompt that does not go on from the call before."""


@dataclass(frozen=True)
class Captured:
    """What went into the model and came out, for one choice of one call."""

    call: int
    """Its place in the trace's `calls`."""
    choice: int
    prompt: Sequence[int]
    output: Sequence[int]
    logprobs: Sequence[float]
    """One for each id of the output, as float32; NaN where the endpoint gave none."""
    broken: bool
    """The prompt does not extend what the call before it in the same conversation read and wrote."""


@dataclass(frozen=True)
class Record:
    """One record as it stands in the file."""

    call: int
    choice: int
    broken: bool
    base: int
    """From 1; 0 for none."""
    shared: int
    new: Sequence[int]
    output: Sequence[int]
    logprobs: Sequence[float]


class Sidecar:
    """The file of one try of a rollout, open to be written: what an earlier try left is overwritten."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError where it cannot be written."""
        self.path = path
        self._count = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            self._size = self._write(HEADER.pack(MAGIC, VERSION, 0))
        except OSError as error:
            raise _failed(path, error) from error

    def append(self, record: Record) -> int:
        """Write a record, and get its number, from 1. Raises StoreError; then nothing of it stays."""
        head = HEAD.pack(
            record.call,
            record.choice,
            BREAK if record.broken else 0,
            record.base,
            record.shared,
            len(record.new),
            len(record.output),
        )
        body = head + _packed("I", record.new) + _packed("I", record.output) + _packed("f", record.logprobs)
        try:
            self._size += self._write(FRAME.pack(len(body), crc32(body)) + body)
        except OSError as error:
            with contextlib.suppress(OSError):  # then it is torn, and passed over when the file is read
                os.ftruncate(self._file, self._size)
            raise _failed(self.path, error) from error
        self._count += 1
        return self._count

    def close(self) -> None:
        """May be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, data: bytes) -> int:
        written = 0
        while written < len(data):
            written += os.write(self._file, data[written:])
        return written


def read(path: Path | str) -> Iterator[Captured]:
    """Iterate over what was captured of a rollout, in the order in which its calls were answered.

    Memory is that of the file and of one prompt. Raises StoreError for what is no such file.
    """
    known: list[Record] = []
    for record in _records(Path(path)):
        known.append(record)
        prompt = _prompt(known, record)
        yield Captured(record.call, record.choice, prompt, record.output, record.logprobs, record.broken)


def _records(path: Path) -> Iterator[Record]:
    try:
        with path.open("rb") as file:
            magic, version, _ = HEADER.unpack(file.read(HEADER.size).ljust(HEADER.size, b"\0"))
            if magic != MAGIC or version != VERSION:
                raise StoreError(f"{path} holds no captured tokens of version {VERSION}")
            while len(frame := file.read(FRAME.size)) == FRAME.size:
                size, check = FRAME.unpack(frame)
                body = file.read(size)
                if len(body) < size:
                    return
                if crc32(body) != check:
                    raise StoreError(f"{path} is damaged before byte {file.tell()}")
                yield _unpacked(body)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def _unpacked(body: bytes) -> Record:
    call, choice, flags, base, shared, new, output = HEAD.unpack_from(body)
    at = HEAD.size
    ids, logprobs = array("I"), array("f")
    _fill(ids, body[at : at + 4 * (new + output)])
    _fill(logprobs, body[at + 4 * (new + output) :])
    return Record(call, choice, bool(flags & BREAK), base, shared, ids[:new], ids[new:], logprobs)


def _prompt(known: Sequence[Record], record: Record) -> array[int]:
    """Put a prompt together from the records that it begins like."""
    pieces, base, wanted = [record.new], record.base, record.shared
    while base and wanted:
        earlier = known[base - 1]
        own = [*earlier.new, *earlier.output][: max(0, wanted - earlier.shared)]
        pieces.append(own)
        base, wanted = earlier.base, min(wanted, earlier.shared)
    prompt = array("I")
    for piece in reversed(pieces):
        prompt.extend(piece)
    return prompt


def _packed(kind: str, values: Iterable[float]) -> bytes:
    packed: array[Any] = array(kind, values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _fill(values: array[Any], data: bytes) -> None:
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()


def _failed(path: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot write {path}: {error.strerror or error}")
