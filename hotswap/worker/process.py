"""One life of a worker, as the eval process sees it: the process, its environment, the channel, what it
prints.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import site
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from hotswap.contracts.runtime import Process
from hotswap.processes import Family

LEAVE_S = 2.0
"""A worker has this long to end by itself when the channel is closed."""
TAIL = 8_000
"""Bytes of what a worker printed last that are kept for error reports."""
LOG_LIMIT = 10 << 20
"""Bytes of what a worker prints that its log takes."""

NEEDED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"),
        *("XDG_CACHE_HOME", "HOTSWAP_CACHE", "HF_TOKEN_PATH"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    }
)
NEEDED_PREFIXES = ("LC_", "HF_")
SECRET = re.compile("KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)


def environment(ours: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """Get what a worker sees of our environment: a list of what Python, and downloads of data, need.

    No variable that is named like a secret passes, HF_TOKEN included: the hub that it opens serves models
    too. Who reads closed data sets logs in with `hf auth login`, whose file the worker finds through HOME, or
    names the variable in `keep`. A proxy's address passes as it is, with the password that may stand in it.
    """
    passing = {
        name: value
        for name, value in ours.items()
        if name in NEEDED or (name.startswith(NEEDED_PREFIXES) and not SECRET.search(name))
    }
    return passing | {name: ours[name] for name in keep if name in ours}


def command(python: Sequence[str], fd: int) -> list[str]:
    """Get the argv of a worker. Our own Python keeps what we see (PYTHONPATH, packages of the user); another
    one is isolated from it.
    """
    flags = ["-P"] if is_ours(python) else ["-I"]
    if is_ours(python) and not site.ENABLE_USER_SITE:
        flags.append("-s")
    start = Path(__file__).with_name("start.py")
    return [*python, *flags, "-X", "utf8", str(start), str(fd)]


def is_ours(python: Sequence[str]) -> bool:
    return tuple(python) == (sys.executable,)


class WorkerProcess(asyncio.Protocol):
    """A worker from its start to its end. `heard` is called with each frame that it sends."""

    def __init__(
        self, python: Sequence[str], keep: Collection[str], log: Path | None, heard: Callable[[Any], None]
    ) -> None:
        self.python = " ".join(python)
        """As a person would write it."""
        self._command = python
        self._keep = {*keep, "PYTHONPATH"} if is_ours(python) else keep
        self._log = _Log(log)
        self._heard = heard
        self._family = Family("worker")
        self._buffer = bytearray()
        self._closed = asyncio.Event()
        self._process: Process | None = None
        self._transport: asyncio.Transport | None = None
        self._reading: asyncio.Task[None] | None = None
        self._pid: int | None = None
        self.greeted = False
        """It has begun to serve."""

    async def start(self) -> None:
        """Start the process. Does not wait until it serves: what is sent meanwhile it finds when it does."""
        ours, theirs = socket.socketpair()
        try:
            argv = command(self._command, theirs.fileno())
            env = environment(os.environ, self._keep)
            process = await self._family.start(argv, env=env, pass_fds=(theirs.fileno(),))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._process = process
        self._reading = asyncio.create_task(self._read(process))
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_unix_connection(lambda: self, sock=ours)

    def send(self, frame: bytes) -> None:
        assert self._transport is not None
        self._transport.writelines((len(frame).to_bytes(4, "big"), frame))

    def signal(self, number: signal.Signals) -> None:
        if self._pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    async def ended(self) -> str:
        """Wait for its end, and get how it ended, in words; every frame that it sent has been heard then."""
        assert self._process is not None
        assert self._reading is not None
        result = await self._process.wait()
        await self._family.end()
        await _within(LEAVE_S, self._closed.wait())
        await _within(LEAVE_S, asyncio.shield(self._reading))
        self._log.add(bytes(result.stderr))
        if result.signal is not None:
            known = result.signal in set(signal.Signals)
            return f"signal {signal.Signals(result.signal).name if known else result.signal}"
        return f"exit code {result.exit}"

    async def leave(self) -> None:
        """Close the channel, upon which a worker ends by itself; end it where it does not."""
        if self._transport is not None:
            self._transport.close()
        try:
            if self._process is not None:
                await _within(LEAVE_S, self._process.wait())
        finally:
            await self._family.end()
            if self._reading is not None:
                await _within(LEAVE_S, self._reading)
            self._log.close()

    @property
    def tail(self) -> str | None:
        """What it printed last."""
        return self._log.tail

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= 4:
            ends = at + 4 + int.from_bytes(self._buffer[at : at + 4], "big")
            if len(self._buffer) < ends:
                break
            frame = json.loads(self._buffer[at + 4 : ends])
            at = ends
            self._hear(frame)
        del self._buffer[:at]

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._closed.set()

    def _hear(self, frame: Any) -> None:
        if "hello" in frame:
            self._pid = frame["hello"]["pid"]
            self.greeted = True
        else:
            self._heard(frame)

    async def _read(self, process: Process) -> None:
        async for data in process.output():
            self._log.add(data)


class _Log:
    """What a worker prints: into a file while it is not too large, and its end for error reports."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._tail = bytearray()

    @property
    def tail(self) -> str | None:
        return self._tail[-TAIL:].decode("utf-8", "replace").strip() or None

    def add(self, data: bytes) -> None:
        self._tail += data
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]
        if self._path is not None and data:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("ab")
            if self._file.tell() < LOG_LIMIT:
                self._file.write(data)
                self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


async def _within(seconds: float, wait: Awaitable[object]) -> None:
    """Wait, but not longer. (Not asyncio.wait_for, which in Python 3.11 may lose a cancellation.)"""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wait
