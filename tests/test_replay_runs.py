"""Whole runs that are replayed: the same answers and rewards, without network and without a key."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from _kit.evals import Done, evaluate
from _kit.provider import Provider, Received, Reply, call_tool, fail, say

from hotswap.exchanges.recorded import frames

PRINTS = "env; cat /proc/$PPID/environ | tr '\\0' '\\n'"
"""A command that prints what a program was given."""


def cassette(folder: Path, script: Any, *words: str) -> Done:
    with Provider(script) as provider:
        done = evaluate(folder, *words, "-m", f"scripted@{provider.url}")
        assert done.code == 0, done.stderr
        assert provider.posts
    return done


def outcomes(done: Done) -> list[tuple[Any, ...]]:
    return sorted((one["task"]["id"], one["attempt"], one["answer"], one["reward"]) for one in done.traces)


def capitals(request: Received) -> Reply:
    question = request.json["messages"][-1]["content"]
    return say("Paris" if "France" in question else f"I do not know: {question}")


def test_a_run_is_replayed_strictly_without_network_to_the_same_answers_and_rewards(tmp_path: Path) -> None:
    before = cassette(tmp_path, capitals, "capitals", "-n", "3", "-k", "2")
    after = evaluate(tmp_path, "capitals", "-n", "3", "-k", "2", "-m", f"replay:{before.run.name}")
    assert after.code == 0, after.stderr
    assert outcomes(after) == outcomes(before)
    assert {one["reward"] for one in after.traces} == {0.0, 1.0}
    for one in after.traces:
        assert one["cell"]["model"] == f"replay:{before.run.name}"
        assert one["cell"]["name"] == f"capitals/loop/replay:{before.run.name}/local"
        assert [call["replayed"] for call in one["calls"]] == [True]
        assert one["cost_usd"] == 0


def test_a_changed_prompt_fails_strictly_with_the_difference_and_passes_loosely(tmp_path: Path) -> None:
    before = cassette(tmp_path, capitals, "capitals", "-n", "2")
    words = ["capitals", "-n", "2", "--harness.loop.system", "Be brief."]
    strict = evaluate(tmp_path, *words, "-m", "replay:latest")
    assert strict.code == 3
    for one in strict.traces:
        assert (one["outcome"], one["error"]["blame"], one["error"]["type"]) == (
            "error",
            "provider",
            "replay",
        )
        assert "differs from request 1 of task" in one["error"]["message"]
        assert "at messages" in one["error"]["message"]
        assert len(one["tries"]) == 1
    loose = evaluate(tmp_path, *words, "-m", f"replay:{before.run},mode=loose")
    assert loose.code == 0, loose.stderr
    assert outcomes(loose) == outcomes(before)


def test_a_program_that_runs_tools_is_replayed_from_a_file_in_another_folder(tmp_path: Path) -> None:
    def script(request: Received) -> Reply:
        messages = request.json["messages"]
        tools = sum(message["role"] == "tool" for message in messages)
        return (
            call_tool("bash", {"command": f"pwd; echo {tools}; date"}, id=f"c{tools}")
            if tools < 3
            else say("Paris")
        )

    words = ["capitals", "-n", "1", "-H", "loop,tools=bash"]
    before = cassette(tmp_path, script, *words)
    kept = tmp_path / "kept.recorded"
    assert evaluate(tmp_path, "record", "save", "latest", str(kept)).code == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    after = evaluate(elsewhere, *words, "-m", f"replay:{kept}")
    assert after.code == 0, after.traces[0]["error"]
    assert outcomes(after) == outcomes(before)
    assert len(after.traces[0]["calls"]) == 4
    assert after.traces[0]["cell"]["name"] == "capitals/loop,tools=bash/replay:kept.recorded/local"


def test_what_the_recording_lacks_is_said_before_the_run_and_is_an_error_of_its_rollout(
    tmp_path: Path,
) -> None:
    cassette(tmp_path, capitals, "capitals", "-n", "1")
    done = evaluate(tmp_path, "capitals", "-n", "2", "-k", "2", "-m", "replay:latest")
    assert done.code == 3
    assert "3 of 4 rollouts are not recorded, and they will have no score: " in done.stderr.replace("\n", " ")
    errors = {(one["task"]["id"], one["attempt"]): one["error"] for one in done.traces}
    assert errors.pop(("france", 0)) is None
    assert {(error["blame"], error["type"]) for error in errors.values()} == {("provider", "replay")}
    assert "has no attempt 1 of task 'france', only 0" in errors["france", 1]["message"]
    assert len(done.traces) == 4


def test_a_fallback_answers_what_is_not_recorded_and_the_mix_is_counted(tmp_path: Path) -> None:
    before = cassette(tmp_path, capitals, "capitals", "-n", "1")
    with Provider(lambda _: say("live")) as provider:
        model = f"replay:{before.run.name},fallback=scripted@{provider.url}"
        done = evaluate(tmp_path, "capitals", "-n", "2", "-m", model)
        assert done.code == 0, done.stderr
        assert len(provider.posts) == 1
    assert sorted(one["answer"] for one in done.traces) == ["Paris", "live"]
    assert "1 calls replayed, 1 live (mixed)" in done.stderr.replace("\n", " ")
    assert {one["answer"]: one["cost_usd"] for one in done.traces} == {"Paris": 0, "live": None}
    assert "The cost of 1 of 2 rollouts is not known." in done.stdout
    assert "+ behind a sum: at least so much" in done.stdout
    counted = {one["answer"]: one["metrics"] for one in done.traces}
    assert (counted["Paris"]["replayed_calls"], counted["Paris"]["live_calls"]) == (1, 0)
    assert (counted["live"]["replayed_calls"], counted["live"]["live_calls"]) == (0, 1)


def test_nothing_is_recorded_with_raw_off_and_replay_says_so(tmp_path: Path) -> None:
    done = cassette(tmp_path, capitals, "capitals", "-n", "1", "--raw", "off")
    assert not (done.run / "exchanges").exists()
    refused = evaluate(tmp_path, "capitals", "-n", "1", "-m", "replay:latest")
    assert refused.code == 2
    assert "no recorded exchanges: it was made with --raw off" in refused.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-m", "replay:"], "replay needs a run"),
        (["-m", "replay:gone"], "no run 'gone'"),
        (
            ["-m", "replay:gone.recorded"],
            "no such file 'gone.recorded': a run is kept in one by `eval record save",
        ),
        (["-m", "replay:tests/gone"], "no such file 'tests/gone'"),
        (["-m", "replay:latest,mode=lose"], "expected one of strict, loose"),
        (["-m", "replay:latest,mode=loose,fallback=smollm2"], "fallback is for the strict mode"),
        (["-m", "replay:latest,of=other"], "nothing in it is of 'other'"),
        (["-m", "replay:latest,temperature=1"], "has no setting 'temperature'"),
        (["-m", "replay:latest", "--sampling.temperature", "1"], "needs mode=loose"),
        (["-m", "replay:latest", "-H", "./ask.py"], "was recorded with harness loop"),
        (["-m", "replay:latest", "--select", "japan"], "nothing of it is recorded: "),
    ],
)
def test_what_cannot_be_replayed_is_refused_in_one_line(
    tmp_path: Path, words: Sequence[str], said: str
) -> None:
    cassette(tmp_path, capitals, "capitals", "-n", "1")
    source = Path(__file__).parent.parent / "examples" / "ask_once.py"
    (tmp_path / "ask.py").write_bytes(source.read_bytes())
    done = evaluate(tmp_path, "capitals", "-n", "1", *words)
    assert done.code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_recording_of_two_models_is_asked_which(tmp_path: Path) -> None:
    with Provider(capitals) as provider:
        models = ["-m", f"one@{provider.url}", "-m", f"two@{provider.url}"]
        assert evaluate(tmp_path, "capitals", "-n", "1", *models).code == 0
    run = (tmp_path / "runs" / "latest").resolve().name
    refused = evaluate(tmp_path, "capitals", "-n", "1", "-m", f"replay:{run}")
    assert refused.code == 2
    assert "was recorded with one@" in refused.stderr
    typed = [f"-m replay:{run},of={name}@{provider.url}" for name in ("one", "two")]
    assert f"Choose one: {' or '.join(typed)}\n" in refused.stderr
    done = evaluate(tmp_path, "capitals", "-n", "1", "-m", f"replay:{run},of=two@*")
    assert done.code == 0, done.stderr
    assert [one["answer"] for one in done.traces] == ["Paris"]


def test_a_recording_of_several_cells_says_what_to_type_for_each_and_that_works(tmp_path: Path) -> None:
    def script(request: Received) -> Reply:
        return say(f"at {request.json.get('temperature')}")

    with Provider(script) as provider:
        models = [f"one@{provider.url}", f"one@{provider.url},temperature=0.5,seed=2"]
        words = ["-m", models[0], "-m", models[1]]
        assert evaluate(tmp_path, "capitals", "-n", "1", *words, "--output", "both").code == 0
    refused = evaluate(tmp_path, "capitals", "-n", "1", "-m", "replay:both,mode=loose")
    assert refused.code == 2
    typed = re.search(r"Choose one: (.*) or (.*)\n", refused.stderr)
    assert typed is not None, refused.stderr
    answers = set()
    for choice in typed.groups():
        done = evaluate(tmp_path, "capitals", "-n", "1", *shlex.split(choice))
        assert done.code == 0, done.stderr
        assert "replay:both,mode=loose" in done.traces[0]["cell"]["name"]
        answers |= {one["answer"] for one in done.traces}
    assert answers == {"at None", "at 0.5"}


def test_no_secret_of_a_run_is_in_what_it_recorded(tmp_path: Path) -> None:
    """Not the provider's key, and not the rollout's own, which its program could print."""
    key = "canary-provider-0001"

    def script(request: Received) -> Reply:
        done = any(message["role"] == "tool" for message in request.json["messages"])
        return say(f"Paris {key}") if done else call_tool("bash", {"command": PRINTS})

    with Provider(script) as provider:
        model = f"scripted@{provider.url}?key=MY_KEY"
        done = evaluate(
            tmp_path, "capitals", "-n", "1", "-H", "loop,tools=bash", "-m", model, env={"MY_KEY": key}
        )
        assert done.code == 0, done.stderr
        given = {request.headers.get("authorization", "") for request in provider.posts}
        assert given == {f"Bearer {key}"}
    (path,) = (done.run / "exchanges").iterdir()
    data = frames(path)
    assert key.encode() not in data
    assert b"[secret:key of" in data
    assert b"uthorization" not in data


def test_a_tasks_last_try_is_what_is_replayed(tmp_path: Path) -> None:
    """The first try fails for the provider's sake, and the second has another answer."""
    tries: list[int] = []

    def script(request: Received) -> Reply:
        tries.append(1)
        return fail(500, "down") if len(tries) == 1 else say("Paris")

    before = cassette(tmp_path, script, "capitals", "-n", "1", "--calls.retries", "0")
    assert len(before.traces[0]["tries"]) == 2
    after = evaluate(tmp_path, "capitals", "-n", "1", "-m", "replay:latest")
    assert after.code == 0, after.stderr
    assert outcomes(after) == outcomes(before)


def test_a_run_with_misbehaviour_is_replayed_to_the_same_outcomes_blames_and_faults(tmp_path: Path) -> None:
    def ends(done: Done) -> list[Any]:
        return sorted(
            (
                one["task"]["id"],
                one["outcome"],
                (one["error"] or {}).get("blame"),
                one["reward"],
                *tuple((call["fault"], (call["error"] or {}).get("type")) for call in one["calls"]),
            )
            for one in done.traces
        )

    words = ("reverse_text", "-n", "12")
    with Provider(lambda received: say("abc")) as provider:
        chaos = ("--chaos", "500:0.3,cut:0.3", "-m", f"scripted@{provider.url}")
        before = evaluate(tmp_path, *words, *chaos)
    after = evaluate(tmp_path, *words, "-m", f"replay:{before.run.name}")
    assert ends(after) == ends(before)
    assert {call["fault"] for one in after.traces for call in one["calls"]} == {"500", "cut", None}
    assert after.code == before.code
    assert after.metrics["total"]["faults"] == before.metrics["total"]["faults"] > 0
