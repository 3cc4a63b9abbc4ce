"""Packed bodies are unpacked in slices, whoever packed them, and never beyond their bound."""

from __future__ import annotations

import gzip
import os
import sys
import zlib

import pytest

from hotswap.proxy.packed import NotPacked, TooLarge, UnknownCoding, Unpacker, coding_of, unpack

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DATA = os.urandom(300_000) + b"x" * 3_000_000
PACKED = [
    ("gzip", gzip.compress(DATA), DATA),
    ("x-gzip", gzip.compress(DATA) + gzip.compress(b"more"), DATA + b"more"),
    ("deflate", zlib.compress(DATA), DATA),
    ("deflate", zlib.compress(DATA)[2:-4], DATA),
    ("zstd", zstd.compress(DATA), DATA),
    ("zstd", zstd.compress(DATA) + zstd.compress(b"more"), DATA + b"more"),
]


@pytest.mark.parametrize(("coding", "packed", "plain"), PACKED)
def test_a_body_is_unpacked_whole_and_in_any_pieces(coding: str, packed: bytes, plain: bytes) -> None:
    assert unpack(packed, coding) == plain
    unpacker = Unpacker(coding)
    pieces = (packed[at : at + 1_000] for at in range(0, len(packed), 1_000))
    assert b"".join(part for piece in pieces for part in unpacker.feed(piece)) == plain
    assert unpacker.whole


@pytest.mark.parametrize(("coding", "packed", "plain"), PACKED)
def test_what_is_larger_than_its_bound_or_breaks_off_is_refused(
    coding: str, packed: bytes, plain: bytes
) -> None:
    assert unpack(packed, coding, len(plain)) == plain
    with pytest.raises(TooLarge):
        unpack(packed, coding, len(plain) - 1)
    with pytest.raises(NotPacked, match="breaks off"):
        unpack(packed[:200_000], coding)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_parcel_that_would_become_a_gibibyte_is_unpacked_no_further_than_its_bound(coding: str) -> None:
    part = b" " * 2**26
    packed = gzip.compress(part, 9) * 16 if coding == "gzip" else zstd.compress(part) * 16
    sizes: list[int] = []
    with pytest.raises(TooLarge):
        sizes.extend(map(len, Unpacker(coding, 2**24).feed(packed)))
    with pytest.raises(TooLarge):
        unpack(packed, coding, 2**24)
    assert sum(sizes) <= 2**24


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_what_is_not_packed_is_told_from_what_is(coding: str) -> None:
    with pytest.raises(NotPacked, match=f"no {coding}"):
        unpack(b"hello, I am not packed", coding)
    assert unpack(b"", coding) == b""


def test_the_coding_is_read_in_any_case_and_one_that_nobody_reads_is_said() -> None:
    assert coding_of({"Content-encoding": " GZip "}) == "gzip"
    assert coding_of({"content-encoding": "identity"}) == coding_of({}) == ""
    with pytest.raises(UnknownCoding, match="'br'"):
        unpack(b"x", "br")
