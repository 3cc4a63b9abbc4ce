"""`show` prints what happened in a rollout, of the run and the rollouts that were asked for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _kit.check import check_trace
from _kit.traces import cell, failed, fault, full, scored

from hotswap.messages import ToolCall
from hotswap.store import RunDirectory, RunInfo, point_latest
from hotswap.trace import Branch, LaunchRecord, Node, Trace, Try

APP = """
import sys, typer
from hotswap.cli.show import show
from hotswap.errors import UsageError
app = typer.Typer(add_completion=False)
app.command()(show)
try:
    app(standalone_mode=False)
except UsageError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
"""


def write(folder: Path, name: str, *traces: Trace) -> Path:
    with RunDirectory.create(folder / "runs" / name, RunInfo(name, "", {})) as run:
        for trace in traces:
            run.append(trace)
    point_latest(folder / "runs", run.path)
    return run.path


def call(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    kept = {key: value for key, value in os.environ.items() if key not in ("UV", "FORCE_COLOR", "COLUMNS")}
    return subprocess.run(
        [sys.executable, "-c", APP, *arguments],
        cwd=folder,
        capture_output=True,
        env={**kept, "HOTSWAP_USER_FILE": "", "PYTHONIOENCODING": "utf-8", **environment},
        timeout=60,
    )


def show(folder: Path, *arguments: str, **environment: str) -> str:
    done = call(folder, *arguments, **environment)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_the_latest_run_is_shown_with_scores_conversation_and_logs(tmp_path: Path) -> None:
    write(tmp_path, "quiz--1", scored("old"))
    path = write(tmp_path, "quiz--2", scored("fr"))
    logs = path / "logs/01FR0"
    logs.mkdir(parents=True)
    (logs / "stderr").write_text("warning")
    said = show(tmp_path)
    assert "01FR0  quiz/loop/small/local  task fr  attempt 0" in said
    assert "scored 1.00" in said
    assert '  reward right = 1.00  (extracted "Paris"; expected "Paris"; names it)' in said
    assert "  [system] Be brief.\n  [user] Capital of fr?\n  [assistant] It is Paris.\n" in said
    assert "logs/01FR0/stderr" in said
    assert "old" not in said


def test_an_error_is_shown_with_blame_stage_message_and_detail(tmp_path: Path) -> None:
    error = fault("harness", type="exit_code", message="exited with code 3", detail="Traceback\n  line 1")
    tries = [Try(fault("provider")), Try(error)]
    write(tmp_path, "q--1", failed("de", error=error, tries=tries, launches=[LaunchRecord("main", 3, None)]))
    said = show(tmp_path)
    assert "not scored" in said
    assert "  [try 1 failed: provider, in agent, overloaded] Overloaded (HTTP 529)\n" in said
    assert (
        "  [error: harness, in agent, exit_code] exited with code 3\n  [detail] Traceback\n      line 1\n"
        in said
    )
    assert "2 tries" in said
    assert "exit code 3" in said


def test_every_part_of_a_trace_has_its_place(tmp_path: Path) -> None:
    write(tmp_path, "q--1", full())
    said = show(tmp_path)
    assert "-- main: 5 messages" in said
    assert "-- side (title): 1 message" in said
    assert '[assistant calls bash c1] {"cmd":' in said
    assert "[tool c1] no" in said
    assert "[assistant, thinking] hm" in said
    assert "[assistant, refusing] no" in said
    assert "[noted: harness, in agent, timeout] the time limit of 5 s was reached" in said


def test_what_made_no_call_has_used_nothing_as_in_the_tables(tmp_path: Path) -> None:
    write(tmp_path, "q--1", failed("de"))
    assert "0 tokens in, 0 out · $0.00" in show(tmp_path)


def test_failed_shows_errors_first_then_what_was_wrong(tmp_path: Path) -> None:
    write(tmp_path, "q--1", scored("a", reward=0.0), scored("b"), failed("c"), scored("d", reward=0.5))
    said = show(tmp_path, "--failed")
    order = [line.split()[3] for line in said.splitlines() if line.startswith(("01", "02"))]
    assert order == ["c", "a", "d"]
    write(tmp_path, "q--2", scored("b"))
    assert show(tmp_path, "--failed") == "Run q--2: no rollout failed.\n"


@pytest.mark.parametrize("part", ["01it", "IT0", "01IT0", "it"])
def test_rollouts_are_named_by_the_ends_of_their_ids_or_by_their_task(tmp_path: Path, part: str) -> None:
    write(tmp_path, "q--1", scored("fr"), scored("it"))
    said = show(tmp_path, part)
    assert "task it" in said
    assert "task fr" not in said


def test_several_rollouts_are_shown_once_each_in_the_order_given(tmp_path: Path) -> None:
    write(tmp_path, "q--1", scored("fr"), scored("it"), scored("de"))
    lines = show(tmp_path, "it", "fr", "01IT0").splitlines()
    assert [line.split()[3] for line in lines if line.startswith("01")] == ["it", "fr"]


def test_another_run_is_shown_by_name_beginning_or_path_and_from_another_folder(tmp_path: Path) -> None:
    write(tmp_path, "quiz--1", scored("one"))
    write(tmp_path, "quiz--2", scored("two"))
    for run in ("quiz--1", str(tmp_path / "runs/quiz--1")):
        assert "task one" in show(tmp_path, "--run", run)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "task two" in show(elsewhere, "--runs", "../runs")
    assert "task two" in show(elsewhere, HOTSWAP_RUNS="../runs")
    (elsewhere / "eval.toml").write_text('runs = "../runs"\nnonsense = 1\n')
    assert "task two" in show(elsewhere)


def test_what_cannot_be_shown_is_said_in_one_line(tmp_path: Path) -> None:
    done = call(tmp_path)
    assert (done.returncode, done.stderr) == (2, b"there is no run in runs yet\n")
    write(tmp_path, "q--1")
    assert b"has no finished rollout yet\n" in call(tmp_path).stderr
    write(tmp_path, "q--2", scored())
    assert b"run q--2 has no rollout 'zz'. To list them: hotswap show\n" in call(tmp_path, "zz").stderr
    assert b"no run 'other' in runs. The newest: q--2, q--1\n" in call(tmp_path, "--run", "other").stderr


def test_the_newest_runs_are_named_by_their_time_whatever_they_are_called(tmp_path: Path) -> None:
    for name in ("z--1", "m--2", "b--3", "x--4", "a--5"):
        write(tmp_path, name)
    assert b"The newest: a--5, x--4, b--3\n" in call(tmp_path, "--run", "other").stderr


def test_a_recording_in_the_place_of_a_run_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    from hotswap.exchanges.cassette import Recording, save

    save(Recording(tmp_path, "q--1", ()), tmp_path / "kept.recorded")
    refused = call(tmp_path, "--run", "kept.recorded")
    assert refused.returncode == 2
    assert b"kept.recorded is a recording, and has no traces to show" in refused.stderr
    assert b"hotswap record list kept.recorded" in refused.stderr
    assert b"no run 'gone.recorded'" in call(tmp_path, "--run", "gone.recorded").stderr


def test_json_is_the_traces_and_nothing_else(tmp_path: Path) -> None:
    odd = scored("fr", answer="lone \udc80 and \u2028")
    write(tmp_path, "q--1", odd, scored("it"))
    lines = call(tmp_path, "--json", PYTHONIOENCODING="ascii").stdout.splitlines()
    for line in lines:
        check_trace(line)
    assert [json.loads(line)["task"]["id"] for line in lines] == ["fr", "it"]
    odd.answer = "lone \\udc80 and \u2028"  # spelled out: half of a pair is in no file
    assert Trace.from_line(lines[0]) == odd


def test_output_is_bounded_says_so_and_full_leaves_nothing_out(tmp_path: Path) -> None:
    long = scored("long")
    long.messages = [
        Node(at, at - 1 if at else None, "user", f"message {at} " + "x" * 5000) for at in range(50)
    ]
    long.branches = [Branch(49)]
    write(tmp_path, "q--1", long)
    said = show(tmp_path)
    assert len(said) < 80_000
    assert "[... 20 messages left out ...]" in said
    assert "characters left out ...]" in said
    assert "Long texts were shortened. In full: hotswap show ID --full" in said
    assert "message 0 " in said
    assert "message 49 " in said
    everything = show(tmp_path, "--full")
    assert all(f"message {at} " in everything for at in range(50))
    assert "left out" not in everything


def test_of_many_rollouts_the_first_are_shown_and_the_others_listed(tmp_path: Path) -> None:
    write(tmp_path, "q--1", *(scored(f"t{at:02}") for at in range(60)))
    said = show(tmp_path)
    assert said.count("[assistant]") == 5
    assert "01T050  quiz/loop/small/local  t05  attempt 0  1.00" in said
    assert "... and 15 more.\n55 more rollouts in run q--1." in said
    assert show(tmp_path, "--full").count("[assistant]") == 60


def test_the_command_for_the_rest_keeps_the_flags_that_were_given(tmp_path: Path) -> None:
    path = write(tmp_path, "q--1", *(failed(f"t{at:02}") for at in range(9)))
    path.parent.rename(tmp_path / "my {runs}")
    said = show(tmp_path, "--failed", "--runs", "my {runs}", "--run", "q--1")
    again = "hotswap show --run q--1 --runs 'my {runs}' --failed"
    assert f"4 more rollouts in run q--1. One of them: {again} ID. All: {again} --full\n" in said


@pytest.mark.parametrize("columns", ["20", "200"])
def test_nothing_in_a_trace_can_steer_the_terminal_and_any_locale_will_do(
    tmp_path: Path, columns: str
) -> None:
    odd = scored("fr", cell=cell("q[bold]/loop/small/local"), answer="[red]no markup[/red] \udcff")
    odd.messages[2].content = [
        {"type": "text", "text": "\x1b[2J bell \x07 数"},
        {"type": "image", "data": "x"},
        None,
    ]
    odd.messages[2].tool_calls = [ToolCall("c\x1b", "bash", '{"a": "\x9b"}')]
    write(tmp_path, "q--1", odd)
    for encoding in ("ascii", "cp1252", "utf-8"):
        done = call(tmp_path, PYTHONIOENCODING=encoding, COLUMNS=columns, LANG="C")
        assert done.returncode == 0, done.stderr
        assert b"\x1b" not in done.stdout
        assert b"\x07" not in done.stdout
        assert b"\\u001b[2J bell" in done.stdout
        assert b"[red]no markup[/red]" in done.stdout
        assert b"[image, " in done.stdout


def test_a_trace_without_a_branch_still_shows_its_messages(tmp_path: Path) -> None:
    record = failed()
    record.messages = [Node(0, None, "user", "Hello?")]
    write(tmp_path, "q--1", record)
    assert "[user] Hello?" in show(tmp_path)


def test_parts_of_every_dialect_are_shown_once_and_kept_payloads_by_their_place(tmp_path: Path) -> None:
    record = scored()
    blob = {"blob": "sha256:" + "a" * 64, "media_type": "image/png", "bytes": 7}
    record.messages[1].content = [
        {"type": "input_text", "text": "See."},
        {"type": "image", "source": {"type": "base64", "data": blob}},
    ]
    record.messages[2].content = [
        {"type": "thinking", "thinking": "hidden"},
        {"type": "message", "content": [{"type": "output_text", "text": "It is Paris."}]},
        {"type": "function_call", "arguments": "hidden"},
        {"type": "web_search_call"},
    ]
    record.branches.append(Branch(1, "compacted", forked=0, drift=True))
    write(tmp_path, "q--1", record)
    shown = show(tmp_path)
    assert f"See.[image, image/png, 7 bytes, blobs/{'a' * 64}]" in shown
    assert "It is Paris.[web_search_call, 27 characters]" in shown
    assert "hidden" not in shown
    assert "compacted: 0 messages, left behind when the history was rewritten" in shown
