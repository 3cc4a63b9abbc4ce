"""`eval show`: what happened in a rollout, for reading. The latest run, unless another is named."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotswap.cli._runs import misbehaviour_in, runs_folder
from hotswap.cli._say import count, program, result_console, visible
from hotswap.errors import UsageError
from hotswap.store import LATEST, RunDirectory, locate

if TYPE_CHECKING:
    from hotswap.cli._trace import TraceView
    from hotswap.result import Result

SHOWN = 5
"""Rollouts whose traces are printed, where no ids are given."""
LISTED = 40
"""Further ones that have a line each."""


def show(
    rollouts: Annotated[
        list[str] | None,
        typer.Argument(metavar="ROLLOUT", help="Ids, or the beginning or the end of one, or a task's id."),
    ] = None,
    run: Annotated[
        str, typer.Option("--run", help="A run: its path, its name, or the beginning of it.")
    ] = LATEST,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only errors, then what has a reward below 1.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Leave nothing out.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the traces as JSON lines, and nothing else.")
    ] = False,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="The folder of the runs.", show_default="runs")
    ] = None,
) -> None:
    """Show what happened in rollouts: score and reasons, error and blame, the conversation, the logs."""
    from hotswap.cli._trace import TraceView

    _refuse_recording(run)
    directory = RunDirectory.open(locate(runs_folder(runs), run))
    chosen = _choose(directory, rollouts or [], failed)
    if as_json:
        _print_json(directory, chosen)
        return
    view = TraceView(result_console(), full)
    shown = len(chosen) if rollouts or full else SHOWN
    _print(directory, chosen, shown, view)
    again = _again(run, failed, runs)
    for line in _spoilt(directory):
        view.console.print(line, soft_wrap=True)
    for line in _closing(directory.name, chosen, len(chosen) - shown, view.shortened, again):
        view.console.print(line, soft_wrap=True)


def _refuse_recording(run: str) -> None:
    """Say of a file that `record save` made what it is, and how to look into it."""
    path = Path(run).expanduser()
    if not path.is_file() or path.name == LATEST:
        return
    from hotswap.exchanges.cassette import open_recording

    try:
        open_recording(run, path.parent)
    except UsageError:  # some other file: what is no run is refused as any other name
        return
    look = f"what is in it: {program()} record list {run}"
    raise UsageError(f"{run} is a recording, and has no traces to show; {look}. To play it: -m replay:{run}")


def _choose(directory: RunDirectory, parts: Sequence[str], failed: bool) -> list[Result]:
    """The results that were asked for. Raises UsageError for an id that is none."""
    results = list(directory.results())
    if not results:
        raise UsageError(f"run {directory.name} has no finished rollout yet")
    if parts:
        results = list(
            {result.id: result for part in parts for result in _matching(directory, results, part)}.values()
        )
    if not failed:
        return results
    errors = [result for result in results if result.reward is None]
    return errors + [result for result in results if result.reward is not None and result.reward < 1]


def _matching(directory: RunDirectory, results: Sequence[Result], part: str) -> list[Result]:
    found = [result for result in results if result.is_called(part)]
    found = found or [result for result in results if result.task == part]
    if not found:
        raise UsageError(f"run {directory.name} has no rollout {part!r}. To list them: {program()} show")
    return found


def _print(directory: RunDirectory, chosen: Sequence[Result], shown: int, view: TraceView) -> None:
    for trace in directory.traces(chosen[:shown]):
        view.show(trace, directory.logs(trace.id))
        view.console.print()
    for result in chosen[shown : shown + LISTED]:
        view.console.print(_one_line(result), soft_wrap=True)


def _again(run: str, failed: bool, runs: Path | None) -> str:
    """This command with the flags that it was given."""
    given = ["--run", run] if run != LATEST else []
    given += ["--runs", str(runs)] if runs is not None else []
    given += ["--failed"] if failed else []
    return f"{program()} {shlex.join(['show', *given])}"


def _closing(run: str, chosen: Sequence[Result], left: int, shortened: bool, again: str) -> Iterator[str]:
    """What is not there, and the command that shows it; `again` is this one."""
    if not chosen:
        yield f"Run {run}: no rollout failed."
    if left > LISTED:
        yield f"... and {left - LISTED} more."
    if left > 0:
        yield f"{count(left, 'more rollout')} in run {run}. One of them: {again} ID. All: {again} --full"
    elif shortened:
        yield f"Long texts were shortened. In full: {again} ID --full"


def _spoilt(run: RunDirectory) -> Iterator[str]:
    if spoilt := misbehaviour_in(run, list(run.results())):
        yield visible(f"{spoilt}.")


def _one_line(result: Result) -> str:
    from hotswap.columns import number

    came_to = number(result.reward)
    if result.reward is None:
        came_to = f"{result.error.blame}: {result.error.message}" if result.error else "error"
    text = f"{result.id}  {result.cell}  {result.task}  attempt {result.attempt}  {came_to}"
    return visible(text).replace("\n", " ")


def _print_json(directory: RunDirectory, chosen: Sequence[Result]) -> None:
    for trace in directory.traces(chosen):
        sys.stdout.buffer.write(trace.to_line())
    sys.stdout.flush()
