"""What benchmarks/proxy.py measures with: a bare pass-through beside the proxy, a provider and callers of their own."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen

import aiohttp
from aiohttp import web

from hotswap.contracts.model import Upstream
from hotswap.exchanges.recorder import About
from hotswap.exchanges.recorders import Recorders
from hotswap.masking import Masker
from hotswap.proxy.server import Proxy
from hotswap.proxy.session import Session, SessionRequest

HERE = Path(__file__).parent

Line = tuple[str, bytes]
"""A key, and the body that is sent with it."""


@dataclass(frozen=True)
class Cost:
    """What calls took: CPU seconds of this process, wall seconds, and the median seconds to the first byte."""

    cpu_s: float
    wall_s: float
    first_s: float


@contextmanager
def instant(events: int) -> Iterator[int]:
    """Start the provider; get its port."""
    argv = [sys.executable, HERE / "_instant.py", str(events)]
    with Popen(argv, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.stdin.close()


@asynccontextmanager
async def bare(upstream: int) -> AsyncIterator[int]:
    """A server that passes on and does nothing else; its port."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as client:

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            body = await request.content.read()
            url = f"http://127.0.0.1:{upstream}/v1/chat/completions"
            async with client.post(url, data=body) as response:
                if "event-stream" not in response.headers["Content-Type"]:
                    return web.Response(body=await response.read(), content_type="application/json")
                down = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await down.prepare(request)
                async for data in response.content.iter_any():
                    await down.write(data)
                await down.write_eof()
                return down

        server = web.Server(answer, access_log=None)
        listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, backlog=4096)
        yield listener.sockets[0].getsockname()[1]
        listener.close()
        await server.shutdown(timeout=1)


async def spend(port: int, lines: Sequence[Line], callers: int) -> Cost:
    """Send bodies from another process, which reads them from a file: handing them on is no work of this one."""
    argv = (sys.executable, str(HERE / "_callers.py"), str(port), str(callers))
    with tempfile.TemporaryFile() as sent:
        sent.writelines(json.dumps([key, body.decode()]).encode() + b"\n" for key, body in lines)
        sent.seek(0)
        process = await asyncio.create_subprocess_exec(*argv, stdin=sent, stdout=PIPE)
    cpu = time.process_time()
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError("the callers failed")
    first_s, _, wall_s = map(float, said.split())
    return Cost(time.process_time() - cpu, wall_s, first_s)


class Bench:
    """The proxy between callers and a provider, and what it is compared with."""

    def __init__(self, proxy: Proxy, plain: int, upstream: int, run: Path) -> None:
        self._proxy = proxy
        self._plain = plain
        self._upstream = Upstream(url=f"http://127.0.0.1:{upstream}/v1", model="m")
        self._recorders = Recorders(run, Masker(), on=True)
        self.run = run

    def open(self, name: str) -> Session:
        """Open a session whose exchanges are recorded, as in a run."""
        record = self._recorders.open(About(name, "cell", "bench", "none", "none", "m", "m", "task", 0))
        return self._proxy.open(SessionRequest(name, self._upstream, record=record))

    async def close(self, session: Session, name: str) -> None:
        await session.close()
        self._recorders.close(name)

    async def ours(self, lines: Sequence[Line], callers: int) -> Cost:
        """Send calls past the proxy."""
        return await spend(self._proxy.gate.port, lines, callers)

    async def pair(self, lines: Sequence[Line], callers: int) -> tuple[Cost, Cost]:
        """Send the same calls past a bare pass-through, and past the proxy."""
        return await spend(self._plain, lines, callers), await self.ours(lines, callers)
