"""What a run does to its programs on purpose, and what it needs of the system."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

from _kit.evals import PROGRAM, environment, evaluate
from _kit.provider import Provider, say


def test_misbehaviour_is_the_same_in_every_run_and_marked_on_its_calls(tmp_path: Path) -> None:
    faults = []
    for _ in range(2):
        with Provider(lambda received: say("abc")) as provider:
            done = evaluate(
                tmp_path, "reverse_text", "-m", f"scripted@{provider.url}", "-n", "20", "--chaos", "500:0.5"
            )
        drawn = {trace["task"]["id"]: [call["fault"] for call in trace["calls"]] for trace in done.traces}
        faults.append(drawn)
        for trace in done.traces:
            failed = trace["outcome"] == "error"
            assert failed == (trace["calls"][-1]["fault"] == "500")
            assert not failed or trace["error"]["blame"] == "harness"
    assert faults[0] == faults[1]
    assert 0 < sum("500" in calls for calls in faults[0].values()) < 20


def test_what_is_no_misbehaviour_is_refused_before_the_run(tmp_path: Path) -> None:
    done = evaluate(tmp_path, "capitals", "-m", "x@http://127.0.0.1:9/v1", "--chaos", "sloth:0.1")
    assert done.code == 2
    assert "--chaos" in done.stderr
    assert "'sloth' is no misbehaviour: one of 400, " in done.stderr


def test_more_rollouts_at_a_time_than_files_allow_are_refused_with_what_would_do(tmp_path: Path) -> None:
    words = ["capitals", "-m", "x@http://127.0.0.1:9/v1", "--concurrency", "500"]
    done = subprocess.run(
        [PROGRAM, *words],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300)),
    )
    assert done.returncode == 2
    assert "concurrency = 500 needs about 5064 open files, and this process may have 300" in done.stderr
    assert "--concurrency 23" in done.stderr


def test_a_run_that_spoils_calls_says_so_from_its_first_line_to_every_later_look_at_it(
    tmp_path: Path,
) -> None:
    words = ("reverse_text", "-n", "20", "--chaos", "500:0.5")
    with Provider(lambda received: say("abc")) as provider:
        model = ("-m", f"scripted@{provider.url}")
        done = evaluate(tmp_path, *words, *model)
        dry = evaluate(tmp_path, *words, *model, "--dry-run")
        clean = evaluate(tmp_path, "reverse_text", "-n", "2", *model, "--runs", "clean")
    calls = [call for trace in done.traces for call in trace["calls"]]
    hit = sum(call["fault"] == "500" for call in calls)
    assert 0 < hit < len(calls)
    said = f"Misbehaviour on purpose: 500:0.5; {hit} of {len(calls)} calls were hit"
    assert "Misbehaviour on purpose: 500:0.5" in done.stderr.splitlines()[0]
    assert dry.stdout.endswith("No model was called.\nMisbehaviour on purpose: 500:0.5.\n")
    looks = [done.stdout, (done.run / "metrics.md").read_text()]
    looks += [
        evaluate(tmp_path, *look).stdout for look in (("list", "runs"), ("show", "--run", str(done.run)))
    ]
    for look in looks:
        assert said in " ".join(look.split())
    assert (done.metrics["total"]["chaos"], done.metrics["total"]["faults"]) == ("500:0.5", hit)
    assert "isbehaviour" not in clean.stderr + clean.stdout


def test_an_error_that_was_put_in_says_its_status_once(tmp_path: Path) -> None:
    with Provider(lambda received: say("abc")) as provider:
        words = ("reverse_text", "-n", "1", "--chaos", "500:1", "-m", f"scripted@{provider.url}")
        done = evaluate(tmp_path, *words)
    assert done.stdout.count("put in on purpose") == 1
    assert "HTTP 500: HTTP 500" not in done.stdout


def test_the_tables_of_a_replay_say_that_its_faults_were_put_in(tmp_path: Path) -> None:
    with Provider(lambda _: say("x")) as provider:
        words = ("reverse_text", "-n", "1", "--chaos", "500:1", "-m", f"scripted@{provider.url}")
        evaluate(tmp_path, *words, "--output", "spoilt")
    again = evaluate(tmp_path, "reverse_text", "-n", "1", "-m", "replay:spoilt")
    hit = again.metrics["total"]["faults"]
    assert hit > 0
    assert f"Misbehaviour on purpose: as it was recorded; {hit} of {hit} calls were hit." in again.stdout
