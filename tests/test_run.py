"""Whole runs: the command as a process, the real loop in real boxes, a scripted provider on loopback."""

import json
import os
import pty
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _kit.evals import KIT, PROGRAM, Done, begin, environment, evaluate, finish
from _kit.provider import Provider, Received, Reply, call_tool, fail, replace, say

SCRIPT = Callable[[Received], Reply]


@pytest.fixture
def answering() -> Iterator[Provider]:
    """A provider that always answers."""
    with Provider(lambda request: say("42")) as provider:
        yield provider


def tasks(folder: Path, count: int = 2) -> str:
    """A taskset of so many questions to which 42 is the answer."""
    lines = (
        json.dumps({"id": f"q{number}", "prompt": f"Question {number}", "answer": "42"})
        for number in range(count)
    )
    (folder / "questions.jsonl").write_text("\n".join(lines))
    return "questions.jsonl"


def play(folder: Path, provider: Provider, *words: str, count: int = 2, **env: str) -> Done:
    path = tasks(folder, count)
    model = f"scripted@{provider.url}"
    return evaluate(folder, "jsonl", "--taskset.path", path, "-m", model, *words, env=env)


def misbehaving(folder: Path, provider: Provider, mode: str, *words: str, **settings: str) -> dict[str, Any]:
    """Play one task with a program that misbehaves, and get its trace."""
    variant = ",".join(f"{name}={value}" for name, value in {"mode": mode, **settings}.items())
    done = play(folder, provider, "-H", f"{KIT / 'misbehaving.py'},{variant}", *words, count=1)
    (trace,) = done.traces
    return trace


def test_a_run_scores_every_rollout_and_writes_all_its_files(tmp_path: Path, answering: Provider) -> None:
    done = play(tmp_path, answering, "-k", "2")
    assert done.code == 0, done.stderr
    assert [trace["reward"] for trace in done.traces] == [1.0] * 4
    assert sorted((trace["task"]["id"], trace["attempt"]) for trace in done.traces) == [
        ("q0", 0), ("q0", 1), ("q1", 0), ("q1", 1),
    ]  # fmt: skip
    names = {path.name for path in done.run.iterdir()}
    assert names >= {"eval.toml", "run.json", "journal.jsonl", "traces.jsonl", "results.jsonl"}
    assert names >= {"metrics.json", "metrics.csv", "metrics.md", "logs"}
    assert done.metrics["total"]["scored"] == 4


def test_the_first_line_names_model_harness_and_runtime(tmp_path: Path, answering: Provider) -> None:
    done = play(tmp_path, answering)
    first = done.stderr.splitlines()[0]
    assert first == f"jsonl: model scripted@{answering.url}, harness loop, runtime local (2 tasks)"


def test_json_stands_alone_on_stdout(tmp_path: Path, answering: Provider) -> None:
    done = play(tmp_path, answering, "--json")
    assert json.loads(done.stdout) == done.metrics


def test_without_a_terminal_there_is_no_control_code_in_any_locale(
    tmp_path: Path, answering: Provider
) -> None:
    done = play(tmp_path, answering, PYTHONIOENCODING="cp1252", LANG="C", COLUMNS="20")
    assert done.code == 0, done.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", done.stdout + done.stderr)


def test_the_saved_settings_run_the_same_again_alone(tmp_path: Path, answering: Provider) -> None:
    first = play(tmp_path, answering, "--sampling.temperature", "0", "-n", "1")
    saved = first.run / "eval.toml"
    again = evaluate(tmp_path, "run", "-f", str(saved), env={"HOTSWAP_TASKS": "2"})
    assert again.code == 0, again.stderr
    assert again.run != first.run
    assert len(again.traces) == 1
    assert answering.requests[-1].json["temperature"] == 0


def test_what_the_provider_got_is_what_the_program_sent_but_for_the_key(
    tmp_path: Path, answering: Provider
) -> None:
    done = play(tmp_path, answering, count=1)
    (request,) = answering.requests
    assert request.json == {"model": "scripted", "messages": [{"role": "user", "content": "Question 0"}]}
    written = b"".join(path.read_bytes() for path in done.run.rglob("*") if path.is_file())
    assert (
        request.headers.get("authorization", "").encode() not in written
        or "authorization" not in request.headers
    )


def test_a_provider_key_reaches_the_provider_and_no_file_and_no_box(tmp_path: Path) -> None:
    key = "sk-canary-key-0123456789"
    with Provider(call_tool("bash", {"command": "env; cat /proc/$PPID/environ"}), say("42")) as provider:
        table = f'[models.mine]\nurl = "{provider.url}"\nkey = "MY_API_KEY"\n'
        (tmp_path / "models.toml").write_text(table)
        words = (
            "jsonl",
            "--taskset.path",
            tasks(tmp_path, 1),
            "-m",
            "mine",
            "-H",
            "loop,tools=bash",
            "-f",
            "models.toml",
        )
        done = evaluate(tmp_path, *words, env={"MY_API_KEY": key})
    assert done.code == 0, done.stderr
    assert provider.requests[0].headers["authorization"] == f"Bearer {key}"
    assert b"LOOP_API_KEY" in provider.requests[1].body  # the box's own environment was shown ...
    assert key.encode() not in provider.requests[1].body  # ... and the provider's key is not in it
    written = b"".join(path.read_bytes() for path in done.run.rglob("*") if path.is_file())
    assert key.encode() not in written


def test_a_session_secret_is_in_no_file(tmp_path: Path) -> None:
    with Provider(
        call_tool("bash", {"command": "tr '\\0' '\\n' < /proc/$PPID/environ"}), say("42")
    ) as provider:
        done = play(tmp_path, provider, "-H", "loop,tools=bash", count=1)
    result = provider.requests[1].json["messages"][-1]["content"]
    secret = re.search(r"LOOP_API_KEY=(\S{20,})", result)
    assert secret is not None
    written = b"".join(path.read_bytes() for path in done.run.rglob("*") if path.is_file())
    assert secret[1].encode() not in written
    assert b"[secret:session]" in written


def test_a_provider_that_fails_is_blamed_and_tried_again_and_every_try_is_kept(tmp_path: Path) -> None:
    with Provider(lambda request: fail(500, "on fire")) as provider:
        done = play(tmp_path, provider, "--calls.retries", "0", count=1)
    (trace,) = done.traces
    assert done.code == 3
    assert trace["outcome"] == "error"
    assert trace["reward"] is None
    assert (trace["error"]["blame"], trace["error"]["type"]) == ("provider", "server")
    assert "on fire" in trace["error"]["message"]
    assert len(trace["tries"]) == 2
    assert "1 provider" in done.stdout or "provider 1" in done.stdout


def test_a_second_try_that_is_scored_is_no_error_and_both_tries_are_counted(tmp_path: Path) -> None:
    with Provider(fail(400, "once"), say("42")) as provider:
        done = play(tmp_path, provider, "--calls.retries", "0", count=1)
        (trace,) = done.traces
    assert trace["error"]["type"] == "bad_request"  # which is not worth another try
    with Provider(fail(503, "once"), say("42")) as provider:
        done = play(tmp_path, provider, "--calls.retries", "0", count=1)
    (trace,) = done.traces
    assert done.code == 0, done.stderr
    assert trace["outcome"] == "scored"
    assert trace["error"] is None
    assert [one["error"] and one["error"]["blame"] for one in trace["tries"]] == ["provider", None]


def test_allowed_errors_leave_the_exit_code_at_0(tmp_path: Path) -> None:
    script: SCRIPT = lambda request: fail(400) if b"Question 0" in request.body else say("42")  # noqa: E731
    with Provider(script) as provider:
        assert play(tmp_path, provider).code == 3
        assert play(tmp_path, provider, "--allow-errors", "1").code == 0
        assert play(tmp_path, provider, "--allow-errors", "50%").code == 0


def test_both_means_are_shown_where_there_are_errors(tmp_path: Path) -> None:
    script: SCRIPT = lambda request: fail(400) if b"Question 0" in request.body else say("42")  # noqa: E731
    with Provider(script) as provider:
        done = play(tmp_path, provider)
    (cell,) = done.metrics["cells"]
    assert cell["reward"]["mean"] == 1.0
    assert cell["reward_errors_as_zero"]["mean"] == 0.5
    assert (cell["scored"], cell["errors"], cell["errors_by_blame"]) == (1, 1, {"provider": 1})


@pytest.mark.parametrize(
    ("mode", "outcome", "blame", "kind"),
    [
        ("silent_exit", "error", "harness", "no_model_call"),
        ("usage_error", "error", "harness", "exit_code"),
        ("exit_1_after_answer", "scored", "harness", "exit_code"),
        ("error_word", "scored", None, None),
        ("killed", "error", "harness", "signal"),
        ("reads_stdin", "scored", None, None),
        ("floods", "scored", None, None),
    ],
)
def test_the_end_of_a_program_is_judged_by_calls_exit_code_and_signal(
    tmp_path: Path, answering: Provider, mode: str, outcome: str, blame: str | None, kind: str | None
) -> None:
    trace = misbehaving(tmp_path, answering, mode)
    assert trace["outcome"] == outcome
    assert (trace["error"] and trace["error"]["blame"]) == blame
    assert (trace["error"] and trace["error"]["type"]) == kind


def test_the_tail_of_stderr_is_in_the_error(tmp_path: Path, answering: Provider) -> None:
    assert misbehaving(tmp_path, answering, "usage_error")["error"]["detail"] == "error: unexpected argument"


@pytest.mark.parametrize("mode", ["never_ends", "ignores_term"])
def test_a_time_limit_ends_the_program_and_what_it_left_is_scored(
    tmp_path: Path, answering: Provider, mode: str
) -> None:
    trace = misbehaving(tmp_path, answering, mode, "--limits.seconds", "2")
    assert (trace["outcome"], trace["stop"], trace["reward"]) == ("scored", "seconds", 1.0)
    assert "2 s (limits.seconds)" in trace["error"]["message"]


def test_a_silent_program_is_told_from_a_slow_one(tmp_path: Path, answering: Provider) -> None:
    trace = misbehaving(tmp_path, answering, "hangs_before", "--limits.seconds", "1")
    assert (trace["outcome"], trace["error"]["type"]) == ("error", "no_output")


def test_a_program_that_goes_on_after_its_turns_is_ended_by_us(tmp_path: Path, answering: Provider) -> None:
    trace = misbehaving(tmp_path, answering, "goes_on", "--limits.turns", "3")
    assert (trace["stop"], len(trace["calls"])) == ("turns", 3)
    assert trace["error"] is None


def test_a_limit_of_tokens_stops_the_loop(tmp_path: Path) -> None:
    with Provider(lambda request: call_tool("bash", {"command": "true"})) as provider:
        done = play(tmp_path, provider, "-H", "loop,tools=bash", "--limits.tokens", "40", count=1)
    (trace,) = done.traces
    assert trace["stop"] == "tokens"
    assert trace["usage"]["input"] + trace["usage"]["output"] == 45  # the call that crossed it is counted


def test_a_process_that_was_left_behind_is_gone_before_scoring(tmp_path: Path, answering: Provider) -> None:
    pid_file = tmp_path / "pid"
    misbehaving(tmp_path, answering, "leaves_a_daemon", pid_file=str(pid_file))
    assert not Path(f"/proc/{pid_file.read_text()}").exists()


def test_a_token_budget_stops_the_run_and_says_so(tmp_path: Path, answering: Provider) -> None:
    done = play(tmp_path, answering, "--budget.tokens", "30", "--concurrency", "1", count=5)
    assert done.code == 3
    assert len(done.traces) == 2
    assert "3 of 5 were not played" in done.stdout
    assert "budget" in done.stderr


@pytest.mark.parametrize(("in_flight", "scored"), [("stop", 0), ("finish", 2)])
def test_what_is_in_flight_when_the_budget_is_spent_is_stopped_or_finished(
    in_flight: str, scored: int, tmp_path: Path
) -> None:
    def answer(request: Received) -> Reply:
        last = request.json["messages"][-1]
        return say("paris") if last["role"] == "tool" else call_tool("bash", {"command": "true"})

    with Provider(answer) as provider:
        words = (
            "-H",
            "loop,tools=bash",
            "--budget.tokens",
            "15",
            "--concurrency",
            "2",
            "--budget.in-flight",
            in_flight,
        )
        done = play(tmp_path, provider, *words, count=6)
    assert done.code == 3
    calls = [[call["error"] is None for call in trace["calls"]] for trace in done.traces]
    assert sum(len(made) == 2 for made in calls) == scored
    assert len(done.traces) < 6
    assert "budget" in done.stderr + done.stdout


def test_a_budget_of_seconds_winds_the_run_down_and_scores_what_was_left(
    tmp_path: Path, answering: Provider
) -> None:
    words = ("-H", f"{KIT / 'misbehaving.py'},mode=never_ends", "--budget.seconds", "3", "--concurrency", "1")
    done = play(tmp_path, answering, *words, count=3)
    assert done.code == 3
    assert [(trace["outcome"], trace["stop"]) for trace in done.traces] == [("scored", "budget")]


def test_a_number_that_json_cannot_say_loses_no_rollout_and_none_of_its_numbers(tmp_path: Path) -> None:
    def script(request: Received) -> Reply:
        odd = replace(say("42"), body=say("42", odd=0).body.replace(b'"odd": 0', b'"odd": 1e999'))  # type: ignore[union-attr]
        return odd if b"Question 0" in request.body else say("42")

    with Provider(script) as provider:
        done = play(tmp_path, provider)
    by_task = {trace["task"]["id"]: trace for trace in done.traces}
    assert done.code == 3, done.stderr
    lost, kept = by_task["q0"], by_task["q1"]
    assert (lost["outcome"], lost["error"]["type"], kept["outcome"]) == ("error", "unwritable", "scored")
    assert [node["content"] for node in lost["messages"]] == [None, None]
    lines = (done.run / "results.jsonl").read_text().splitlines()
    results = {result["task"]: result for result in map(json.loads, lines)}
    used = {task: (result["usage"], result["calls"], result["turns"]) for task, result in results.items()}
    assert used["q0"] == used["q1"]
    assert used["q0"][0]["input"] > 0
    assert done.metrics["cells"][0]["input_tokens"] == {"total": 2 * used["q0"][0]["input"], "unknown": 0}


def test_an_interrupt_starts_no_program_that_waits_for_its_turn(tmp_path: Path, answering: Provider) -> None:
    words = (
        "-H",
        f"{KIT / 'misbehaving.py'},mode=says_and_hangs,pid_file={tmp_path / 'pid'}",
        "-m",
        f"m@{answering.url}",
    )
    process = begin(tmp_path, "jsonl", "--taskset.path", tasks(tmp_path, 20), *words)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    done = finish(process, tmp_path)
    assert done.code == 130, done.stderr
    assert {trace["stop"] for trace in done.traces} == {"interrupted"}
    assert sum(len(trace["launches"]) for trace in done.traces) < len(done.traces)


def test_no_more_rollouts_run_at_one_time_than_asked_for(tmp_path: Path) -> None:
    with Provider(lambda request: replace(say("42"), wait_s=0.1)) as provider:
        done = play(tmp_path, provider, "--concurrency", "2", count=8)
    assert done.code == 0
    assert provider.peak == 2


def test_a_directory_that_holds_another_run_is_refused(tmp_path: Path, answering: Provider) -> None:
    assert play(tmp_path, answering, "--output", "mine").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "mine").iterdir() if path.is_file()}
    again = play(tmp_path, answering, "--output", "mine")
    assert again.code == 2
    assert "mine" in again.stderr
    assert {path: path.read_bytes() for path in (tmp_path / "mine").iterdir() if path.is_file()} == before


def test_the_command_that_shows_a_run_is_one_that_finds_it(tmp_path: Path, answering: Provider) -> None:
    done = play(tmp_path, answering, "--runs", "my disk/runs", count=1)
    (run,) = (path for path in (tmp_path / "my disk/runs").iterdir() if not path.is_symlink())
    assert f"hotswap show --run 'my disk/runs/{run.name}'\n" in done.stdout
    (tmp_path / "eval.toml").write_text('runs = "kept"')
    assert play(tmp_path, answering, count=1).stdout.endswith("hotswap show\n")


def test_a_pilot_plays_its_tasks_projects_the_rest_and_stops_without_a_terminal(
    tmp_path: Path, answering: Provider
) -> None:
    done = play(tmp_path, answering, "--pilot", "2", count=5)
    assert done.code == 3
    assert len(done.traces) == 2
    assert re.search(r"3 more would take about .*, 45 tokens, of unknown cost\n", done.stderr), done.stderr


def test_a_pilot_that_is_approved_goes_on_and_plays_nothing_twice(
    tmp_path: Path, answering: Provider
) -> None:
    done = play(tmp_path, answering, "--pilot", "2", "--yes", count=5)
    assert done.code == 0
    assert sorted(trace["task"]["id"] for trace in done.traces) == [f"q{number}" for number in range(5)]


def test_a_pilot_plays_the_first_attempts_alone(tmp_path: Path, answering: Provider) -> None:
    done = play(tmp_path, answering, "--pilot", "2", "-k", "2", count=3)
    assert done.code == 3
    assert sorted((trace["task"]["id"], trace["attempt"]) for trace in done.traces) == [("q0", 0), ("q1", 0)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_tables_that_cannot_be_printed_leave_a_whole_run_directory(
    tmp_path: Path, answering: Provider
) -> None:
    words = ("jsonl", "--taskset.path", tasks(tmp_path), "-m", f"scripted@{answering.url}")
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [PROGRAM, *words],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    done = Done(process.returncode, "", process.stderr, (tmp_path / "runs" / "latest").resolve())
    assert done.code == 3
    assert done.stderr.endswith("hotswap: standard output cannot be written: No space left on device\n")
    assert "Traceback" not in done.stderr
    assert len(done.traces) == 2
    assert done.metrics["total"]["scored"] == 2


def asked_in_a_terminal(folder: Path, provider: Provider, answer: bytes) -> tuple[int, bytes]:
    """Play a pilot in a terminal, answer its question once it is on the screen, and get the exit code and screen."""
    words = ["jsonl", "--taskset.path", tasks(folder, 5), "-m", f"scripted@{provider.url}", "--pilot", "2"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(PROGRAM, [str(PROGRAM), *words], environment(folder, TERM="xterm-256color"))
    screen, answered = b"", False
    try:
        while data := os.read(terminal, 65536):
            screen += data
            if not answered and b"Go on? [y/N]" in screen:
                os.write(terminal, answer)
                answered = True
    except OSError:  # the other end is closed
        pass
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), screen


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"what\ny\n", 0), (b"n\n", 3)])
def test_a_pilot_in_a_terminal_asks_below_its_projection_with_the_bar_out_of_the_way(
    tmp_path: Path, answering: Provider, answer: bytes, code: int
) -> None:
    ended, screen = asked_in_a_terminal(tmp_path, answering, answer)
    assert ended == code, screen
    projected, question = screen.index(b"3 more would take about"), screen.index(b"Go on? [y/N]")
    assert projected < question
    assert "\N{BOX DRAWINGS HEAVY HORIZONTAL}".encode() not in screen[projected:question]


def in_flight(provider: Provider, count: int) -> None:
    """Wait until so many requests have arrived."""
    deadline = time.monotonic() + 60
    while len(provider.requests) < count:
        assert time.monotonic() < deadline, "the requests did not arrive"
        time.sleep(0.01)


def left_of(folder: Path) -> list[str]:
    """Processes whose environment or command line names a test's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(folder).encode() in told and state != "Z":
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def hanging(folder: Path, provider: Provider) -> subprocess.Popen[str]:
    """Start four rollouts in boxes below `folder`, and wait until each waits for its model."""
    (folder / "boxes").mkdir()
    words = ("-m", f"scripted@{provider.url}", "--runtime.local.root", str(folder / "boxes"))
    process = begin(folder, "jsonl", "--taskset.path", tasks(folder, 6), "--concurrency", "4", *words)
    in_flight(provider, 4)
    return process


def test_ctrl_c_ends_the_run_in_order_and_writes_what_was_in_flight_as_interrupted(tmp_path: Path) -> None:
    with Provider(lambda request: replace(say("42"), hold=threading.Event())) as provider:
        process = hanging(tmp_path, provider)
        process.send_signal(signal.SIGINT)
        done = finish(process, tmp_path)
    assert done.code == 130, done.stderr
    assert [(trace["outcome"], trace["stop"]) for trace in done.traces] == [("error", "interrupted")] * 4
    assert "2 of 6 were not played" in done.stdout
    assert left_of(tmp_path) == []
    assert list((tmp_path / "boxes").iterdir()) == []


@pytest.mark.parametrize("presses", [1, 2])
def test_an_interrupt_with_everything_in_flight_is_an_interrupt_and_no_finished_run(
    tmp_path: Path, presses: int
) -> None:
    with Provider(lambda request: replace(say("42"), hold=threading.Event())) as provider:
        words = ("-m", f"scripted@{provider.url}", "--allow-errors", "100%")
        process = begin(tmp_path, "jsonl", "--taskset.path", tasks(tmp_path, 3), *words)
        in_flight(provider, 3)
        for number in (signal.SIGINT, signal.SIGTERM)[:presses]:
            process.send_signal(number)
        done = finish(process, tmp_path)
    assert done.code == 130, done.stderr
    assert [(trace["outcome"], trace["stop"]) for trace in done.traces] == [("error", "interrupted")] * 3


def test_a_budget_that_cuts_the_last_rollouts_short_leaves_the_run_incomplete(tmp_path: Path) -> None:
    with Provider(lambda request: call_tool("bash", {"command": "true"})) as provider:
        done = play(tmp_path, provider, "-H", "loop,tools=bash", "--budget.tokens", "100", count=2)
    assert done.code == 3, done.stderr
    assert {trace["stop"] for trace in done.traces} == {"budget"}
    assert "budget" in done.stderr


def test_a_second_ctrl_c_stops_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    with Provider(lambda request: replace(say("42"), hold=threading.Event())) as provider:
        process = hanging(tmp_path, provider)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        done = finish(process, tmp_path)
    assert done.code == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert done.metrics["total"]["planned"] == 6  # the tables are written all the same
    assert left_of(tmp_path) == []
    assert list((tmp_path / "boxes").iterdir()) == []


def test_after_kill_9_no_process_and_no_box_is_left_and_finished_rollouts_are_kept(tmp_path: Path) -> None:
    def script(request: Received) -> Reply:
        return say("42") if b"Question 0" in request.body else replace(say(""), hold=threading.Event())

    with Provider(script) as provider:
        process = hanging(tmp_path, provider)
        in_flight(provider, 5)  # the first was answered, and the next has begun
        process.kill()
        done = finish(process, tmp_path)
        deadline = time.monotonic() + 30
        while (left_of(tmp_path) or list((tmp_path / "boxes").iterdir())) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert left_of(tmp_path) == []
    assert list((tmp_path / "boxes").iterdir()) == []
    assert [trace["task"]["id"] for trace in done.traces] == ["q0"]
