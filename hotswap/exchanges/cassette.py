"""What a whole run recorded, to be read by replay: a run directory, or one file that was made of it to be kept.

The file begins with a frame of JSON: what is in it, and where. Behind it stand blocks of rollouts, each compressed
as one: what the rollouts of a run have in common, their instructions and tools, is stored once a block.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import hotswap
from hotswap.errors import StoreError, UsageError
from hotswap.exchanges.recorded import Recorded, frames, parse, read_about
from hotswap.exchanges.recorder import About
from hotswap.store import EXCHANGES, LATEST, NoRun, RunDirectory, locate

MAGIC = "hotswap exchanges"
SCHEMA = 1
BLOCK = 1 << 23
"""Bytes of rollouts, as they were sent, that make a block."""
LEVEL, WINDOW = 12, 23


@dataclass(frozen=True)
class Kept:
    """A rollout in a recording."""

    about: About
    dialects: tuple[str, ...]
    """Those that its program spoke."""
    exchanges: int | None
    """Null where it was not counted: a run directory is not read for it."""
    place: tuple[int, int, int] = (0, 0, 0)
    """Its block, where it begins in it, and its length."""


class Recording:
    """All that was recorded of a run."""

    def __init__(self, path: Path, name: str, rollouts: Sequence[Kept]) -> None:
        self.path = path
        self.name = name
        self.rollouts = tuple(rollouts)

    def load(self, kept: Kept) -> Recorded:
        """Read what was recorded of a rollout. Raises StoreError where that cannot be done."""
        path = exchanges_of(self.path, kept.about.rollout)
        return parse(frames(path), path)


class Cassette(Recording):
    """A recording in one file."""

    def __init__(self, path: Path, index: Mapping[str, Any], offset: int) -> None:
        cells = index["cells"]
        super().__init__(path, index["run"], [_from_json(one, cells) for one in index["rollouts"]])
        self._blocks = [tuple(block) for block in index["blocks"]]
        self._offset = offset
        self._read: tuple[int, bytes] | None = None

    def load(self, kept: Kept) -> Recorded:
        number, start, length = kept.place
        if self._read is None or self._read[0] != number:
            self._read = (number, self._block(number))
        return parse(self._read[1][start : start + length], self.path)

    def _block(self, number: int) -> bytes:
        from zstandard import ZstdDecompressor, ZstdError

        at, size, length = self._blocks[number]
        with self.path.open("rb") as file:
            file.seek(self._offset + at)
            data = file.read(size)
        try:
            return ZstdDecompressor().decompress(data, max_output_size=length)
        except ZstdError as error:
            raise StoreError(f"{self.path} is damaged: {error}") from error


def exchanges_of(run: Path, rollout: str) -> Path:
    """Get the path of what is recorded of a rollout in a run directory; it need not exist."""
    return run / EXCHANGES / f"{rollout}.zst"


def open_recording(ref: str, runs: Path) -> Recording:
    """Open a run (its path, its name, the beginning of that) or a file. Raises UsageError where nothing is recorded."""
    path = Path(ref).expanduser()
    if path.is_file() and path.name != LATEST:
        return _open_file(path)
    try:
        return _open_run(ref, runs)
    except NoRun as error:
        if not path.suffix and path.parent == Path():
            raise
        made = f"a run is kept in one by `eval record save RUN {ref}`"
        raise UsageError(f"no such file {ref!r}: {made}; and {error}") from None


def save(recording: Recording, path: Path) -> int:
    """Write a recording as one file, whole or not at all. Get its size."""
    index, blocks = _packed(recording)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(b"".join((_compressed(json.dumps(index).encode()), *blocks)))
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    return path.stat().st_size


def _open_run(ref: str, runs: Path) -> Recording:
    directory = RunDirectory.open(locate(runs, ref))
    kept = []
    for result in directory.results():
        path = exchanges_of(directory.path, result.id)
        about = read_about(path) if path.is_file() else None
        if about is not None:
            kept.append(Kept(about, (), None))
    if not kept:
        why = (
            "it was made with --raw off" if not (directory.path / EXCHANGES).is_dir() else "none was finished"
        )
        raise UsageError(f"run {directory.name} has no recorded exchanges: {why}")
    return Recording(directory.path, directory.name, kept)


def _open_file(path: Path) -> Cassette:
    from zstandard import ZstdDecompressor, ZstdError

    reader = ZstdDecompressor().decompressobj()
    try:
        data = path.read_bytes()
        index = json.loads(reader.decompress(data))
        known = index["kind"] == MAGIC
    except (ZstdError, ValueError, KeyError, TypeError):
        raise UsageError(
            f"{path} holds no recorded exchanges: make one with `record save RUN FILE`"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if not known or index["schema"] > SCHEMA:
        raise UsageError(f"{path} was written by a newer hotswap")
    return Cassette(path, index, len(data) - len(reader.unused_data))


def _packed(recording: Recording) -> tuple[dict[str, Any], list[bytes]]:
    cells: list[dict[str, Any]] = []
    rollouts, blocks, places = [], list[bytes](), list[tuple[int, int, int]]()
    at = 0
    for group in _groups(recording):
        start, number = 0, len(blocks)
        for kept, data in group:
            rollouts.append(_to_json(replace(kept, place=(number, start, len(data))), cells))
            start += len(data)
        blocks.append(_compressed(b"".join(data for _, data in group)))
        places.append((at, len(blocks[-1]), start))
        at += len(blocks[-1])
    index = {
        "kind": MAGIC,
        "schema": SCHEMA,
        "run": recording.name,
        "hotswap": hotswap.__version__,
        "cells": cells,
        "rollouts": rollouts,
        "blocks": places,
    }
    return index, blocks


def _groups(recording: Recording) -> Iterator[list[tuple[Kept, bytes]]]:
    group: list[tuple[Kept, bytes]] = []
    size = 0
    for kept in recording.rollouts:
        data = frames(exchanges_of(recording.path, kept.about.rollout))
        found = parse(data, recording.path).exchanges
        dialects = tuple(dict.fromkeys(one.dialect for one in found if one.dialect))
        group.append((replace(kept, dialects=dialects, exchanges=len(found)), data))
        size += len(data)
        if size >= BLOCK:
            yield group
            group, size = [], 0
    if group:
        yield group


def _compressed(data: bytes) -> bytes:
    from zstandard import ZstdCompressionParameters, ZstdCompressor

    how = ZstdCompressionParameters.from_level(LEVEL, window_log=WINDOW, enable_ldm=len(data) > BLOCK // 4)
    return ZstdCompressor(compression_params=how).compress(data)


def _to_json(kept: Kept, cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Get a rollout as it stands in the index; what its cell has in common with others stands in `cells`."""
    about = asdict(kept.about)
    own = {name: about.pop(name) for name in ("rollout", "task", "attempt")}
    if about not in cells:
        cells.append(about)
    place = {"dialects": kept.dialects, "exchanges": kept.exchanges, "place": kept.place}
    return {"cell": cells.index(about), **own, **place}


def _from_json(record: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> Kept:
    cell = cells[record["cell"]]
    about = About.from_json({**cell, **record, "cell": cell["cell"]})
    return Kept(about, tuple(record["dialects"]), record["exchanges"], tuple(record["place"]))
