"""A taskset's own code runs in a worker: real processes, and small files that misbehave in every way."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from _kit import traces

from hotswap import Task, Trace, registry
from hotswap.errors import Fault, UsageError
from hotswap.messages import ToolCall
from hotswap.registry import Entry
from hotswap.scoring import Scores
from hotswap.trace import Node
from hotswap.worker.worker import OpenTaskset, Worker

HEAD = """
import asyncio, ctypes, itertools, math, os, pathlib, signal, sys, time
from hotswap import Score, Task, Taskset, Trace, metric, reward

class Quiz(Taskset):
    def load(self):
        yield Task(id="fr", prompt="Capital of France?", answer="Paris")

    @metric
    def pid(self):
        return os.getpid()

"""
RIGHT = """
@reward
def right(self, task, trace):
    return Score(task.answer in trace.answer, note="named", extracted=trace.answer, expected=task.answer)
"""
TASK = Task(id="fr", prompt="Capital of France?", answer="Paris")
NO_GIL_HANG = "sum(range(10**18))  # in C, without looking for signals"


def write(folder: Path, *bodies: str, head: str = HEAD) -> Entry:
    """Write a taskset's file: the bodies go on where the class of `head` stops."""
    file = folder / "quiz.py"
    file.write_text(head + "\n".join(textwrap.indent(textwrap.dedent(body), "    ") for body in bodies))
    return registry.find("taskset", str(file))


@asynccontextmanager
async def opened(folder: Path, *bodies: str, **settings: Any) -> AsyncIterator[OpenTaskset]:
    async with Worker(log=folder / "worker.log") as worker:
        yield await worker.open(write(folder, *bodies), settings)


def score(folder: Path, *bodies: str, trace: Trace | None = None) -> Scores:
    """Score one rollout on a taskset whose class has these bodies."""

    async def one() -> Scores:
        async with opened(folder, *bodies) as taskset:
            return await taskset.score(TASK, trace or traces.scored())

    return asyncio.run(one())


def score_many(folder: Path, *bodies: str, count: int) -> list[Scores]:
    """Score several rollouts at once."""

    async def many() -> list[Scores]:
        async with opened(folder, *bodies) as taskset:
            return await asyncio.gather(*(taskset.score(TASK, traces.scored()) for _ in range(count)))

    return asyncio.run(many())


def load(folder: Path, *bodies: str, limit: int | None = None, **settings: Any) -> list[Task]:
    """Load the tasks of a taskset whose class has these bodies."""

    async def all_of_them() -> list[Task]:
        async with opened(folder, *bodies, **settings) as taskset:
            return [task async for task in taskset.tasks(limit)]

    return asyncio.run(all_of_them())


def refusal(folder: Path, *bodies: str, **settings: Any) -> UsageError:
    """Get why the tasks of such a taskset cannot be loaded."""
    with pytest.raises(UsageError) as caught:
        load(folder, *bodies, **settings)
    return caught.value


def values(scores: Scores) -> dict[str, float | None]:
    return {name: record.value for name, record in scores.rewards.items()}


# -- scoring


def test_a_rollout_is_scored_with_every_detail(tmp_path: Path) -> None:
    scores = score(tmp_path, RIGHT)
    record = scores.rewards["right"]
    assert (record.value, record.note, record.extracted, record.expected) == (
        1.0,
        "named",
        "It is Paris.",
        "Paris",
    )
    assert scores.error is None
    assert scores.metrics["pid"] not in (None, os.getpid())


def test_all_functions_see_the_same_task_and_trace(tmp_path: Path) -> None:
    body = """
        @reward
        async def first(self, trace, state):
            state["seen"] = [node.text for node in trace.main]
            return len(trace.main)

        @reward(weight=0.5)
        def second(self, task, state):
            return {"seen": len(state["seen"]), "hash": task.hash == Task(**task.to_json()).hash}
    """
    assert values(score(tmp_path, body)) == {"first": 3.0, "seen": 3.0, "hash": 1.0}


@pytest.mark.parametrize("outcome", ["None", "math.nan", "'yes'", "1 / 0", "sys.exit(0)"])
def test_a_function_that_fails_does_not_stop_the_others(tmp_path: Path, outcome: str) -> None:
    body = f"""
        @reward
        def bad(self):
            return {outcome}
    """
    scores = score(tmp_path, body, RIGHT)
    assert values(scores) == {"bad": None, "right": 1.0}
    assert scores.error is not None
    assert scores.error.blame == "scorer"
    assert "bad" in scores.error.message
    assert "'fr'" in scores.error.message


def test_a_traceback_shows_the_line_of_the_taskset(tmp_path: Path) -> None:
    scores = score(tmp_path, "@reward\ndef bad(self):\n    return {}['gold']  # here\n")
    assert scores.error is not None
    assert "['gold']  # here" in (scores.error.detail or "")
    assert "worker/child.py" not in (scores.error.detail or "")


def test_odd_text_and_nan_in_a_trace_reach_the_function(tmp_path: Path) -> None:
    trace = traces.scored(answer="\ud800 Paris \u2028")
    trace.messages.append(Node(3, 2, "assistant", [{"x": float("nan")}], [ToolCall("c", "bash", "{")]))
    assert values(score(tmp_path, RIGHT, trace=trace)) == {"right": 1.0}


def test_fifty_rollouts_are_scored_at_once(tmp_path: Path) -> None:
    body = """
        together = 0

        @reward
        async def waits(self):
            Quiz.together += 1
            while Quiz.together < 50:
                await asyncio.sleep(0.001)
            return 1
    """
    scores = score_many(tmp_path, body, RIGHT, count=50)
    assert [values(one) for one in scores] == [{"waits": 1.0, "right": 1.0}] * 50


def test_functions_that_use_signals_work(tmp_path: Path) -> None:
    body = """
        @reward
        def alarmed(self):
            def ring(number, frame):
                raise InterruptedError
            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                while True:
                    pass
            except InterruptedError:
                return 1.0
    """
    assert values(score(tmp_path, body)) == {"alarmed": 1.0}


def test_an_alarm_that_was_left_set_does_not_ring_in_the_next_function(tmp_path: Path) -> None:
    body = """
        @reward
        def careless(self):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            return 1.0

        @reward
        def patient(self):
            time.sleep(0.3)
            return 1.0
    """
    assert score(tmp_path, body).error is None


def test_what_a_scorer_prints_goes_to_the_log_and_not_into_the_channel(tmp_path: Path) -> None:
    body = """
        @reward
        def loud(self):
            print("heard" * 100_000)
            os.write(1, b"raw out\\n")
            os.write(2, b"raw err\\n")
            os.system("echo from a child")
            return 1.0
    """
    assert values(score(tmp_path, body)) == {"loud": 1.0}
    log = (tmp_path / "worker.log").read_text()
    assert [word in log for word in ("heardheard", "raw out", "raw err", "from a child")] == [True] * 4


# -- time limits


def test_a_hang_in_python_is_ended_and_the_worker_stays(tmp_path: Path) -> None:
    body = """
        @reward(timeout_s=0.2)
        def hangs(self):
            try:
                while True:
                    pass
            except Exception:
                return 0.0

        @reward
        def right(self):
            return 1.0
    """
    first, second = score_many(tmp_path, body, count=2)
    for scores in (first, second):
        assert values(scores) == {"hangs": None, "right": 1.0}
        assert scores.error is not None
        assert (scores.error.blame, scores.error.type) == ("scorer", "timeout")
        assert "hangs took longer than its time limit of 0.2 s" in scores.error.message
        assert "in hangs" in (scores.error.detail or "")
    assert first.metrics["pid"] == second.metrics["pid"]


@pytest.mark.parametrize(
    "hang",
    [
        NO_GIL_HANG,
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()) or time.sleep(600)",
        "ctypes.PyDLL(None).sleep(600) or ctypes.PyDLL(None).sleep(600)",
    ],
)
def test_a_hang_in_c_ends_the_worker_which_comes_back(tmp_path: Path, hang: str) -> None:
    body = f"""
        @reward(timeout_s=0.2)
        def hangs(self, task):
            if task.answer == "Paris":
                {hang}
            return 1.0

        @reward
        def right(self):
            return 1.0
    """

    async def two() -> list[Scores]:
        async with opened(tmp_path, body) as taskset:
            tasks = [TASK, Task(id="de", prompt="Capital of Germany?", answer="Berlin")]
            return await asyncio.gather(*(taskset.score(task, traces.scored()) for task in tasks))

    hung, other = asyncio.run(two())
    assert values(hung) == {"hangs": None, "right": 1.0}
    assert hung.error is not None
    assert (hung.error.blame, hung.error.type) == ("scorer", "timeout")
    assert "hangs took longer than its time limit of 0.2 s" in hung.error.message
    assert "in hangs" in (hung.error.detail or "")
    assert values(other) == {"hangs": 1.0, "right": 1.0}
    assert other.error is None


def test_a_time_limit_counts_from_the_start_and_not_while_queued(tmp_path: Path) -> None:
    body = """
        @reward(timeout_s=0.8)
        def slow(self):
            time.sleep(0.3)
            return 1.0
    """
    assert [values(one) for one in score_many(tmp_path, body, count=5)] == [{"slow": 1.0}] * 5


def test_an_async_function_is_ended_at_its_limit_and_others_are_not(tmp_path: Path) -> None:
    body = """
        @reward(timeout_s=0.2)
        async def hangs(self):
            await asyncio.Event().wait()

        @reward
        async def own(self):
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)

        @reward
        async def right(self):
            return 1.0
    """
    scores = score(tmp_path, body)
    assert values(scores) == {"hangs": None, "own": None, "right": 1.0}
    assert scores.error is not None
    assert scores.error.type == "timeout"
    assert "own raised TimeoutError" in (scores.error.detail or "")


def test_the_function_that_blocks_the_others_is_found_and_they_are_scored(tmp_path: Path) -> None:
    body = """
        @reward(timeout_s=0.3)
        async def asked(self, task):
            if task.answer == "Paris":
                time.sleep(600)
            await asyncio.sleep(0.1)
            return 1.0
    """

    async def three() -> list[Scores]:
        async with opened(tmp_path, body) as taskset:
            await taskset.score(Task(id="warm", prompt="", answer=""), traces.scored())
            tasks = [Task(id="de", prompt="", answer="Berlin"), TASK, Task(id="it", prompt="", answer="Rome")]
            return await asyncio.gather(*(taskset.score(task, traces.scored()) for task in tasks))

    scores = asyncio.run(three())
    assert [values(one)["asked"] for one in scores] == [1.0, None, 1.0]
    assert scores[1].error is not None
    assert scores[1].error.type == "timeout"


# -- crashes


@pytest.mark.parametrize(
    ("crash", "ended"),
    [
        ("os._exit(3)", "exit code 3"),
        ("ctypes.string_at(0)", "SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_a_crash_while_scoring_is_the_scorers_fault_and_the_worker_comes_back(
    tmp_path: Path, crash: str, ended: str
) -> None:
    body = f"""
        @reward
        def crashes(self, task):
            if task.answer == "Paris":
                print("last words")
                {crash}
            return 1.0

        @reward
        def right(self):
            return 1.0
    """

    async def three() -> list[Scores]:
        async with opened(tmp_path, body) as taskset:
            tasks = [TASK, *(Task(id=name, prompt="", answer=name) for name in "ab")]
            return await asyncio.gather(*(taskset.score(task, traces.scored()) for task in tasks))

    crashed, *others = asyncio.run(three())
    assert values(crashed) == {"crashes": None, "right": 1.0}
    assert crashed.error is not None
    assert (crashed.error.blame, crashed.error.stage, crashed.error.type) == ("scorer", "scoring", "crash")
    assert (
        f"crashes ended the worker process ({'signal ' if 'SIG' in ended else ''}{ended})"
        in crashed.error.message
    )
    assert "last words" in (crashed.error.detail or "")
    assert [values(one) for one in others] == [{"crashes": 1.0, "right": 1.0}] * 2
    assert crashed.metrics["pid"] == others[0].metrics["pid"] == others[1].metrics["pid"]


def test_a_segmentation_fault_shows_the_python_line(tmp_path: Path) -> None:
    scores = score(tmp_path, "@reward\ndef crashes(self):\n    ctypes.string_at(0)\n")
    assert scores.error is not None
    assert "in crashes" in (scores.error.detail or "")


def test_a_rollout_at_which_the_worker_dies_again_and_again_is_given_up(tmp_path: Path) -> None:
    bodies = [f"@reward\ndef crash_{n}(self):\n    count()\n    os._exit({n})\n" for n in range(6)]
    head = HEAD.replace("class Quiz", "def count():\n    open('deaths', 'a').write('x')\n\nclass Quiz")
    head = head.replace("'deaths'", repr(str(tmp_path / "deaths")))

    async def one() -> Scores:
        async with Worker() as worker:
            taskset = await worker.open(write(tmp_path, *bodies, head=head), {})
            return await taskset.score(TASK, traces.scored())

    scores = asyncio.run(one())
    assert values(scores) == {f"crash_{n}": None for n in range(6)}
    assert (tmp_path / "deaths").read_text() == "xxx"
    assert scores.error is not None
    assert scores.error.message.startswith("crash_0 ended the worker process")


def test_a_worker_that_dies_between_calls_comes_back(tmp_path: Path) -> None:
    body = """
        @metric
        def dies_soon(self):
            import threading
            threading.Timer(0.05, os._exit, (7,)).start()
            return 1
    """

    async def twice() -> list[Scores]:
        async with opened(tmp_path, RIGHT, body) as taskset:
            first = await taskset.score(TASK, traces.scored())
            await gone(first.metrics["pid"])
            return [first, await taskset.score(TASK, traces.scored())]

    first, second = asyncio.run(twice())
    assert values(first) == values(second) == {"right": 1.0}
    assert first.metrics["pid"] != second.metrics["pid"]


async def gone(pid: float | None) -> None:
    """Wait until a process is gone, or dead and not yet waited for."""
    async with asyncio.timeout(20):
        while is_alive(int(pid or 0)):  # noqa: ASYNC110  (nobody tells us)
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_reading_goes_on_where_it_was_when_the_worker_died(tmp_path: Path) -> None:
    body = """
        def load(self):
            for number in range(60):
                yield Task(id=f"t{number}", prompt="", answer="Paris" if number == 30 else "")

        @reward
        def crashes(self, task):
            return 1.0 if task.answer != "Paris" else os._exit(1)
    """

    async def read() -> list[str]:
        found = []
        async with opened(tmp_path, body) as taskset:
            async for task in taskset.tasks():
                found.append(task.id)
                await taskset.score(task, traces.scored())
        return found

    assert asyncio.run(read()) == [f"t{number}" for number in range(60)]


def test_what_a_scorer_started_is_gone_when_the_worker_is_closed(tmp_path: Path) -> None:
    body = """
        @reward
        def leaves(self):
            import subprocess
            child = subprocess.Popen(["sleep", "600"], start_new_session=True)
            return {"child": child.pid}
    """
    child = values(score(tmp_path, body))["child"]
    asyncio.run(gone(child))


@pytest.mark.parametrize("hang", ["time.sleep(600)", NO_GIL_HANG])
def test_closing_does_not_wait_for_a_function_that_hangs(tmp_path: Path, hang: str) -> None:
    started = tmp_path / "started"
    body = f"""
        @reward
        def hangs(self):
            pathlib.Path({str(started)!r}).write_text(str(os.getpid()))
            {hang}
    """

    async def leave() -> tuple[int, float]:
        async with opened(tmp_path, body) as taskset:
            scoring = asyncio.create_task(taskset.score(TASK, traces.scored()))
            while not (started.exists() and started.read_text()):  # noqa: ASYNC110  (nobody tells us)
                await asyncio.sleep(0.01)
            began = time.monotonic()
        with pytest.raises(Fault, match="closed"):
            await scoring
        await gone(int(started.read_text()))
        return time.monotonic() - began

    assert asyncio.run(leave()) < 15


def test_a_caller_that_was_cancelled_leaves_the_worker_in_order(tmp_path: Path) -> None:
    body = """
        @reward(timeout_s=0.3)
        def slow(self, task):
            time.sleep(600 if task.answer == "Paris" else 0)
            return 1.0
    """

    async def cancel() -> Scores:
        async with opened(tmp_path, body) as taskset:
            scoring = asyncio.create_task(taskset.score(TASK, traces.scored()))
            await asyncio.sleep(0)
            scoring.cancel()
            return await taskset.score(Task(id="de", prompt="", answer="Berlin"), traces.scored())

    assert values(asyncio.run(cancel())) == {"slow": 1.0}


def test_after_a_withdrawal_what_runs_is_scored_and_nothing_else_begins(tmp_path: Path) -> None:
    body = f"""
        @reward
        def held(self, task):
            with open({str(tmp_path / "began")!r}, "a") as file:
                file.write(task.id)
            while not os.path.exists({str(tmp_path / "go")!r}):
                time.sleep(0.01)
            return 1.0
    """

    async def withdrawn() -> list[Scores | BaseException]:
        async with opened(tmp_path, body) as taskset:
            tasks = [Task(id=name, prompt="", answer="") for name in "abcd"]
            *early, late = (taskset.score(task, traces.scored()) for task in tasks)
            scoring = asyncio.gather(*early, return_exceptions=True)
            while not (tmp_path / "began").exists():  # noqa: ASYNC110  (nobody tells us)
                await asyncio.sleep(0.01)
            taskset.withdraw()
            refused = await asyncio.gather(late, return_exceptions=True)
            (tmp_path / "go").touch()
            scores = await scoring
            assert [task.id async for task in taskset.tasks()] == [
                "fr"
            ]  # by now, what was queued would have begun
            return [*scores, *refused]

    first, *others = asyncio.run(withdrawn())
    assert isinstance(first, Scores)
    assert values(first) == {"held": 1.0}
    assert (tmp_path / "began").read_text() == "a"
    records = [error.record for error in others if isinstance(error, Fault)]
    assert [(one.blame, one.type) for one in records] == [("user", "interrupted")] * 3
    assert "before task 'b' was scored" in records[0].message


# -- what it can see

SEES = """
def load(self):
    yield Task(id="seen", prompt="", answer=look())
"""


def seen(folder: Path, look: str, **given: Any) -> Any:
    """Get what a taskset's own code finds when it evaluates an expression."""
    head = HEAD.replace("class Quiz", f"def look():\n    return {look}\n\nclass Quiz")

    async def ask() -> Any:
        async with Worker(**given) as worker:
            taskset = await worker.open(write(folder, SEES, RIGHT, head=head), {})
            (task,) = [task async for task in taskset.tasks()]
            return task.answer

    return asyncio.run(ask())


def test_it_sees_no_key_and_what_downloads_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = ["OPENAI_API_KEY", "HF_TOKEN", "HF_SECRET_THING", "AWS_SECRET_ACCESS_KEY", "MY_OWN"]
    needed = ["HF_HOME", "HTTPS_PROXY", "SSL_CERT_FILE"]
    for name in [*hidden, *needed]:
        monkeypatch.setenv(name, f"value of {name}")
    environment = seen(tmp_path, "dict(os.environ)")
    assert set(hidden) & set(environment) == set()
    assert {*needed, "HOME", "PATH"} <= set(environment)
    assert "value of MY_OWN" not in str(environment)


def test_a_variable_is_kept_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    assert seen(tmp_path, "os.environ.get('HF_TOKEN')", keep=("HF_TOKEN",)) == "hf_0123456789"


GUARDED = """
import asyncio, sys
from hotswap import registry
from hotswap.processes import guard
from hotswap.worker.worker import Worker

async def main():
    guard()
    async with Worker() as worker:
        taskset = await worker.open(registry.find("taskset", sys.argv[1]), {})
        async for task in taskset.tasks():
            print(task.answer)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only: /proc")
@pytest.mark.parametrize("file", ["environ", "mem", "maps", "fd/1"])
def test_it_cannot_read_a_key_out_of_the_eval_process(tmp_path: Path, file: str) -> None:
    head = HEAD.replace(
        "class Quiz",
        f"""
def look():
    path = pathlib.Path("/proc/%d/{file}" % os.getppid())
    try:
        return "read" if path.open("rb").read(1) else "empty"
    except PermissionError:
        return "refused"

class Quiz""",
    )
    entry = write(tmp_path, SEES, RIGHT, head=head)
    run = subprocess.run(
        [sys.executable, "-c", GUARDED, entry.target],
        env={**os.environ, "OPENAI_API_KEY": "sk-0123456789"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.stdout, run.stderr) == ("refused\n", "")


def pythons() -> dict[str, str]:
    """Other Pythons of this machine by version, from where people keep them."""
    shims = [Path(place) for place in os.environ["PATH"].split(os.pathsep) if place.endswith("/shims")]
    roots = [
        *(place.parent / "versions" for place in dict.fromkeys(shims)),
        Path.home() / ".pyenv/versions",
        Path.home() / ".local/share/uv/python",
        Path("/opt"),
        Path("/usr/local"),
    ]
    found = {}
    for root in roots:
        for program in sorted(root.glob("*/bin/python3")):
            asked = [str(program), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            version = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
            if version and version != f"{sys.version_info[0]}.{sys.version_info[1]}":
                found[version] = str(program)
    return found


def other_python(of: Callable[[tuple[int, ...]], bool]) -> str:
    for version, program in pythons().items():
        if of(tuple(map(int, version.split(".")))):
            return program
    pytest.skip("no other Python of such a version on this machine")


def test_it_runs_in_a_foreign_python_that_has_nothing_of_ours(tmp_path: Path) -> None:
    python = other_python(lambda version: version >= (3, 11))
    subprocess.run([python, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    (site / "only_there.py").write_text("FOUND = True")
    head = HEAD.replace("class Quiz", "import only_there\nclass Quiz")
    body = """
        def load(self):
            import importlib, importlib.util, sys
            importlib.import_module("hotswap.tasksets.jsonl")
            ours = [name for name in ("aiohttp", "datasets", "pytest") if importlib.util.find_spec(name)]
            yield Task(id="fr", prompt="", answer={"version": sys.version, "path": sys.path, "ours": ours})
    """

    async def both() -> tuple[Any, Scores]:
        async with Worker(python=(str(tmp_path / "venv/bin/python"),)) as worker:
            taskset = await worker.open(write(tmp_path, body, RIGHT, head=head), {})
            (task,) = [task async for task in taskset.tasks()]
            return task.answer, await taskset.score(TASK, traces.scored())

    found, scores = asyncio.run(both())
    assert found["version"] != sys.version
    assert found["ours"] == []
    assert not [path for path in found["path"] if path in sys.path and "site-packages" in path]
    assert values(scores) == {"right": 1.0}


def test_a_python_that_is_too_old_is_refused_in_one_sentence(tmp_path: Path) -> None:
    python = other_python(lambda version: (3, 7) <= version < (3, 11))
    with pytest.raises(UsageError, match=r"is Python 3\.\d+, and a taskset needs 3\.11 or newer"):
        seen(tmp_path, "1", python=(python,))


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="/no/such/python"):
        seen(tmp_path, "1", python=("/no/such/python",))


# -- opening


def test_a_taskset_says_what_it_is(tmp_path: Path) -> None:
    body = """
        '''Capitals, and nothing else.'''
        demo_model = "small"
        endless = True
        level: int = 3
        '''How hard.'''

        @reward(weight=0.5, timeout_s=5)
        def right(self):
            return 1
    """
    head = HEAD.partition("    def load")[0]

    async def ask() -> tuple[Any, Any]:
        async with Worker() as worker:
            entry = write(tmp_path, body, head=head)
            return await worker.describe(entry), (await worker.open(entry, {"level": "4"})).info

    described, info = asyncio.run(ask())
    assert described == info
    assert (info.name, info.doc, info.demo_model, info.endless) == (
        "quiz",
        "Capitals, and nothing else.",
        "small",
        True,
    )
    (option,) = info.options
    assert (option.name, option.type, option.default, option.doc) == (
        "level",
        "a whole number",
        3,
        "How hard.",
    )
    (scoring,) = info.scoring
    assert (scoring.name, scoring.kind, scoring.weight, scoring.timeout_s) == ("right", "reward", 0.5, 5)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("pass", "taskset 'quiz' has no @reward with a weight"),
        ("@reward(weight=0)\ndef style(self): return 1", "taskset 'quiz' has no @reward with a weight"),
        (
            "@reward(weight=math.nan)\ndef right(self): return 1",
            "right has the weight nan, which is not a finite number",
        ),
        (
            "@reward(timeout_s=0)\ndef right(self): return 1",
            "right has timeout_s=0, which is no number of seconds",
        ),
        (
            "@reward\ndef right(self, tusk): return 1",
            "right asks for tusk; a scoring function may ask for task",
        ),
        ("n: int\n" + RIGHT, "taskset 'quiz': setting 'n' (a whole number) is required"),
        (
            "def __init__(self):\n    self.x = 1 / 0\n" + RIGHT,
            "taskset 'quiz' cannot be built: ZeroDivisionError",
        ),
        (
            RIGHT + "\nasync def play(self, task, agent): pass\ndef setup(self, box): pass",
            "taskset 'quiz' defines setup and play, which are not supported yet",
        ),
        ("os._exit(5)", "taskset 'quiz' ended the worker process (exit code 5) in 'open'"),
    ],
)
def test_a_taskset_that_cannot_work_is_refused(tmp_path: Path, body: str, said: str) -> None:
    assert said in str(refusal(tmp_path, body))


def test_a_method_that_scores_nothing_is_no_fault_and_a_score_may_be_called_play(tmp_path: Path) -> None:
    body = f"{RIGHT}\ndef helper(self): return 1\n@metric\ndef play(self): return self.helper()"
    assert score(tmp_path, body).metrics["play"] == 1


def test_an_unknown_setting_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    error = refusal(tmp_path, "level: int = 3", RIGHT, levl=4, level="x")
    assert len(error.problems) == 2
    assert "taskset 'quiz': unknown setting 'levl'. Did you mean 'level'?" in error.problems[0]


@pytest.mark.parametrize("broken", ["import nowhere", "1 / 0", "sys.exit('no')", "def x(:"])
def test_a_file_that_cannot_be_imported_is_named_with_the_cause_and_its_line(
    tmp_path: Path, broken: str
) -> None:
    head = HEAD.replace("class Quiz", f"{broken}\nclass Quiz")

    async def describe() -> None:
        async with Worker() as worker:
            await worker.describe(write(tmp_path, RIGHT, head=head))

    with pytest.raises(UsageError) as caught:
        asyncio.run(describe())
    (problem,) = caught.value.problems
    line = next(number for number, text in enumerate(head.splitlines(), 1) if text == broken)
    assert f"quiz.py:{line}" in problem
    cause = {"i": "ModuleNotFoundError", "1": "ZeroDivisionError", "s": "SystemExit", "d": "SyntaxError"}[
        broken[0]
    ]
    assert cause in problem
    assert cause in (caught.value.detail or "")


# -- loading

COUNTED = """
log: str

def load(self):
    for number in itertools.count():
        with open(self.log, "a") as file:
            file.write("x")
        yield Task(id=f"t{number}", prompt="")
"""


@pytest.mark.parametrize(("limit", "read"), [(5, None), (300, None), (None, 5)])
def test_no_more_tasks_are_built_than_are_used(tmp_path: Path, limit: int | None, read: int | None) -> None:
    async def some() -> list[str]:
        found = []
        async with opened(tmp_path, COUNTED, RIGHT, log=str(tmp_path / "built")) as taskset:
            async for task in taskset.tasks(limit):
                found.append(task.id)
                if len(found) == read:
                    break
        return found

    wanted = limit or read or 0
    assert asyncio.run(some()) == [f"t{number}" for number in range(wanted)]
    assert len((tmp_path / "built").read_text()) == wanted


def test_a_task_arrives_as_it_was_built(tmp_path: Path) -> None:
    built = (
        'Task(id="a/b \\u2028 \\ud800", prompt="", answer=[1, None, {"x": 1.5}], system="s", context="c",'
        ' files={"d/e.txt": "text", "f": bytes(range(256))}, tags=("easy",), data={"k": True})'
    )
    (task,) = load(tmp_path, f"def load(self):\n    yield {built}", RIGHT)
    assert task == eval(built, {"Task": Task})
    assert task.hash == eval(built, {"Task": Task}).hash


def test_all_that_is_wrong_with_the_tasks_is_listed_at_once(tmp_path: Path) -> None:
    body = """
        def load(self):
            yield Task(id="a", prompt="")
            yield Task(id="b", prompt="")
            yield Task(id="a", prompt="another")
            yield {"id": "c", "prompt": ""}
            yield None
            yield Task(id=4, prompt="")
            yield Task(id="", prompt="")
            yield Task(id="nan", prompt="", data={"rows": [{"weight": math.nan}]})
            yield Task(id="set", prompt="", answer={1, 2})
            yield Task(id="key", prompt="", data={"by": {1: 2}})
            yield Task(id="none", prompt=None)
            yield Task(id="path", prompt="", files={"../x": ""})
    """
    assert refusal(tmp_path, body, RIGHT).problems == (
        "quiz: task 2 (counted from 0): its id 'a' is also that of task 0",
        "quiz: task 3 (counted from 0): load() yielded no Task but a dict: yield Task(id=..., prompt=...)",
        "quiz: task 4 (counted from 0): load() yielded no Task but a NoneType: yield Task(id=..., prompt=...)",
        "quiz: task 5 (counted from 0): its id is 4; an id is text that is not empty",
        "quiz: task 6 (counted from 0): its id is ''; an id is text that is not empty",
        "quiz: task 'nan': data.rows[0].weight is nan, which JSON cannot say",
        "quiz: task 'set': answer is set, which JSON cannot say",
        "quiz: task 'key': data.by has the key 1, and the keys of JSON are text",
        "quiz: task 'none': prompt is NoneType, not text",
        "quiz: task 'path': files: '../x' is not a path inside the working directory",
    )


def test_the_problems_of_an_endless_taskset_are_reported_too(tmp_path: Path) -> None:
    body = "def load(self):\n    for number in itertools.count():\n        yield Task(id=str(number // 2), prompt='')"
    assert len(refusal(tmp_path, body, RIGHT).problems) >= 20


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def load(self):\n    yield Task(id='a', prompt='')\n    1 / 0", "after 1 tasks: ZeroDivisionError"),
        ("def load(self):\n    return open('/no/such/file')", "before its first task: FileNotFoundError"),
        ("def load(self):\n    sys.exit(2)\n    yield", "before its first task: SystemExit: 2"),
        ("def load(self):\n    return 4", "before its first task: TypeError"),
    ],
)
def test_whatever_load_raises_is_one_line_with_its_place(tmp_path: Path, body: str, said: str) -> None:
    error = refusal(tmp_path, body, RIGHT)
    (problem,) = error.problems
    assert f"quiz: load() failed {said}" in problem
    assert "in load" in (error.detail or "") or "TypeError" in said


def test_a_load_that_lists_its_problems_is_passed_on(tmp_path: Path) -> None:
    body = """
        def load(self):
            from hotswap.errors import UsageError
            raise UsageError("line 7: duplicate id", "line 10: NaN is not JSON")
    """
    assert refusal(tmp_path, body, RIGHT).problems == ("line 7: duplicate id", "line 10: NaN is not JSON")


def test_a_load_that_ends_the_process_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path, "def load(self):\n    print('bye')\n    os._exit(9)", RIGHT)
    assert error.problems == ("taskset 'quiz' ended the worker process (exit code 9) in 'tasks'",)
    assert "bye" in (error.detail or "")


FORKS = """
@reward(timeout_s=20)
{kind}def right(self, task, trace):
    child = os.fork()
    if child == 0:
        {end}
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == {code}
    return 1.0

@metric
def later(self):
    pathlib.Path("FOLDER", str(os.getpid())).touch()
    return 2.0
"""


@pytest.mark.parametrize("kind", ["", "async "], ids=["plain", "async"])
@pytest.mark.parametrize(
    ("end", "code"),
    [("raise ValueError('in the copy')", 1), ("return 0.0", 0), ("sys.exit(3)", 3), ("sys.exit()", 0)],
)
def test_a_copy_of_the_worker_that_a_scorer_forks_ends_and_says_nothing(
    tmp_path: Path, kind: str, end: str, code: int
) -> None:
    (tmp_path / "ran").mkdir()
    body = FORKS.format(kind=kind, end=end, code=code).replace("FOLDER", str(tmp_path / "ran"))
    scores = score(tmp_path, body)
    assert (scores.error, scores.rewards["right"].value, scores.metrics["later"]) == (None, 1.0, 2.0)
    assert len(list((tmp_path / "ran").iterdir())) == 1
    assert ("in the copy" in said(tmp_path)) == ("copy" in end)


def said(folder: Path) -> str:
    """What the worker printed."""
    log = folder / "worker.log"
    return log.read_text() if log.exists() else ""


def test_two_tasksets_share_one_process(tmp_path: Path) -> None:
    async def both() -> list[Scores]:
        async with Worker() as worker:
            entry = write(tmp_path, "n: int = 1", RIGHT, "@metric\ndef which(self): return self.n")
            first, second = await worker.open(entry, {"n": 1}), await worker.open(entry, {"n": 2})
            await first.close()
            return [await taskset.score(TASK, traces.scored()) for taskset in (first, second)]

    first, second = asyncio.run(both())
    assert (first.metrics["which"], second.metrics["which"]) == (1.0, 2.0)
    assert first.metrics["pid"] == second.metrics["pid"]
