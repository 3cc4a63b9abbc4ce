"""Play a run for a person: say what runs, show progress, print the tables, pick the exit code."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from shlex import quote
from typing import TYPE_CHECKING

from hotswap.cli._ask import ask
from hotswap.cli._interrupt import INTERRUPTED, Interrupts
from hotswap.cli._live import Live, clock
from hotswap.cli._runs import runs_folder
from hotswap.cli._say import count, program, progress_console, result_console, tell, visible
from hotswap.cli._tables import render
from hotswap.columns import dollars, misbehaviour
from hotswap.planned import PlannedRun, planned
from hotswap.progress import Progress
from hotswap.run import Report, Watch, execute
from hotswap.store import LATEST

if TYPE_CHECKING:
    from rich.console import Console

    from hotswap.cli._flags import Line
    from hotswap.settings import Resolved

COMPLETE, INCOMPLETE = 0, 3


def play(resolved: Resolved, line: Line) -> int:
    """Play a run to its end and get the exit code. Raises UsageError where it cannot work."""
    console = progress_console()
    watch = Watch(say=lambda text: _say(console, text), pilot=line.pilot)
    with Interrupts(watch.winding_down, watch.say) as interrupts:
        try:
            report = asyncio.run(_play(resolved, line, console, watch, interrupts))
        except asyncio.CancelledError:  # no interrupt cancels what comes after the rollouts
            _say(console, "interrupted before the first rollout; nothing was written")
            return INTERRUPTED
        if line.json:
            tell(json.dumps(report.summary.to_json(), indent=2, allow_nan=False))
        else:
            render(report.summary, result_console(), _show_command(report))
            _say(console, f"run directory: {report.path}")
        return _exit_code(report, resolved, console)


async def _play(
    resolved: Resolved, line: Line, console: Console, watch: Watch, interrupts: Interrupts
) -> Report:
    live = Live(watch.progress, console)

    async def approve(progress: Progress) -> bool:
        async with live.hidden():
            return await _approve(progress, line.yes, console)

    watch.approve = approve
    with interrupts.ending_the_run():
        async with planned(resolved, os.environ, watch.say) as run:
            watch.say(headline(run))
            async with live:
                return await execute(run, watch, [*program().split(), *sys.argv[1:]])


def headline(run: PlannedRun) -> str:
    """Get the first line of a run: which model, harness and runtime play how much, and whether calls are spoilt."""
    attempts = run.resolved.settings.attempts
    tasks = count(sum(len(tasks) for tasks in run.tasks.values()), "task")
    many = f", {attempts} attempts each" if attempts > 1 else ""
    cells = f", {len(run.cells)} cells" if len(run.cells) > 1 else ""
    chaos = run.resolved.settings.chaos
    spoilt = f". {misbehaviour(chaos)}" if chaos else ""
    return f"{run.title} ({tasks}{many}{cells}){spoilt}"


async def _approve(progress: Progress, yes: bool, console: Console) -> bool:
    """Project from a pilot what the rest will take, and ask whether to go on."""
    left = progress.planned - progress.done
    share = left / max(progress.done, 1)
    cost = "of unknown cost" if progress.unknown_costs else dollars(progress.cost_usd * share)
    said = f"pilot: {progress.done} done in {clock(progress.elapsed_s)}; {left} more would take about "
    _say(console, f"{said}{clock(progress.elapsed_s * share)}, {progress.tokens * share:,.0f} tokens, {cost}")
    if yes:
        return True
    if not sys.stdin.isatty() or not console.is_terminal:
        _say(console, "no terminal to ask in: stopped after the pilot; --yes goes on")
        return False
    while True:
        answer = (await ask("Go on? [y/N] ", console)).strip().lower()
        if answer in ("y", "yes", "n", "no", ""):
            return answer in ("y", "yes")


def _exit_code(report: Report, resolved: Resolved, console: Console) -> int:
    summary = report.summary
    if report.stopped == "interrupted":
        return INTERRUPTED
    if report.stopped is not None:
        _say(console, f"incomplete: {_WHY.get(report.stopped, report.stopped)}")
        return INCOMPLETE
    allowed = resolved.settings.errors_allowed(summary.planned or 0)
    if summary.errors > allowed:
        _say(
            console,
            f"incomplete: {count(summary.errors, 'rollout')} without a score; allow_errors is {allowed}",
        )
        return INCOMPLETE
    return COMPLETE


_WHY = {"budget": "the run's budget is spent", "pilot": "stopped after the pilot"}


def _show_command(report: Report) -> str:
    """The command that shows this run: the newest one of the folder that is looked into is shown by default."""
    looked_into = (runs_folder(None) / LATEST).resolve() == report.path.resolve()
    return f"{program()} show" if looked_into else f"{program()} show --run {quote(str(report.path))}"


def _say(console: Console, text: str) -> None:
    with suppress(OSError):  # no run is given up because nobody reads of its progress
        console.print(visible(text), soft_wrap=True)
