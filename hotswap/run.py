"""A run, played: a planned run becomes a run directory with traces and tables.

Everything that is started here is ended here: the proxy, the model's server, boxes, programs. What is finished is on
disk before the next rollout begins, so a run that is ended in whatever way has lost nothing but what was in flight.
"""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import hotswap
from hotswap import elsewhere, models, provision
from hotswap.blobs import Blobs
from hotswap.capture import Keeper, Sidecar
from hotswap.contracts.model import Say, Upstream
from hotswap.contracts.runtime import Gate
from hotswap.errors import ErrorRecord, StoreError, UsageError
from hotswap.exchanges.recorder import About
from hotswap.exchanges.recorders import Recorders
from hotswap.ids import new_id, new_name
from hotswap.limits import Budget, WindDown
from hotswap.lines import cannot_write
from hotswap.masking import Masker, is_secret_name
from hotswap.metrics import Summary, tabulate
from hotswap.plan import rollouts
from hotswap.planned import PlannedCell, PlannedRun
from hotswap.processes import guard
from hotswap.progress import Progress
from hotswap.provision import Program
from hotswap.proxy.chaos import Chaos, parse_chaos
from hotswap.proxy.server import Proxy
from hotswap.proxy.session import Session, SessionRequest
from hotswap.proxy.upstream import CallPolicy
from hotswap.remarks import Remarks
from hotswap.replay import Answered, ReplayModel
from hotswap.replay.serving import Player
from hotswap.rollout import Lineup, Rollout, play
from hotswap.scheduler import Scheduler
from hotswap.scoring import Scores
from hotswap.store import RunDirectory, RunInfo, RunWriter, point_latest
from hotswap.trace import Node, Trace

FILES_A_ROLLOUT, FILES_AT_ALL = 10, 64
"""Open files: the pipes and the descriptor of a program, its connections and ours to the provider, its record."""

SAID_AFTER_S = 1.0
"""An interrupted run that still waits for scoring functions says so after this long."""


@dataclass
class Watch:
    """How a person follows a run, and ends it early."""

    say: Say = print
    progress: Progress = field(default_factory=Progress)
    winding_down: WindDown = field(default_factory=WindDown)
    pilot: int | None = None
    """Play this many tasks first, and go on only if `approve` says so."""
    approve: Callable[[Progress], Coroutine[Any, Any, bool]] | None = None
    """It is cancelled where the run is ended before there is an answer."""


@dataclass(frozen=True)
class Report:
    """What a run came to."""

    path: Path
    summary: Summary
    stopped: str | None
    """Why it ended before its work was done: `budget`, `interrupted`, `pilot`, or what could not be written."""


async def execute(run: PlannedRun, watch: Watch, command: Sequence[str] = ()) -> Report:
    """Play a planned run. Raises UsageError where it cannot begin; once it has begun, there is a report."""
    guard()
    _allow_many_files(run.resolved.settings.concurrency)
    watch.progress.planned = sum(run.planned.values())
    async with AsyncExitStack() as stack:
        chosen = {each.cell.model.text: each.model for each in run.cells}
        upstreams = await stack.enter_async_context(models.served(chosen, watch.say))
        for runtime in {id(each.runtime): each.runtime for each in run.cells}.values():
            await stack.enter_async_context(runtime.running(watch.say))
        lineups = {each.cell.name: await _line_up(each, run, watch.say) for each in run.cells}
        proxy = await stack.enter_async_context(Proxy())
        writer = stack.enter_context(_directory(run, upstreams, command))
        stage = Stage(run, watch, proxy, writer, lineups, upstreams)
        stack.callback(stage.recorders.close_all)
        stopped = await _played(stage, watch.winding_down)
        for line in (*stage.answered.lines(), *stage.remarks.at_the_end()):
            watch.say(line)
        summary = tabulate(writer.results(), run.planned, run.resolved.settings.chaos)
        try:
            writer.conclude(summary.files())
        except StoreError as error:
            stopped = stopped or str(error)
        return Report(writer.path, summary, stopped)


async def _played(stage: Stage, winding_down: WindDown) -> str | None:
    """Play all rollouts. Get why the run ended early, or null; cancelled by a person, it has ended early too."""
    winding_down.phase = "playing"
    try:
        return await stage.play_all()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if winding_down.reason is None or task is None:
            raise
        task.uncancel()
        return winding_down.reason
    finally:
        winding_down.phase = "concluding"


class Stage:
    """The services of every rollout of a run, in this process."""

    def __init__(
        self,
        run: PlannedRun,
        watch: Watch,
        proxy: Proxy,
        writer: RunWriter,
        lineups: Mapping[str, Lineup],
        upstreams: Mapping[str, Upstream],
    ) -> None:
        settings = run.resolved.settings
        self.gate: Gate = proxy.gate
        self.winding_down = watch.winding_down
        self.starting = asyncio.Semaphore(max(2, os.cpu_count() or 1))
        self._run = run
        self._watch = watch
        self._proxy = proxy
        self._writer = writer
        self._lineups = lineups
        self.recorders = Recorders(writer.path, writer.masker, settings.raw)
        self.answered = Answered()
        self._cells = {each.cell.name: each for each in run.cells}
        self._upstreams = upstreams
        calls = settings.calls
        self._calls = CallPolicy(calls.retries, calls.timeout_s, quiet_s=calls.quiet_s)
        self._blobs = Blobs(writer.path / "blobs", writer.masker.known)
        self._chaos = parse_chaos(settings.chaos) if settings.chaos else None
        budget = settings.budget
        self._secrets: dict[str, str] = {}
        """By rollout, while it is played: what its program was given as a key."""
        self.remarks = Remarks()
        self._cut_by_budget = 0
        """Rollouts that the budget stopped before they were done."""
        self._budget = Budget(budget.cost, budget.tokens, budget.seconds, budget.in_flight == "finish")

    def lineup(self, cell: str) -> Lineup:
        return self._lineups[cell]

    def session(self, rollout: Rollout) -> Session:
        each = self._cells[rollout.cell]
        request = SessionRequest(
            rollout=rollout.id,
            upstream=self._upstreams[each.cell.model.text],
            sampling=each.sampling,
            limits=self._run.limits,
            budget=self._budget,
            calls=self._calls,
            chaos=self._misbehave(rollout),
            capture=self._keeper(rollout),
            record=self.recorders.open(self._about(rollout)),
            source=self._player(rollout),
            blobs=self._blobs,
        )
        session = self._proxy.open(request)
        self.recorders.hide(rollout.id, session.secret())
        self._secrets[rollout.id] = session.secret()
        return session

    def _about(self, rollout: Rollout) -> About:
        """Say what is recorded of a rollout."""
        each = self._cells[rollout.cell]
        cell, upstream = each.record, self._upstreams[each.cell.model.text]
        settings = {kind: values for kind, values in each.cell.settings.items() if kind != "model"}
        return About(
            rollout=rollout.id,
            task=rollout.task.id,
            attempt=rollout.attempt,
            cell=cell.name,
            taskset=cell.taskset,
            harness=cell.harness,
            runtime=cell.runtime,
            model=cell.model,
            served=upstream.model,
            context=upstream.context,
            sampling=dict(each.sampling),
            settings=settings,
        )

    def _player(self, rollout: Rollout) -> Player | None:
        """Get what answers a rollout's calls in a provider's place; null where a provider does."""
        each = self._cells[rollout.cell]
        if not isinstance(each.model, ReplayModel):
            return None
        return each.model.player(each.record, rollout.task.id, rollout.attempt)

    def _keeper(self, rollout: Rollout) -> Keeper | None:
        """Begin to capture a rollout's tokens; what an earlier try left is overwritten."""
        if self._run.resolved.settings.capture is None:
            return None
        return Keeper(Sidecar(self._writer.tokens(rollout.id)))

    def _misbehave(self, rollout: Rollout) -> Chaos | None:
        """Get what is done to a rollout on purpose: the same each time for its task and attempt, in every cell."""
        if self._chaos is None:
            return None
        seed = self._run.resolved.settings.seed
        return Chaos(self._chaos, f"{seed}/{rollout.task.id}/{rollout.attempt}")

    async def score(self, rollout: Rollout, trace: Trace) -> Scores:
        taskset = self._cells[rollout.cell].cell.taskset
        return await self._run.tasksets[taskset.text].score(rollout.task, trace)

    def say(self, text: str) -> None:
        self._watch.say(text)

    def keeps(self, trace: Trace) -> bool:
        wanted = self._run.resolved.settings.keep
        failed = trace.outcome != "scored" or (trace.reward or 0.0) < 1
        return self.winding_down.reason is None and (wanted == "all" or (wanted == "failed" and failed))

    def keep_output(self, rollout: Rollout, name: str, content: bytes) -> None:
        path = self._writer.logs(rollout.id) / name
        with self._masked(rollout):
            masked = self._writer.masker.raw(content)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(masked)
        except OSError as error:
            raise StoreError(cannot_write(path, error)) from error

    async def play_all(self) -> str | None:
        """Play every rollout. Get why the run ended early, or null."""
        settings, watch = self._run.resolved.settings, self._watch
        scheduler = Scheduler(
            play=lambda rollout: play(rollout, self),
            started=self._started,
            tried=self._tried,
            finished=self._finished,
            concurrency=settings.concurrency,
            retries=settings.retries,
            budget=self._budget,
            winding_down=watch.winding_down,
        )
        stop = None
        end_after_s = None if self._budget.finish else settings.budget.seconds
        async with _ended_after(end_after_s, watch.winding_down), self._scoring_while_wanted():
            try:
                stop = await self._play_with_pilot(scheduler)
            except* StoreError as errors:
                stop = str(next(_leaves(errors)))
        return stop or self._why_ended_early()

    @asynccontextmanager
    async def _scoring_while_wanted(self) -> AsyncIterator[None]:
        """When a person interrupts the run, rollouts that wait to be scored are given up."""
        watch = asyncio.ensure_future(self._withdraw_when_interrupted())
        try:
            yield
        finally:
            watch.cancel()

    async def _withdraw_when_interrupted(self) -> None:
        await self.winding_down.interrupted.wait()
        for taskset in self._run.tasksets.values():
            taskset.withdraw()
        await asyncio.sleep(SAID_AFTER_S)
        running = sum(taskset.scorers for taskset in self._run.tasksets.values())
        if running:
            what = "1 scorer is running; Ctrl-C again gives it up"
            self._watch.say(
                what if running == 1 else f"{running} scorers are running; Ctrl-C again gives them up"
            )

    def _why_ended_early(self) -> str | None:
        """`interrupted`; `budget`, also where it only cut rollouts short; null where nothing was."""
        if self.winding_down.reason is not None:
            return self.winding_down.reason
        if self._watch.progress.done < self._watch.progress.planned:
            return self._budget.over()
        return "budget" if self._cut_by_budget else None

    async def _play_with_pilot(self, scheduler: Scheduler) -> str | None:
        everything = self._rollouts()
        if self._watch.pilot is None or self._watch.approve is None:
            await scheduler.run(everything)
            return None
        first, rest = self._split(everything, self._watch.pilot)
        await scheduler.run(iter(first))
        over = self.winding_down.reason or self._budget.over()
        if over or not rest:
            return None
        approved = await self._unless_over(self._watch.approve(self._watch.progress))
        if self.winding_down.reason is not None:
            return None
        if not approved:
            return "pilot"
        await scheduler.run(iter(rest))
        return None

    async def _unless_over(self, question: Coroutine[Any, Any, bool]) -> bool:
        """Await a person's answer; the end of the run is not kept waiting for it, and then it is no."""
        asked = asyncio.ensure_future(question)
        over = asyncio.ensure_future(self.winding_down.event.wait())
        try:
            await asyncio.wait((asked, over), return_when=asyncio.FIRST_COMPLETED)
            return asked.done() and asked.result()
        finally:
            over.cancel()
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    def _split(self, everything: Iterator[Rollout], tasks: int) -> tuple[list[Rollout], list[Rollout]]:
        """Get the first attempts at the first tasks of every taskset, and the rest."""
        pilots = {task.id for selected in self._run.tasks.values() for task in selected[:tasks]}
        first: list[Rollout] = []
        rest: list[Rollout] = []
        for rollout in everything:
            (first if rollout.attempt == 0 and rollout.task.id in pilots else rest).append(rollout)
        return first, rest

    def _rollouts(self) -> Iterator[Rollout]:
        plan = [each.cell for each in self._run.cells]
        for cell, task, attempt in rollouts(plan, self._run.tasks, self._run.resolved.settings.attempts):
            yield Rollout(new_id(), self._writer.name, cell.name, task, attempt)

    @contextmanager
    def _masked(self, rollout: Rollout) -> Iterator[None]:
        """Mask the rollout's secret in what is written meanwhile, beside the keys that are always masked."""
        secret = self._secrets.get(rollout.id, "")
        self._writer.masker.add("session", secret)
        try:
            yield
        finally:
            self._writer.masker.forget("session")

    def _started(self, rollout: Rollout) -> None:
        self._watch.progress.start(rollout)
        self._writer.journal({"event": "started", **_names(rollout)})

    def _mask(self, text: str) -> str:
        return self._writer.masker.text(text)[0]

    def _tried(self, rollout: Rollout, trace: Trace) -> None:
        with self._masked(rollout):
            self._watch.progress.retry(rollout, trace, self._mask)
        error = trace.error
        blame = {"blame": error.blame, "type": error.type} if error else None
        self._writer.journal(
            {"event": "tried", **_names(rollout), "error": blame, "cost_usd": trace.cost_usd}
        )

    def _finished(self, rollout: Rollout, trace: Trace) -> None:
        model = self._cells[rollout.cell].model
        if isinstance(model, ReplayModel):
            trace.metrics |= self.answered.count(model, trace)
        with self._masked(rollout):
            try:
                self._writer.append(trace)
            except (ValueError, RecursionError) as error:
                trace = _without_content(trace, error)
                self._writer.append(trace)
            self._watch.progress.finish(rollout, trace, self._mask)
        self.recorders.close(rollout.id)
        self._secrets.pop(rollout.id, None)
        self._cut_by_budget += trace.stop == "budget"
        for line in self.remarks.of(trace):
            self._watch.say(line)


def _without_content(trace: Trace, error: Exception) -> Trace:
    """Get a trace that can be written for one that cannot: an infinity in a message, a thousand levels in a tool.

    That it was played, its calls, what it used and cost, stays; what was said, and a score for it, does not.
    """
    record = ErrorRecord("hotswap", "finalize", "unwritable", f"the trace cannot be written as JSON: {error}")
    bare = replace(trace, outcome="error", reward=None, rewards={}, metrics={}, answer=None, error=record)
    messages = [
        Node(node.id, node.parent, node.role, sampled=node.sampled, call=node.call) for node in trace.messages
    ]
    calls = [replace(call, sampling={}, tools=None) for call in trace.calls]
    return replace(bare, messages=messages, tools={}, calls=calls, unknown={})


async def _line_up(each: PlannedCell, run: PlannedRun, say: Say) -> Lineup:
    install = each.harness.install()
    program = Program()
    if install.script:
        program = await provision.script(install.script, say, portable=each.runtime.portable)
    return Lineup(each.record, each.harness, each.runtime, program, run.limits)


def _directory(run: PlannedRun, upstreams: Mapping[str, Upstream], command: Sequence[str]) -> RunWriter:
    settings = run.resolved.settings
    name = new_name(run.resolved.chosen["taskset"][0].name)
    path = settings.output or settings.runs / name
    keys = {f"key of {model}": upstream.key for model, upstream in upstreams.items() if upstream.key}
    info = RunInfo(
        settings.output.name if settings.output else name, run.resolved.to_toml(), _info(run, command)
    )
    handed = {name: value for each in run.cells for name, value in each.runtime.handed().items()}
    named = {name: value for name, value in handed.items() if is_secret_name(name)}
    writer = RunDirectory.create(path, info, Masker({**run.resolved.secrets, **named, **keys}))
    if settings.output is None:
        point_latest(settings.runs, path)
    else:
        elsewhere.note(settings.runs, path)
    return writer


def _info(run: PlannedRun, command: Sequence[str]) -> dict[str, Any]:
    """What run.json says of a run."""
    return {
        "command": list(command),
        "cells": [
            {"name": each.cell.name, "planned": run.planned[each.cell.name], **each.cell.settings}
            for each in run.cells
        ],
        "tasks": {text: {task.id: task.hash for task in tasks} for text, tasks in run.tasks.items()},
        "attempts": run.resolved.settings.attempts,
        "chaos": run.resolved.settings.chaos,
        "versions": {
            "hotswap": hotswap.__version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        "git": _git_commit(),
    }


def _git_commit() -> str | None:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _names(rollout: Rollout) -> dict[str, Any]:
    return {"id": rollout.id, "cell": rollout.cell, "task": rollout.task.id, "attempt": rollout.attempt}


@asynccontextmanager
async def _ended_after(seconds: float | None, winding_down: WindDown) -> AsyncIterator[None]:
    timer = asyncio.get_running_loop().call_later(seconds, winding_down.begin, "budget") if seconds else None
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    return chain.from_iterable(
        _leaves(error) if isinstance(error, BaseExceptionGroup) else (error,) for error in group.exceptions
    )


def _allow_many_files(concurrency: int) -> None:
    """Raise the limit of open files as far as it goes. Raises UsageError where the rollouts would not have enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 16 if hard == resource.RLIM_INFINITY else min(hard, 1 << 16)
    if soft < wanted and sys.platform != "darwin":
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    needed = FILES_AT_ALL + FILES_A_ROLLOUT * concurrency
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = max(1, (soft - FILES_AT_ALL) // FILES_A_ROLLOUT)
        raise UsageError(
            f"concurrency = {concurrency} needs about {needed} open files, and this process may have {soft}: "
            f"--concurrency {most}, or a higher `ulimit -n`"
        )
