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
