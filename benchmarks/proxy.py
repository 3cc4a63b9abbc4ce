"""What the proxy costs: CPU of this process beside a bare pass-through of the same bodies, both in this run.

    uv run --group dev python benchmarks/proxy.py [--calls 3000]

The bare pass-through is aiohttp on both sides, as the proxy is. Callers and provider are processes of their own. What
is recorded is recorded as in a run: a graph, a trace, and the raw exchanges in a file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
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
from hotswap.trace import CellRecord, TaskRecord, Trace

HERE = Path(__file__).parent
TURNS, TURN_BYTES, WINDOW = 400, 2_000, 50
SESSIONS, STREAMS, TOKENS = 1_000, 100, 2_000

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
    with Popen(
        [sys.executable, HERE / "_instant.py", str(events)], stdin=PIPE, stdout=PIPE, text=True
    ) as process:
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


async def spend(port: int, lines: Iterable[Line], callers: int) -> Cost:
    """Send bodies from another process."""
    argv = (sys.executable, str(HERE / "_callers.py"), str(port), str(callers))
    sent = "\n".join(json.dumps([key, body.decode()]) for key, body in lines).encode()
    started, cpu = time.perf_counter(), time.process_time()
    process = await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=PIPE)
    said, _ = await process.communicate(sent)
    if process.returncode:
        raise RuntimeError("the callers failed")
    first, _ = map(float, said.split())
    return Cost(time.process_time() - cpu, time.perf_counter() - started, first)


def small(stream: bool) -> bytes:
    talk = [{"role": "system", "content": "s" * 500}, {"role": "user", "content": "hi " * 100}]
    return json.dumps({"model": "m", "messages": talk, "stream": stream}).encode()


def growing() -> list[bytes]:
    """The requests of one long conversation."""
    talk = [
        {"role": ("user", "assistant")[n % 2], "content": f"{n} " + "x" * (TURN_BYTES // 2)}
        for n in range(2 * TURNS)
    ]
    return [json.dumps({"model": "m", "messages": talk[: 2 * turn + 1]}).encode() for turn in range(TURNS)]


class Bench:
    """The proxy between callers and a provider, and what it is compared with."""

    def __init__(self, proxy: Proxy, plain: int, upstream: int, run: Path) -> None:
        self._proxy = proxy
        self._plain = plain
        self._upstream = Upstream(url=f"http://127.0.0.1:{upstream}/v1", model="m")
        self._recorders = Recorders(run, Masker(), on=True)
        self.run = run

    def open(self, name: str) -> Session:
        about = About(name, "cell", "bench", "none", "none", "m", "m", "task", 0)
        record = self._recorders.open(about)
        return self._proxy.open(SessionRequest(name, self._upstream, record=record))

    async def close(self, session: Session, name: str) -> None:
        await session.close()
        self._recorders.close(name)

    async def pair(self, lines: Sequence[Line], callers: int) -> tuple[Cost, Cost]:
        """Send the same calls past a bare pass-through, and past the proxy."""
        return await spend(self._plain, lines, callers), await spend(self._proxy.gate.port, lines, callers)


async def show_calls(bench: Bench, name: str, callers: int, sessions: int, calls: int, stream: bool) -> None:
    """One row: so many callers, spread over so many sessions."""
    opened = {f"{name}-{number}": None for number in range(sessions)}
    seats = {each: bench.open(each) for each in opened}
    keys = [session.secret() for session in seats.values()]
    lines = [(keys[number % callers % sessions], small(stream)) for number in range(calls)]
    base, ours = await bench.pair(lines, callers)
    for each, session in seats.items():
        await bench.close(session, each)
    late_ms = (ours.first_s - base.first_s) * 1e3
    print(
        f"{name:36}{base.cpu_s / calls * 1e3:9.3f}{ours.cpu_s / calls * 1e3:9.3f}{ours.cpu_s / base.cpu_s:7.2f}"
        f"{calls / base.wall_s:9.0f}{calls / ours.wall_s:9.0f}{late_ms:10.2f}"
    )


async def show_tokens(bench: Bench) -> None:
    """Many long streams at a time: what a token event costs beyond the bare pass-through."""
    session = bench.open("streams")
    lines = [(session.secret(), small(True))] * STREAMS
    base, ours = await bench.pair(lines, STREAMS)
    await bench.close(session, "streams")
    events = STREAMS * TOKENS
    print(
        f"\n{STREAMS} streams of {TOKENS} tokens, microseconds an event: bare {base.cpu_s / events * 1e6:.1f}, "
        f"ours {ours.cpu_s / events * 1e6:.1f}, added {(ours.cpu_s - base.cpu_s) / events * 1e6:.1f} (bound 30)"
    )


async def show_growth(bench: Bench) -> None:
    """One long conversation: what a turn costs at its beginning and its end, and what is stored of it."""
    bodies, added, sizes = growing(), [], []
    session = bench.open("long")
    for part in (
        bodies[:WINDOW],
        bodies[WINDOW : TURNS // 2],
        bodies[TURNS // 2 : -WINDOW],
        bodies[-WINDOW:],
    ):
        base, ours = await bench.pair([(session.secret(), body) for body in part], 1)
        added.append((ours.cpu_s - base.cpu_s) / len(part) * 1e3)
        sizes.append((stored(session), (bench.run / "exchanges" / "long.zst").stat().st_size))
    await bench.close(session, "long")
    print(
        f"\n{TURNS} turns of {TURN_BYTES} bytes, added ms a turn: first {WINDOW} {added[0]:.3f}, last {WINDOW} "
        f"{added[-1]:.3f}, ratio {added[-1] / added[0]:.2f} (bound 1.5)"
    )
    for place, what in enumerate(("trace", "exchanges")):
        half, whole = sizes[1][place], sizes[-1][place]
        print(
            f"{what}: {half} bytes after half of them, {whole} after all, ratio {whole / half / 2:.2f} (bound 1.2)"
        )


def stored(session: Session) -> int:
    """The bytes of the session's trace."""
    cell = CellRecord("cell", "bench", "none", "1", "m", "none")
    trace = Trace("r", "run", cell, TaskRecord("t", "sha256:0"), 0)
    session.write(trace)
    return len(trace.to_line())


async def main(calls: int) -> None:
    with tempfile.TemporaryDirectory() as folder, instant(3) as few, instant(TOKENS) as many:
        async with bare(few) as plain, bare(many) as plain_long, Proxy() as proxy:
            bench = Bench(proxy, plain, few, Path(folder))
            print(f"{'':36}{'bare ms':>9}{'ours ms':>9}{'ratio':>7}{'bare/s':>9}{'ours/s':>9}{'1st +ms':>10}")
            await show_calls(bench, "one body, one caller", 1, 1, calls, False)
            await show_calls(bench, "a stream, one caller", 1, 1, calls, True)
            await show_calls(bench, "one session, 32 callers", 32, 1, calls, False)
            await show_calls(bench, f"{SESSIONS} sessions, a call each", SESSIONS, SESSIONS, 4 * calls, False)
            await show_growth(bench)
            await show_tokens(Bench(proxy, plain_long, many, Path(folder) / "long"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=3000)
    asyncio.run(main(parser.parse_args().calls))
