"""What the proxy costs beside a bare pass-through of the same bodies, both in this run. Exit code 1: a bound is missed.

    uv run --group dev python benchmarks/proxy.py [--calls 400] [--repeats 5]

The bare pass-through is aiohttp on both sides, as the proxy is. Callers and provider are processes of their own. What
is recorded is recorded as in a run: a graph, a trace, and the raw exchanges in a file. Each figure is the median of
repeats that alternate (bare, ours, bare, ours, ...), and beside it stand the lowest and the highest of them.

Bounds are ratios. Where one is said as a time, it is said for a machine on which a bare pass-through of a small call
takes 0.12 ms of CPU, and becomes as much longer as the bare one takes here, in this run: 0.3 ms a call is 2.5 times
bare; 1 ms to the first byte is 1 ms times the bare call's CPU here over 0.12 ms; 3,000 calls a second, where the bare
one makes 8,333 on a core, are 0.36 of the bare rate. The 30 microseconds of a token event are held as they stand.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from _relay import Bench, Cost, bare, instant

from hotswap.proxy.server import Proxy
from hotswap.proxy.session import Session
from hotswap.trace import CellRecord, TaskRecord, Trace

TURNS, TURN_BYTES, WINDOW = 400, 2_000, 50
SESSIONS, STREAMS, TOKENS = 1_000, 100, 2_000
BARE_MS = 0.12
"""CPU of a bare small call where the bounds were written."""
CALL_MS, FIRST_MS, CALLS_PER_S, TOKEN_US = 0.3, 1.0, 3_000, 30.0
LONG_ROUNDS, LONG_S, STEADY = 2, 45.0, 0.15
"""Of the long conversation: the least rounds, the seconds after which no other begins, and the share by which the last
round may have moved the medians."""


@dataclass(frozen=True)
class Row:
    """One line of the table. `bound` is the most that `held` may be; the least, where `least`."""

    name: str
    figure: str
    ratio: str
    held: Sequence[float]
    bound: float
    least: bool = False

    @property
    def met(self) -> bool:
        return median(self.held) >= self.bound if self.least else median(self.held) <= self.bound

    def show(self) -> bool:
        """Print it; whether its bound is met."""
        spread = f"{min(self.held):.2f}..{max(self.held):.2f}"
        sign = ">=" if self.least else "<="
        verdict = "ok" if self.met else "MISSED"
        print(
            f"{self.name:32}{self.figure:>34}{self.ratio:>9}"
            f"{median(self.held):>9.2f}  {sign}{self.bound:6.2f}  {spread:>14}  {verdict}",
            flush=True,
        )
        return self.met


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


def stored(session: Session) -> int:
    """The bytes of the session's trace."""
    trace = Trace(
        "r", "run", CellRecord("cell", "bench", "none", "1", "m", "none"), TaskRecord("t", "sha256:0"), 0
    )
    session.write(trace)
    return len(trace.to_line())


class Rows:
    """Measures the rows one after the other."""

    def __init__(self, bench: Bench, calls: int, repeats: int) -> None:
        self._bench = bench
        self._calls = calls
        self._repeats = repeats
        self._slower = 1.0
        """How much slower than where the bounds were written this machine is."""

    async def small_call(self) -> list[Row]:
        pairs = await self._pairs("small", callers=1, sessions=1, calls=self._calls, stream=False)
        base, ours = (
            median(cost.cpu_s for cost in side) / self._calls * 1e3 for side in zip(*pairs, strict=True)
        )
        self._slower = base / BARE_MS
        held = [mine.cpu_s / plain.cpu_s for plain, mine in pairs]
        figure = f"bare {base:.3f}, ours {ours:.3f} ms CPU"
        row = Row("a small call", figure, f"{median(held):.2f}", held, CALL_MS / BARE_MS)
        return [row, self._first("first byte of a body, ms later", pairs)]

    async def stream(self) -> list[Row]:
        pairs = await self._pairs("stream", callers=1, sessions=1, calls=self._calls, stream=True)
        return [self._first("first byte of a stream, ms later", pairs)]

    async def rate(self, name: str, callers: int, sessions: int) -> list[Row]:
        calls = max(3 * self._calls, sessions)
        pairs = await self._pairs(name, callers, sessions, calls, stream=False)
        base, ours = (median(calls / cost.wall_s for cost in side) for side in zip(*pairs, strict=True))
        held = [plain.wall_s / mine.wall_s for plain, mine in pairs]
        bound = CALLS_PER_S * BARE_MS / 1e3
        return [
            Row(
                name,
                f"bare {base:.0f}, ours {ours:.0f} calls/s",
                f"{median(held):.2f}",
                held,
                bound,
                least=True,
            )
        ]

    async def tokens(self, bench: Bench) -> list[Row]:
        """Many long streams at a time: what a token event costs beyond the bare pass-through."""
        session, events, pairs = bench.open("streams"), STREAMS * TOKENS, []
        for _ in range(min(2, self._repeats)):
            pairs.append(await bench.pair([(session.secret(), small(True))] * STREAMS, STREAMS))
        await bench.close(session, "streams")
        base, ours = (median(cost.cpu_s for cost in side) / events * 1e6 for side in zip(*pairs, strict=True))
        held = [(mine.cpu_s - plain.cpu_s) / events * 1e6 for plain, mine in pairs]
        figure = f"bare {base:.1f}, ours {ours:.1f} us CPU"
        return [Row(f"a token event ({STREAMS} streams), us", figure, f"{ours / base:.2f}", held, TOKEN_US)]

    async def long(self) -> list[Row]:
        """One long conversation, again until the median is steady: its last turns against its first."""
        first: list[float] = []
        last: list[float] = []
        sizes: list[tuple[int, int]] = []
        until = time.monotonic() + LONG_S
        while len(first) < LONG_ROUNDS or (time.monotonic() < until and not _steady(first, last)):
            ends = await self._conversation(f"long-{len(first)}", sizes)
            first.append(ends[0])
            last.append(ends[1])
        held = [median(last) / median(first)]
        figure = f"+{median(first):.3f}, +{median(last):.3f} ms CPU"
        rounds = [mine / before for before, mine in zip(first, last, strict=True) if before > 0]
        name = f"{TURNS} turns, last {WINDOW} to first"
        rows = [Row(name, figure, "", held, 1.5)]
        print(f"{'':4}in {len(first)} rounds: {', '.join(f'{ratio:.2f}' for ratio in rounds)}")
        for what, half, whole in zip(("trace", "exchanges"), *sizes[:2], strict=True):
            rows.append(
                Row(f"{what}, to twice the half", f"{half}, {whole} bytes", "", [whole / half / 2], 1.2)
            )
        return rows

    async def _conversation(self, name: str, sizes: list[tuple[int, int]]) -> tuple[float, float]:
        bodies, added = growing(), []
        session = self._bench.open(name)
        lines = [(session.secret(), body) for body in bodies]
        kept = self._bench.run / "exchanges" / f"{name}.zst"
        for part in (
            lines[:WINDOW],
            lines[WINDOW : TURNS // 2],
            lines[TURNS // 2 : -WINDOW],
            lines[-WINDOW:],
        ):
            if len(part) == WINDOW:
                base, ours = await self._bench.pair(part, 1)
                added.append((ours.cpu_s - base.cpu_s) / WINDOW * 1e3)
            else:
                await self._bench.ours(part, 1)
            if part[-1] in (lines[TURNS // 2 - 1], lines[-1]):
                sizes.append((stored(session), kept.stat().st_size))
        await self._bench.close(session, name)
        return added[0], added[1]

    def _first(self, name: str, pairs: Sequence[tuple[Cost, Cost]]) -> Row:
        base, ours = (median(cost.first_s for cost in side) * 1e3 for side in zip(*pairs, strict=True))
        held = [(mine.first_s - plain.first_s) * 1e3 for plain, mine in pairs]
        return Row(
            name, f"bare {base:.2f}, ours {ours:.2f} ms", f"{ours / base:.2f}", held, FIRST_MS * self._slower
        )

    async def _pairs(
        self, name: str, callers: int, sessions: int, calls: int, stream: bool
    ) -> list[tuple[Cost, Cost]]:
        """So many callers, spread over so many sessions, again and again."""
        found = []
        for repeat in range(self._repeats):
            seats = {
                name: self._bench.open(name) for name in (f"{name}-{repeat}-{n}" for n in range(sessions))
            }
            keys = [session.secret() for session in seats.values()]
            lines = [(keys[number % callers % sessions], small(stream)) for number in range(calls)]
            found.append(await self._bench.pair(lines, callers))
            for each, session in seats.items():
                await self._bench.close(session, each)
        return found


def _steady(first: Sequence[float], last: Sequence[float]) -> bool:
    """Whether the last round has moved the medians by little."""
    return all(abs(median(part) / median(part[:-1]) - 1) <= STEADY for part in (first, last))


async def main(calls: int, repeats: int) -> int:
    print(f"{'':32}{'':34}{'to bare':>9}{'held':>9}  {'bound':>8}  {'spread':>14}")
    with tempfile.TemporaryDirectory() as folder, instant(3) as few, instant(TOKENS) as many:
        async with bare(few) as plain, bare(many) as plain_long, Proxy() as proxy:
            rows = Rows(Bench(proxy, plain, few, Path(folder)), calls, repeats)
            met = [row.show() for row in await rows.small_call()]
            met += [row.show() for row in await rows.stream()]
            met += [row.show() for row in await rows.rate("32 callers, one session", 32, 1)]
            met += [row.show() for row in await rows.rate(f"{SESSIONS} sessions", SESSIONS, SESSIONS)]
            met += [row.show() for row in await rows.long()]
            long = Bench(proxy, plain_long, many, Path(folder) / "long")
            met += [row.show() for row in await rows.tokens(long)]
    return 0 if all(met) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    sys.exit(asyncio.run(main(options.calls, options.repeats)))
