"""Ctrl-C while rollouts are scored, while a person is asked, after a budget has ended the run, and at its end."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from _kit.evals import KIT, PROGRAM, Done, begin, environment, finish
from _kit.provider import Provider, say

from hotswap.limits import WindDown

HELD = """
import os, time
from hotswap import Task, Taskset, reward

class Held(Taskset):
    def load(self):
        for number in range(3):
            yield Task(id=f"q{number}", prompt="Well?", answer="42")

    @reward(timeout_s=600)
    def right(self, task):
        with open("FOLDER/began", "a") as file:
            file.write(task.id + "\\n")
        while not os.path.exists("FOLDER/go"):
            time.sleep(0.01)
        return 1.0
"""
LINGERING = """
import atexit

def linger():
    open("FOLDER/leaving", "w").close()
    time.sleep(600)

atexit.register(linger)
"""
"""Its process does not end by itself, and is ended a second after the rollouts are done."""
BUDGET = ("-H", f"{KIT / 'misbehaving.py'},mode=never_ends", "--budget.seconds", "3")
"""Programs that go on after their call, until the time of the run is over."""


@pytest.fixture
def answering() -> Iterator[Provider]:
    """A provider that always answers."""
    with Provider(lambda request: say("42")) as provider:
        yield provider


def wait_for(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def scoring(
    folder: Path, provider: Provider, *words: str, code: str = HELD, **more: Any
) -> subprocess.Popen[str]:
    """Start three rollouts, and wait until one is being scored, by a function that waits for `go`."""
    (folder / "held.py").write_text(code.replace("FOLDER", str(folder)))
    process = begin(folder, "./held.py", "-m", f"scripted@{provider.url}", *words, **more)
    wait_for((folder / "began").exists)
    if not words:
        wait_for(lambda: len(list(folder.glob("runs/latest/logs/*/stdout"))) == 3)
    return process


def kept(folder: Path) -> int:
    return (folder / "runs/latest/traces.jsonl").read_bytes().count(b"\n")


def ends(traces: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((trace["outcome"], trace["stop"]) for trace in traces)


def test_an_interrupt_gives_up_what_waits_to_be_scored_and_lets_the_running_scorer_end(
    tmp_path: Path, answering: Provider
) -> None:
    process = scoring(tmp_path, answering)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: kept(tmp_path) == 2)
    (tmp_path / "go").touch()
    done = finish(process, tmp_path)
    assert done.code == 130, done.stderr
    assert ends(done.traces) == [("error", "interrupted"), ("error", "interrupted"), ("scored", "done")]
    given_up = [trace["error"] for trace in done.traces if trace["error"]]
    assert [(error["blame"], error["stage"]) for error in given_up] == [("user", "scoring")] * 2
    assert [trace["metrics"]["turns"] for trace in done.traces] == [1, 1, 1]
    assert len((tmp_path / "began").read_text().split()) == 1


def test_an_interrupted_run_that_waits_for_a_scorer_says_so(tmp_path: Path, answering: Provider) -> None:
    process = scoring(tmp_path, answering, code=HELD.replace("600", "6"))
    process.send_signal(signal.SIGINT)
    done = finish(process, tmp_path)
    assert done.code == 130, done.stderr
    assert "1 scorer is running; Ctrl-C again gives it up" in done.stderr.splitlines()


@pytest.mark.parametrize("words", [(), BUDGET], ids=["played", "after_the_budget"])
def test_a_second_interrupt_ends_the_running_scorer_and_every_trace_is_kept(
    tmp_path: Path, answering: Provider, words: tuple[str, ...]
) -> None:
    process = scoring(tmp_path, answering, *words)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: kept(tmp_path) == 2)
    process.send_signal(signal.SIGINT)
    done = finish(process, tmp_path)
    assert done.code == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert ends(done.traces) == [("error", "interrupted")] * 3
    assert [len(trace["calls"]) for trace in done.traces] == [1, 1, 1]


def test_an_interrupt_after_the_budget_is_an_interrupt_and_a_score_that_comes_stays(
    tmp_path: Path, answering: Provider
) -> None:
    process = scoring(tmp_path, answering, *BUDGET)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: kept(tmp_path) == 2)
    (tmp_path / "go").touch()
    done = finish(process, tmp_path)
    assert done.code == 130, done.stderr
    assert ends(done.traces) == [("error", "interrupted"), ("error", "interrupted"), ("scored", "budget")]


def test_an_interrupt_is_stronger_than_a_budget_and_not_the_other_way_round() -> None:
    winding_down = WindDown()
    winding_down.begin("budget")
    assert (winding_down.reason, winding_down.interrupted.is_set()) == ("budget", False)
    for reason in ("interrupted", "budget"):
        winding_down.begin(reason)
        assert (winding_down.reason, winding_down.interrupted.is_set()) == ("interrupted", True)


def test_a_second_interrupt_while_the_run_is_concluded_does_not_keep_the_table_back(
    tmp_path: Path, answering: Provider
) -> None:
    process = scoring(tmp_path, answering, code=HELD + LINGERING)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: kept(tmp_path) == 2)
    (tmp_path / "go").touch()
    wait_for((tmp_path / "leaving").exists)
    process.send_signal(signal.SIGINT)
    done = finish(process, tmp_path)
    assert done.code == 130, done.stderr
    assert "reward" in done.stdout
    assert "nothing was written" not in done.stderr
    assert "run directory:" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_interrupt_while_the_table_is_printed_does_not_break_it_off(
    tmp_path: Path, answering: Provider
) -> None:
    ours, theirs = os.pipe()
    fill(theirs)
    process = scoring(tmp_path, answering, stdout=theirs)
    os.close(theirs)
    process.send_signal(signal.SIGINT)
    (tmp_path / "go").touch()
    wait_for(lambda: (tmp_path / "runs/latest/metrics.json").exists() and not has_a_loop(process.pid))
    process.send_signal(signal.SIGINT)
    with os.fdopen(ours, "rb") as screen:
        shown = screen.read().lstrip(b"\0").decode()
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == 130, stderr
    assert "reward" in shown
    assert "run directory:" in stderr


def test_a_terminal_that_is_closed_is_an_interrupt(tmp_path: Path, answering: Provider) -> None:
    (tmp_path / "held.py").write_text(HELD.replace("FOLDER", str(tmp_path)))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        words = ["./held.py", "-m", f"scripted@{answering.url}"]
        os.execve(PROGRAM, [str(PROGRAM), *words], environment(tmp_path, TERM="xterm-256color"))
    wait_for((tmp_path / "began").exists)
    os.close(terminal)
    wait_for(lambda: kept(tmp_path) == 2 or ended(pid))
    os.kill(pid, signal.SIGHUP)  # as a shell says it again to its jobs
    (tmp_path / "go").touch()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    run = (tmp_path / "runs" / "latest").resolve()
    assert ends(Done(130, "", "", run).traces) == [
        ("error", "interrupted"),
        ("error", "interrupted"),
        ("scored", "done"),
    ]
    assert (run / "metrics.json").exists()


def test_nohup_keeps_a_run_going_when_the_terminal_is_closed(tmp_path: Path, answering: Provider) -> None:
    process = scoring(tmp_path, answering, before=["nohup"])
    process.send_signal(signal.SIGHUP)
    (tmp_path / "go").touch()
    done = finish(process, tmp_path)
    assert done.code == 0, done.stderr
    assert ends(done.traces) == [("scored", "done")] * 3


@pytest.mark.parametrize(("key", "code"), [(b"\x03", 130), (b"\x04", 3)], ids=["ctrl_c", "ctrl_d"])
def test_a_pilots_question_hears_the_interrupt_and_the_end_of_the_input(
    tmp_path: Path, answering: Provider, key: bytes, code: int
) -> None:
    (tmp_path / "held.py").write_text(HELD.replace("FOLDER", str(tmp_path)))
    (tmp_path / "go").touch()
    words = ["./held.py", "-m", f"scripted@{answering.url}", "--pilot", "2"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(PROGRAM, [str(PROGRAM), *words], environment(tmp_path, TERM="xterm-256color"))
    read_until(terminal, b"Go on? [y/N]", pid)
    os.write(terminal, key)
    screen = read_until(terminal, None, pid)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code, screen
    assert b"Traceback" not in screen
    assert kept(tmp_path) == 2


def test_an_interrupt_while_the_command_is_imported_is_no_traceback(tmp_path: Path) -> None:
    slow = "import time\nopen('importing', 'w').close()\ntime.sleep(600)\n"
    (tmp_path / "difflib.py").write_text(slow)  # in the place of the one that the command imports
    process = begin(tmp_path, "list", env={"PYTHONPATH": str(tmp_path)})
    wait_for((tmp_path / "importing").exists)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr) == (130, "", "")


def fill(pipe: int) -> None:
    """Write zeros into a pipe until who writes more has to wait."""
    os.set_blocking(pipe, False)
    for size in (4096, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(pipe, bytes(size))
    os.set_blocking(pipe, True)


def has_a_loop(pid: int) -> bool:
    """Whether a process has an event loop still, on Linux."""
    links = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            links.append(str(file.readlink()))
    return "anon_inode:[eventpoll]" in links


def ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def read_until(terminal: int, wanted: bytes | None, pid: int) -> bytes:
    """Read what a program writes until `wanted` is there, or to its end; one that is silent for too long is killed."""
    screen = b""
    while wanted is None or wanted not in screen:
        if not select.select([terminal], [], [], 60)[0]:
            os.kill(pid, signal.SIGKILL)
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        screen += data
    return screen
