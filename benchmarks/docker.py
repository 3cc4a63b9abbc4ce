"""What a container costs: rollouts of one command each, against the bare `docker run --rm` of the same command.

Of the same engine, image and command, one after the other: at most 1.5 times the wall time, and at most one CPU second
of ours for each. Then 50 boxes, 8 at a time, all with a network: none may be refused one.

    uv run --group dev python benchmarks/docker.py IMAGE
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from _measure import table

from hotswap.contracts.environment import Environment
from hotswap.contracts.runtime import Command, Gate, Needs
from hotswap.runtimes.docker import Docker

RATIO, CPU_S = 1.5, 1.0
ONE_BY_ONE, MANY, AT_ONCE = 9, 50, 8
COMMAND = ("sh", "-c", "echo done")


def main() -> int:
    sys.path.remove(
        str(Path(__file__).resolve().parent)
    )  # where `docker` would be this file, and not the SDK
    image = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("HOTSWAP_TEST_IMAGE", Docker().image)
    return asyncio.run(compare(Docker(image=image)))


async def compare(runtime: Docker) -> int:
    runtime.check()
    await runtime.prepare(Environment(), print)
    await box(runtime)
    bare, ours, cpu = [], [], []
    for _ in range(ONE_BY_ONE):  # in turns, so that what else this machine does falls on both alike
        bare.append(await asyncio.to_thread(bare_run, runtime.image))
        before, began = cpu_s(), time.monotonic()
        await box(runtime)
        ours.append(time.monotonic() - began)
        cpu.append(cpu_s() - before)
    began, gate = time.monotonic(), asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with gate:
            await box(runtime)

    await asyncio.gather(*(one() for _ in range(MANY)))
    many_s = time.monotonic() - began
    ratio, most = statistics.median(ours) / statistics.median(bare), statistics.median(cpu)
    rows = [
        ("docker run --rm", f"{statistics.median(bare):.2f} s"),
        ("a box", f"{statistics.median(ours):.2f} s, {ratio:.2f} times (at most {RATIO})"),
        ("CPU of ours", f"{most:.3f} s (at most {CPU_S:g})"),
        (f"{MANY} boxes, {AT_ONCE} at a time", f"{many_s:.1f} s"),
    ]
    table("one command in a container", rows)
    return 0 if ratio <= RATIO and most <= CPU_S else 1


def bare_run(image: str) -> float:
    began = time.monotonic()
    subprocess.run(["docker", "run", "--rm", image, *COMMAND], check=True, capture_output=True)
    return time.monotonic() - began


async def box(runtime: Docker) -> None:
    environment = Environment()
    gate, network = Gate("127.0.0.1", 1, accept), runtime.policy(environment)
    async with runtime.box(Needs(rollout="benchmark", gate=gate, network=network)) as made:
        result = await made.run(Command(argv=COMMAND))
        assert bytes(result.stdout) == b"done\n"
        await made.end_processes()


async def accept(listener: socket.socket) -> asyncio.AbstractServer:
    return await asyncio.start_server(lambda _reader, writer: writer.close(), sock=listener)


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
