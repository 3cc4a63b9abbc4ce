"""What the proxy costs: CPU a call beside a bare pass-through of the same bodies, both in this run.

    uv run --group dev python benchmarks/proxy.py [--calls 3000]

Both are aiohttp on both sides, in this process; callers and the scripted provider are processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp
from _measure import provider
from aiohttp import web

from hotswap.contracts.model import Upstream
from hotswap.proxy.server import Proxy
from hotswap.proxy.session import SessionRequest

TURNS, TURN_BYTES, WINDOW = 400, 2_000, 50

CALLER = """
import asyncio, sys, aiohttp
url, key, bodies, callers = sys.argv[1], sys.argv[2], sys.stdin.buffer.read().splitlines(), int(sys.argv[3])
async def call(client, mine):
    for body in mine:
        async with client.post(url, data=body, headers={"Authorization": "Bearer " + key}) as response:
            assert response.status == 200, await response.text()
            await response.read()
async def main():
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        await asyncio.gather(*(call(client, bodies[n::callers]) for n in range(callers)))
asyncio.run(main())
"""


@asynccontextmanager
async def bare(upstream: str) -> AsyncIterator[str]:
    """A server that passes on and does nothing else; its address."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), auto_decompress=False
    ) as client:

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            body = await request.content.read()
            async with client.post(f"{upstream}/chat/completions", data=body) as response:
                if "event-stream" not in response.headers["Content-Type"]:
                    return web.Response(body=await response.read(), content_type="application/json")
                down = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await down.prepare(request)
                async for data in response.content.iter_any():
                    await down.write(data)
                await down.write_eof()
                return down

        server = web.Server(answer, access_log=None)
        listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        listener.close()
        await server.shutdown(timeout=1)


async def spend(url: str, key: str, bodies: Sequence[bytes], callers: int) -> tuple[float, float]:
    """Send bodies from another process; CPU seconds of this one, and seconds."""
    argv = (sys.executable, "-c", CALLER, f"{url}/v1/chat/completions", key, str(callers))
    started, cpu = time.perf_counter(), time.process_time()
    process = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.PIPE)
    await process.communicate(b"\n".join(bodies))
    if process.returncode:
        raise RuntimeError("the callers failed")
    return time.process_time() - cpu, time.perf_counter() - started


def small(stream: bool) -> bytes:
    talk = [{"role": "system", "content": "s" * 500}, {"role": "user", "content": "hi " * 100}]
    return json.dumps({"model": "m", "messages": talk, "stream": stream}).encode()


def growing() -> list[bytes]:
    """The requests of one long conversation."""
    talk = [
        {"role": ("user", "assistant")[n % 2], "content": "x" * (TURN_BYTES // 2)} for n in range(2 * TURNS)
    ]
    return [json.dumps({"model": "m", "messages": talk[: 2 * turn + 1]}).encode() for turn in range(TURNS)]


async def main(calls: int) -> None:
    with provider() as upstream:
        async with bare(upstream) as plain, Proxy() as proxy:
            ours = f"http://{proxy.gate.host}:{proxy.gate.port}"
            session = proxy.open(SessionRequest("bench", Upstream(url=upstream, model="m")))
            key = session.secret()
            print(f"{'':24}{'bare ms':>10}{'ours ms':>10}{'ratio':>8}{'calls/s':>10}")
            for name, stream, callers in (
                ("one body", False, 32),
                ("stream", True, 32),
                ("one caller", False, 1),
            ):
                bodies = [small(stream)] * calls
                base, _ = await spend(plain, key, bodies, callers)
                cost, took = await spend(ours, key, bodies, callers)
                row = f"{base / calls * 1e3:10.3f}{cost / calls * 1e3:10.3f}{cost / base:8.2f}{calls / took:10.0f}"
                print(f"{name + f' x {callers}':24}{row}")
            bodies, added = growing(), []
            await session.close()
            session = proxy.open(SessionRequest("long", Upstream(url=upstream, model="m")))
            for part in (bodies[:WINDOW], bodies[WINDOW:-WINDOW], bodies[-WINDOW:]):
                base, _ = await spend(plain, "", part, 1)
                cost, _ = await spend(ours, session.secret(), part, 1)
                added.append((cost - base) / len(part) * 1e3)
            print(
                f"\nadded a turn of {TURNS}: first {WINDOW} {added[0]:.3f} ms, last {WINDOW} {added[2]:.3f} ms"
            )
            await session.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=3000)
    asyncio.run(main(parser.parse_args().calls))
