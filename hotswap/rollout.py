"""One rollout, start to trace: `(request, services) -> trace`.

    box -> the task's files -> the program is launched, and its model calls pass the proxy
        -> the program and all its children are ended -> scoring -> trace

The request is small; the services are a protocol. The scheduler in this process is one way to run many of them.
Each stage stands inside one `blame(...)`; a fault ends the rollout and is recorded, and never leaves this file.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import hotswap
from hotswap.contracts.environment import Environment
from hotswap.contracts.harness import Harness, Job
from hotswap.contracts.network import Network
from hotswap.contracts.runtime import Box, Command, File, Gate, Needs, Process, Result, Runtime
from hotswap.contracts.task import Task
from hotswap.egress import Egress
from hotswap.errors import ErrorRecord, Fault, blame
from hotswap.limits import Limits, WindDown
from hotswap.processes import carry_through
from hotswap.provision import Program
from hotswap.proxy.session import Session
from hotswap.scoring import Scores, apply, beside
from hotswap.trace import BoxRecord, CellRecord, LaunchRecord, TaskRecord, Timing, Trace
from hotswap.verdict import BROKEN_OFF, INTERRUPTED, Ending, Verdict, decide
from hotswap.vitals import vitals

REFUSED_GRACE_S = 10.0
"""A program that goes on after a refused model call is ended after this long."""
START_TURN_S = 10.0
"""A program that has made no model call after this long no longer keeps others from starting."""


@dataclass(frozen=True)
class Rollout:
    """One attempt of one cell at one task."""

    id: str
    run: str
    cell: str
    task: Task
    attempt: int


@dataclass(frozen=True)
class Lineup:
    """A cell made ready: its parts built and its program provisioned."""

    record: CellRecord
    harness: Harness
    runtime: Runtime
    program: Program
    limits: Limits


class Services(Protocol):
    """What a rollout needs of the process that it runs in."""

    gate: Gate
    """Where the proxy listens."""
    winding_down: WindDown
    """Begun when the run is to end early: programs are ended."""
    starting: asyncio.Semaphore
    """Turns to start a program."""

    def lineup(self, cell: str) -> Lineup: ...
    def session(self, rollout: Rollout) -> Session: ...
    async def score(self, rollout: Rollout, trace: Trace) -> Scores: ...
    def say(self, text: str) -> None:
        """Tell the person a line."""
        ...

    def keeps(self, trace: Trace) -> bool:
        """Whether the box of a rollout that came out like this is to be left for a look."""
        ...

    def keep_output(self, rollout: Rollout, name: str, content: bytes) -> None:
        """Keep what the program printed beside the trace."""
        ...


async def play(rollout: Rollout, services: Services) -> Trace:
    """Run one rollout and get its trace, whatever happens. A cancellation that is no person's is passed on."""
    lineup = services.lineup(rollout.cell)
    trace = _blank(rollout, lineup)
    session = services.session(rollout)
    verdict = None
    try:
        try:
            with blame("hotswap", "agent"):
                async with _box(rollout, lineup, services, trace) as box:
                    verdict = await _run_agent(_Stage(rollout, lineup, services, session, box, trace))
                    await _score(rollout, services, trace, verdict)
        finally:
            await carry_through(session.close())
    except Fault as fault:
        _record(trace, fault.record)
    except asyncio.CancelledError:
        if services.winding_down.reason != "interrupted":
            raise
        _break_off(trace, verdict)
    session.write(trace)
    trace.metrics = {**vitals(trace), **trace.metrics}
    return trace


@dataclass(frozen=True)
class _Stage:
    """What the steps of one rollout share."""

    rollout: Rollout
    lineup: Lineup
    services: Services
    session: Session
    box: Box
    trace: Trace


def _blank(rollout: Rollout, lineup: Lineup) -> Trace:
    return Trace(
        id=rollout.id,
        run=rollout.run,
        cell=replace(lineup.record),
        task=TaskRecord(rollout.task.id, rollout.task.hash, rollout.task.to_json()),
        attempt=rollout.attempt,
        timing=Timing(started=time.time()),
        versions={"hotswap": hotswap.__version__, "python": platform.python_version(), "image": None},
    )


@asynccontextmanager
async def _box(rollout: Rollout, lineup: Lineup, services: Services, trace: Trace) -> AsyncIterator[Box]:
    """A box with the task's files in it. A fault of the runtime in leaving it is noted beside what was scored."""
    needs = await _needs(rollout, lineup, services)
    began = time.monotonic()
    async with _way_out(needs.network) as egress:
        opened = lineup.runtime.box(replace(needs, egress=egress.accept if egress else None))
        with blame("runtime", "box"):
            box = await opened.__aenter__()
        trace.timing.box_s = time.monotonic() - began
        trace.versions["image"] = box.made.image
        trace.box = _box_record(box, needs.network, egress)
        try:
            with blame("runtime", "setup"):
                await box.put({path: File(_bytes(content)) for path, content in rollout.task.files.items()})
            trace.timing.setup_s = time.monotonic() - began - trace.timing.box_s
            yield box
        finally:
            if services.keeps(trace):
                _keep(box, rollout, services)
            try:
                with blame("runtime", "box"):
                    await opened.__aexit__(None, None, None)
            except Fault as fault:
                _record(trace, fault.record)


async def _needs(rollout: Rollout, lineup: Lineup, services: Services) -> Needs:
    """What a rollout needs of its box, made ready by the runtime."""
    environment = rollout.task.environment or Environment()
    with blame("runtime", "box"):
        await lineup.runtime.prepare(environment, services.say)
    return Needs(
        rollout=rollout.id,
        run=rollout.run,
        gate=services.gate,
        mounts=lineup.program.mounts,
        environment=environment,
        network=lineup.runtime.policy(environment),
    )


@asynccontextmanager
async def _way_out(network: Network) -> AsyncIterator[Egress | None]:
    """The way out of a box that may reach some hosts, closed with the rollout; null where there are none, or all."""
    if network.open or not network.hosts:
        yield None
        return
    egress = Egress(network)
    try:
        yield egress
    finally:
        await carry_through(egress.close())


def _box_record(box: Box, network: Network, egress: Egress | None) -> BoxRecord:
    made = box.made
    tried = egress.records if egress else []  # it grows: scoring functions see what was tried by then
    return BoxRecord(made.runtime, str(network), list(made.not_enforced), tried)


def _keep(box: Box, rollout: Rollout, services: Services) -> None:
    """Have the box left as it is, and say how it is entered and removed."""
    name = f"the box of {rollout.task.id}, attempt {rollout.attempt} of {rollout.cell},"
    kept = box.keep()
    if kept is None:
        services.say(f"{name} cannot be kept by this runtime")
    else:
        services.say(f"{name} was kept\n  to enter it: {kept.enter}\n  to remove it: {kept.remove}")


async def _run_agent(stage: _Stage) -> Verdict:
    """Launch the program, watch it to its end, end all that it started, and say how it ended."""
    began = time.monotonic()
    job = _job(stage)
    with blame("harness", "agent"):
        launch = stage.lineup.harness.launch(job)
    with blame("runtime", "setup"):
        await stage.box.put({f"{stage.box.home}/{path}": File(data) for path, data in launch.files.items()})
    command = Command(argv=launch.argv, env=launch.env, stdin=launch.stdin, timeout_s=job.deadline_s)
    with blame("runtime", "agent"):
        result = await _watch(stage, command)
        await stage.box.end_processes()
    stage.trace.timing.agent_s = time.monotonic() - began
    await stage.session.close()
    return _conclude(stage, result)


def _job(stage: _Stage) -> Job:
    task, box = stage.rollout.task, stage.box
    return Job(
        prompt=task.prompt,
        endpoint=stage.session.endpoint(box.url),
        command=tuple(_locate(box, stage.lineup.program, word) for word in stage.lineup.program.argv),
        workdir=box.workdir,
        home=box.home,
        system=task.system,
        context=task.context,
        deadline_s=stage.lineup.limits.seconds,
    )


def _locate(box: Box, program: Program, word: str) -> str:
    """Get a word of the program's argv as it reads in the box: a path below a mount is found elsewhere there."""
    path = Path(word)
    inside = path.is_absolute() and any(path.is_relative_to(mount) for mount in program.mounts)
    return box.locate(path) if inside else word


async def _watch(stage: _Stage, command: Command) -> Result:
    """Wait for the program's end; end it where it goes on after a refusal, or when the run's time is over."""
    process = await _start(stage, command)
    watch = asyncio.ensure_future(_end_when_over(stage, process))
    try:
        return await process.wait()
    except asyncio.CancelledError:
        await process.end()
        raise
    finally:
        watch.cancel()


async def _start(stage: _Stage, command: Command) -> Process:
    """Start the program when it is its turn. A turn lasts until the program has shown that it is up: programs that
    start together would starve the proxy, and each other."""
    over = stage.services.winding_down
    async with stage.services.starting:
        if over.reason is not None:
            raise Fault("user", "agent", over.reason, "the run ended before the program was started")
        stage.session.begin()
        process = await stage.box.start(command)
        await _first(START_TURN_S, stage.session.called.wait(), process.wait(), over.event.wait())
        return process


async def _end_when_over(stage: _Stage, process: Process) -> None:
    over = stage.services.winding_down.event
    await _first(None, stage.session.refused.wait(), over.wait())
    if not over.is_set():
        await _first(REFUSED_GRACE_S, over.wait())
    await process.end()


async def _first(timeout_s: float | None, *waits: Coroutine[Any, Any, object]) -> None:
    """Wait until the first of them is done, or the time is over; the others are given up."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _conclude(stage: _Stage, result: Result) -> Verdict:
    trace, session = stage.trace, stage.session
    for name, output in (("stdout", result.stdout), ("stderr", result.stderr)):
        if output.size:
            stage.services.keep_output(stage.rollout, name, bytes(output))
    with blame("harness", "agent"):
        finish = stage.lineup.harness.conclude(result)
    session.write(trace)
    trace.launches.append(LaunchRecord("main", result.exit, result.signal, finish.session))
    said = next((node for node in reversed(trace.main) if node.sampled), None)
    trace.answer = finish.answer if finish.answer is not None or said is None else said.text
    stop = session.stop or (stage.services.winding_down.reason if result.ended_by == "us" else None)
    verdict = decide(Ending(result, finish, stop, stage.lineup.limits.seconds, session.last_error), trace)
    trace.stop = verdict.stop
    trace.error = verdict.error
    return verdict


async def _score(rollout: Rollout, services: Services, trace: Trace, verdict: Verdict) -> None:
    if not verdict.scorable:
        return
    began = time.monotonic()
    trace.metrics = vitals(trace)
    with blame("scorer", "scoring"):
        apply(await services.score(rollout, trace), trace)
    trace.timing.scoring_s = time.monotonic() - began


def _break_off(trace: Trace, verdict: Verdict | None) -> None:
    """Note that the person stopped the rollout; what was decided by then stays. The cancellation ends here."""
    if (task := asyncio.current_task()) is not None:
        task.uncancel()
    if verdict is None:
        _record(trace, INTERRUPTED)
    elif verdict.scorable and trace.outcome != "scored":
        _record(trace, BROKEN_OFF)


def _record(trace: Trace, error: ErrorRecord) -> None:
    """Note an error; the first one stays, since it is the cause of the others. That the user ended the rollout comes
    before what was noted beside a score, such as a time limit: there is none because of that."""
    if error.blame == "user":
        trace.stop = error.type
        trace.error = beside(error, trace.error) if trace.error else error
    elif trace.error is None:
        trace.error = error


def _bytes(content: bytes | str) -> bytes:
    return content if isinstance(content, bytes) else content.encode()
