"""How a run shows its progress: a few lines that redraw themselves in a terminal, plain lines anywhere else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hotswap.cli._say import count
from hotswap.columns import dollars, number
from hotswap.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PLAIN_STEPS = 10
"""Without a terminal, a line is printed at each tenth of the work ..."""
PLAIN_EVERY_S = 15.0
"""... and at least this often."""
POLL_S = 0.2


class Live:
    """Shows `progress` on `console` for as long as the block runs; an async context manager."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress = progress
        self._console = console
        self._shown: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Live:
        self._show()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._hide()

    @asynccontextmanager
    async def hidden(self) -> AsyncIterator[None]:
        """Take it off the screen while the block runs, so that a person can be asked something."""
        await self._hide()
        try:
            yield
        finally:
            self._show()

    def _show(self) -> None:
        show = _redraw if self._console.is_terminal and not self._console.is_dumb_terminal else _print_lines
        self._shown = asyncio.ensure_future(show(self._progress, self._console))

    async def _hide(self) -> None:
        if self._shown is not None:
            self._shown.cancel()
            await asyncio.gather(self._shown, return_exceptions=True)


async def _redraw(progress: Progress, console: Console) -> None:
    from hotswap.cli._picture import Picture

    with Picture(lambda width: _look(progress, width), console) as picture:
        while True:
            picture.draw()
            await asyncio.sleep(POLL_S)


async def _print_lines(progress: Progress, console: Console) -> None:
    step, last_s = -1, 0.0
    try:
        while True:
            now = _step(progress)
            late = now >= 0 and progress.elapsed_s - last_s >= PLAIN_EVERY_S
            if now > step or late:
                step, last_s = now, progress.elapsed_s
                console.print(plain_line(progress), soft_wrap=True)
            await asyncio.sleep(POLL_S)
    finally:
        if _step(progress) > step:
            console.print(plain_line(progress), soft_wrap=True)


def _step(progress: Progress) -> int:
    """Get how many tenths of the work are done; -1 before the first rollout has started."""
    return PLAIN_STEPS * progress.done // progress.planned if progress.began is not None else -1


def plain_line(progress: Progress) -> str:
    """Get the state of a run in one line of plain text."""
    return f"{progress.done}/{progress.planned} done, {', '.join(_facts(progress))}, {_pace(progress)}"


def _look(progress: Progress, width: int) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    if progress.began is None:  # what is fetched or started meanwhile is said in lines of its own
        return Group()
    count = f"{progress.done}/{progress.planned}"
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        ProgressBar(
            total=max(progress.planned, 1), completed=progress.done, width=max(4, min(40, width // 3))
        ),
        count,
        _pace(progress),
    )
    lines: list[RenderableType] = [
        bar,
        Text(
            " · ".join([*_facts(progress), f"{len(progress.running)} running"]),
            no_wrap=True,
            overflow="ellipsis",
        ),
    ]
    if progress.latest_fault:
        lines.append(
            Text(f"latest fault: {progress.latest_fault}", style="yellow", no_wrap=True, overflow="ellipsis")
        )
    return Group(*lines)


def _facts(progress: Progress) -> list[str]:
    facts = []
    if progress.mean_reward is not None:
        facts.append(f"mean reward {number(progress.mean_reward)}")
    errors = ", ".join(f"{count} {who}" for who, count in sorted(progress.errors.items()))
    facts.append(count(progress.errors.total(), "error") + (f" ({errors})" if errors else ""))
    if progress.retried:
        facts.append(f"{progress.retried} tried again")
    if progress.tokens:
        facts.append(
            f"{progress.tokens:,} tokens, {progress.output_tokens / max(progress.elapsed_s, 0.1):.0f} written a second"
        )
    if progress.cost_usd:
        facts.append(dollars(progress.cost_usd))
    return facts


def _pace(progress: Progress) -> str:
    left = progress.left_s
    return clock(progress.elapsed_s) + (
        f", about {clock(left)} left" if left and progress.done < progress.planned else ""
    )


def clock(seconds: float) -> str:
    """Get a duration as people read it: `8 s`, `1 min 05 s`, `2 h 03 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
