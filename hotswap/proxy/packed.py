"""Packed bodies: gzip, deflate and zstd, unpacked in slices and never beyond a bound.

A few bytes can be packed so that they become gigabytes. What is unpacked is counted as it comes, and each slice
releases the interpreter's lock while it is worked on, so that in a thread it holds up nobody.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Protocol, cast

UNPACKED_LIMIT = 256 * 2**20
"""Bytes that a body may have when it is unpacked."""
CODING = "content-encoding"
SLICE = 2**20
STEP = 2**16
"""Packed bytes that are taken at a time."""


class NotPacked(Exception):
    """A body is not what its headers say. The message says what is wrong."""


class TooLarge(Exception):
    """A body is larger than its bound, unpacked."""


class UnknownCoding(Exception):
    """Bodies of this coding cannot be read here."""


class Decoder(Protocol):
    """What unpacks one member of a body."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


def coding_of(headers: Mapping[str, str]) -> str:
    """Get how a body is packed, in lower case; an empty text where it is not."""
    for name, value in headers.items():
        if len(name) == len(CODING) and name.lower() == CODING:  # nearly all are told apart by their length
            coding = value.strip().lower()
            return "" if coding == "identity" else coding
    return ""


def unpack(raw: bytes, coding: str, most: int = UNPACKED_LIMIT) -> bytes:
    """Get a whole body unpacked. Raises NotPacked, TooLarge and UnknownCoding."""
    unpacker = Unpacker(coding, most)
    parts = list(unpacker.feed(raw))
    if raw and not unpacker.whole:
        raise NotPacked(f"its {coding} breaks off")
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Unpacker:
    """Unpacks one body as its bytes come."""

    def __init__(self, coding: str, most: int = UNPACKED_LIMIT) -> None:
        """Raises UnknownCoding."""
        if coding not in ("gzip", "x-gzip", "deflate", "zstd"):
            raise UnknownCoding(f"bodies packed as {coding!r} cannot be read, only gzip, deflate and zstd")
        self._coding = coding
        self._left = most
        self._errors: tuple[type[Exception], ...] = (zlib.error, *_zstd_errors(coding))
        self._decoder: Decoder | None = None

    @property
    def whole(self) -> bool:
        """Whether what has come ends where the packer ended."""
        return self._decoder is None or self._decoder.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Unpack the next bytes, slice by slice. Raises NotPacked and TooLarge."""
        for start in range(0, len(data), STEP):
            try:
                yield from self._feed(data[start : start + STEP])
            except self._errors as error:
                raise NotPacked(f"it is no {self._coding}: {error}") from error

    def _feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            decoder = self._decoder = self._open(data)
            while piece := decoder.decompress(data, SLICE):
                self._left -= len(piece)
                if self._left < 0:
                    raise TooLarge("it is too large when it is unpacked")
                yield piece
                data = getattr(decoder, "unconsumed_tail", b"")  # zstd keeps what is left itself
                if decoder.eof:
                    break
            data = decoder.unused_data if decoder.eof and self._coding != "deflate" else b""

    def _open(self, data: bytes) -> Decoder:
        """The decoder that goes on, or one for the next member."""
        if self._decoder is not None and not (self._decoder.eof and self._coding != "deflate"):
            return self._decoder
        if self._coding == "zstd":
            return _zstd().ZstdDecompressor()
        if self._coding != "deflate":
            return zlib.decompressobj(31)
        bare = data[0] & 15 != zlib.DEFLATED or data[0] >> 4 > 7  # some send it without its head
        return zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS)


class ZstdModule(Protocol):
    """What is used of the module, of which there are two."""

    ZstdError: type[Exception]

    def ZstdDecompressor(self) -> Decoder: ...  # noqa: N802


def _zstd_errors(coding: str) -> tuple[type[Exception], ...]:
    return (_zstd().ZstdError,) if coding == "zstd" else ()


def _zstd() -> ZstdModule:
    """The module, loaded where it is first needed."""
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    return cast(ZstdModule, import_module(name))
