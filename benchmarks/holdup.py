"""What one client does to others: the longest time between two answers to a program that makes small calls.

    uv run --group dev python benchmarks/holdup.py [CASE ...]

The proxy runs here, records as in a run, and serves two sessions: one of a program that makes one small call after the
other, and one of a client that sends a packed gibibyte, bodies of 250 MiB, 400,000 messages, or no HTTP at all.
Programs and provider are processes of their own. `alone` is the same program beside nobody.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from hotswap.contracts.model import Upstream
from hotswap.exchanges.recorder import About
from hotswap.exchanges.recorders import Recorders
from hotswap.masking import Masker
from hotswap.proxy.server import Proxy
from hotswap.proxy.session import Session, SessionRequest

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from _kit import apart

ALONE_S = 2.0


class Bench:
    """A proxy with sessions whose exchanges are recorded."""

    def __init__(self, proxy: Proxy, url: str, run: Path) -> None:
        self.port = proxy.gate.port
        self._proxy = proxy
        self._upstream = Upstream(url=url, model="m")
        self._recorders = Recorders(run, Masker({"PROVIDER_KEY": "sk-of-the-provider-0001"}), on=True)

    def open(self, name: str) -> Session:
        record = self._recorders.open(About(name, "cell", "bench", "none", "none", "m", "m", "task", 0))
        return self._proxy.open(SessionRequest(name, self._upstream, record=record))

    async def show(self, case: str) -> None:
        good, bad = self.open(f"good-{case}"), self.open(f"bad-{case}")
        with apart.witness(self.port, good.secret()) as seen:
            started = time.monotonic()
            await asyncio.sleep(ALONE_S)
            begun = time.monotonic()
            status, _ = await asyncio.to_thread(apart.send, self.port, bad.secret(), case)
            ended = time.monotonic()
            await bad.close()
            await asyncio.sleep(ALONE_S)  # what is recorded behind the answer
            after = time.monotonic()
            times = await asyncio.to_thread(seen.times)
        await good.close()
        alone, beside = (
            apart.longest_gap(times, started, begun),
            apart.longest_gap(times, begun, after),
        )
        rate = sum(begun <= at <= after for at in times) / (after - begun)
        rate_alone = sum(started <= at <= begun for at in times) / (begun - started)
        print(
            f"{case:18}{ended - begun:8.2f}{status:8}{rate_alone:9.0f}{rate:9.0f}"
            f"{alone * 1e3:10.1f}{beside * 1e3:10.1f}",
            flush=True,
        )


async def main(cases: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, apart.provider() as url:
        async with Proxy() as proxy:
            bench = Bench(proxy, url, Path(folder))
            print(
                f"{'':18}{'s':>8}{'status':>8}{'alone/s':>9}{'beside/s':>9}{'alone ms':>10}{'beside ms':>10}"
            )
            for case in cases:
                await bench.show(case)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[[], *apart.CLIENTS], metavar="CASE", default=[])
    asyncio.run(main(parser.parse_args().cases or list(apart.CLIENTS)))
