"""Reading what was recorded of a rollout. What a crash tore is passed over."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotswap.errors import StoreError
from hotswap.exchanges.recorder import SCHEMA, About
from hotswap.proxy.tape import Verdict

FED = 1 << 16
"""Compressed bytes that are looked at together."""
BUILT = 4
"""Whole requests that are kept for those which refer to them."""


@dataclass(eq=False)
class Exchange:
    """A request and its answer. The request's body is put together when it is asked for."""

    number: int
    started: float
    method: str
    path: str
    query: str
    """With its `?`, where there is one."""
    dialect: str | None
    call: int | None
    agent: str
    status: int | None
    headers: tuple[tuple[str, str], ...]
    """The answer's."""
    chunks: tuple[tuple[float, bytes], ...]
    """The answer's body in its pieces, each with its seconds since `started`."""
    cut: bool
    translated: bool
    fault: str | None
    verdict: Verdict | None
    """What was made of it; null for a route beside."""
    asked: tuple[tuple[str, str], ...]
    """The request's headers."""
    bodies: Bodies = field(repr=False)

    @property
    def body(self) -> bytes:
        """The request's, without its secrets."""
        return self.bodies.get(self.number)

    @property
    def answer(self) -> bytes:
        return b"".join(data for _, data in self.chunks)


class Bodies:
    """The requests of one rollout, each kept as what is new in it."""

    def __init__(self) -> None:
        self._parts: dict[int, tuple[tuple[int, int, int] | None, bytes]] = {}
        self._built: dict[int, bytes] = {}

    def add(self, number: int, base: tuple[int, int, int] | None, new: bytes) -> None:
        self._parts[number] = (base, new)

    def known(self, number: int) -> bool:
        """Whether a request can be put together: a crash may have taken what it refers to."""
        seen = set()
        while number in self._parts and number not in seen:
            seen.add(number)
            base, _ = self._parts[number]
            if base is None:
                return True
            number = base[0]
        return False

    def get(self, number: int) -> bytes:
        """Put a request together, from the nearest one that is at hand."""
        row: list[int] = []
        at: int | None = number
        while at is not None and at not in self._built:
            row.append(at)
            base, _ = self._parts[at]
            at = base[0] if base else None
        for each in reversed(row):
            self._built[each] = self._build(each)
            for old in list(self._built)[:-BUILT]:
                del self._built[old]
        return self._built[number]

    def _build(self, number: int) -> bytes:
        base, new = self._parts[number]
        if base is None:
            return new
        earlier, before, after = base
        old = self._built[earlier]
        return old[:before] + new + old[len(old) - after :]


@dataclass(frozen=True)
class Recorded:
    """What is recorded of one rollout: of its last try."""

    about: About
    exchanges: tuple[Exchange, ...]
    """In the order in which they were asked."""


def read_about(path: Path) -> About | None:
    """Get what a file is about from its first frame alone; null where that was torn."""
    with path.open("rb") as file:
        first = next(_frames(iter(lambda: file.read(FED), b"")), None)
    return About.from_json(_header(first, path)[0]) if first is not None else None


def read(path: Path) -> Recorded | None:
    """Read a file; null where it was torn before its first record was whole. Raises StoreError for another file."""
    with path.open("rb") as file:
        data = b"".join(_frames(iter(lambda: file.read(FED), b"")))
    return parse(data, path) if data else None


def parse(data: bytes, path: Path) -> Recorded:
    """Read records that were decompressed."""
    about: About | None = None
    found: list[Exchange] = []
    bodies, at = Bodies(), 0
    while at < len(data):
        record, at = _header(data, path, at)
        if "n" not in record:
            about, found, bodies = About.from_json(record), [], Bodies()
            continue
        exchange, at = _exchange(record, data, at, bodies)
        found.append(exchange)
    if about is None:
        raise StoreError(f"{path} does not say what is recorded in it")
    whole = [exchange for exchange in found if bodies.known(exchange.number)]
    return Recorded(about, tuple(sorted(whole, key=lambda exchange: exchange.started)))


def frames(path: Path) -> bytes:
    """Get a file's whole frames, decompressed."""
    with path.open("rb") as file:
        return b"".join(_frames(iter(lambda: file.read(FED), b"")))


def _exchange(record: Mapping[str, Any], data: bytes, at: int, bodies: Bodies) -> tuple[Exchange, int]:
    base = record["base"]
    bodies.add(record["n"], tuple(base) if base else None, data[at : at + record["body"]])
    at += record["body"]
    chunks = []
    for seconds, length in record["chunks"]:
        chunks.append((seconds, data[at : at + length]))
        at += length
    exchange = Exchange(
        number=record["n"],
        **{name: record[name] for name in ("started", "method", "path", "query", "dialect", "call", "agent")},
        **{name: record[name] for name in ("status", "cut", "translated", "fault")},
        verdict=Verdict.from_json(said) if (said := record.get("verdict")) is not None else None,
        headers=_pairs(record["headers"]),
        asked=_pairs(record["asked"]),
        chunks=tuple(chunks),
        bodies=bodies,
    )
    return exchange, at


def _pairs(headers: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in headers)


def _header(data: bytes, path: Path, at: int = 0) -> tuple[dict[str, Any], int]:
    """Read the line of a record, and where its bytes begin."""
    end = data.find(b"\n", at)
    try:
        record = json.loads(data[at:end])
    except ValueError as error:
        raise StoreError(f"{path} holds no recorded exchanges: {error}") from error
    if not isinstance(record, dict) or record.get("schema", SCHEMA) > SCHEMA:
        raise StoreError(f"{path} was written by a newer hotswap, or holds no recorded exchanges")
    return record, end + 1


def _frames(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress one frame after the other, up to the first that is not whole."""
    from zstandard import ZstdDecompressor, ZstdError

    reader, parts = ZstdDecompressor().decompressobj(), list[bytes]()
    for piece in pieces:
        rest = piece
        while rest:
            try:
                parts.append(reader.decompress(rest))
            except ZstdError:
                return
            rest = reader.unused_data if reader.eof else b""
            if reader.eof:
                yield b"".join(parts)
                reader, parts = ZstdDecompressor().decompressobj(), []
