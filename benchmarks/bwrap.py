"""What a closed box costs: CPU of boxes with one command in each, by bubblewrap and by the local runtime.

A box of bubblewrap may take 30 CPU ms more than a local one, on a machine where a bare `python -c pass` takes 27: what
is compared is the ratio to that. All processes count, those in the box and this one.

    uv run --group dev python benchmarks/bwrap.py
"""

from __future__ import annotations

import asyncio
import resource
import socket
import sys

from _measure import measure, table

from hotswap.contracts.environment import Environment
from hotswap.contracts.runtime import Command, Gate, Needs, Runtime
from hotswap.runtimes.bwrap import Bwrap
from hotswap.runtimes.local import Local

BARE_S, BOUND_S = 0.027, 0.030
BOXES, ROUNDS = 20, 3


def main() -> int:
    bare_s = measure([sys.executable, "-c", "pass"], repeat=20).cpu_s / 20
    runtimes: tuple[Runtime, ...] = (Local(), Bwrap())
    runtimes[1].check()
    # The rounds take turns, so that what else this machine does falls on both alike; the median of each counts.
    rounds = [[asyncio.run(boxes(runtime)) for runtime in runtimes] for _ in range(ROUNDS)]
    local_s, bwrap_s = (sorted(costs)[ROUNDS // 2] for costs in zip(*rounds, strict=True))
    ratio, limit = (bwrap_s - local_s) / bare_s, BOUND_S / BARE_S
    more = f"{1000 * (bwrap_s - local_s):.0f} CPU ms, {ratio:.2f} bare starts (at most {limit:.2f})"
    rows = [
        ("python -c pass", f"{1000 * bare_s:.0f} CPU ms"),
        ("a local box", f"{1000 * local_s:.1f} CPU ms"),
        ("a box of bubblewrap", f"{1000 * bwrap_s:.1f} CPU ms"),
        ("more", more),
    ]
    table("boxes with one command", rows)
    return 0 if ratio <= limit else 1


async def boxes(runtime: Runtime) -> float:
    """CPU seconds that a box takes, from its making to its removal."""
    await _box(runtime)  # what is done once a run is not counted
    before = _cpu_s()
    for _ in range(BOXES):
        await _box(runtime)
    return (_cpu_s() - before) / BOXES


async def _box(runtime: Runtime) -> None:
    needs = Needs(rollout="r1", gate=Gate("127.0.0.1", 1, _accept), network=runtime.policy(Environment()))
    async with runtime.box(needs) as box:
        result = await box.run(Command(argv=("sh", "-c", "echo done")))
        assert bytes(result.stdout) == b"done\n"
        await box.end_processes()


async def _accept(listener: socket.socket) -> asyncio.AbstractServer:
    return await asyncio.start_server(lambda _reader, writer: writer.close(), sock=listener)


def _cpu_s() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    sys.exit(main())
