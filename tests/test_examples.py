"""The examples, as they stand: each is one file, and one flag runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from _kit.docs import ROOT, answer
from _kit.evals import Done, evaluate
from _kit.provider import Provider

EXAMPLES = ROOT / "examples"
ABOUT_30_LINES = 40


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_says_how_it_is_run(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= ABOUT_30_LINES
    assert f"./examples/{path.name}" in text.split('"""')[1]


def test_the_taskset_scores_each_of_its_tasks(tmp_path: Path) -> None:
    done, _ = play(tmp_path, str(EXAMPLES / "capital_quiz.py"))
    assert rewards(done) == {"fr": 1.0, "jp": 1.0}


def test_the_harness_asks_once_in_its_own_words_and_its_output_is_the_answer(tmp_path: Path) -> None:
    harness = f"{EXAMPLES / 'ask_once.py'},style=Be brief."
    done, provider = play(tmp_path, "capitals", "-n", "1", "-H", harness)
    (request,) = provider.posts
    assert request.json["messages"][0]["content"].startswith("Be brief.\n\nWhat is the capital of France?")
    assert [trace["answer"] for trace in done.traces] == ["Paris."]
    assert rewards(done) == {"france": 1.0}


def test_the_runtime_starts_programs_at_the_lowest_priority(tmp_path: Path) -> None:
    (tmp_path / "priority.py").write_text(PRIORITY)
    words = ("capitals", "-n", "1", "-r", str(EXAMPLES / "patient.py"), "-H", "./priority.py")
    done, _ = play(tmp_path, *words)
    assert [trace["answer"] for trace in done.traces] == ["19"]
    assert [trace["cell"]["runtime"] for trace in done.traces] == ["patient"]


def test_rows_of_questions_are_scored_by_a_scorer_by_name(tmp_path: Path) -> None:
    path = str(EXAMPLES / "questions.jsonl")
    done, _ = play(tmp_path, "jsonl", "--taskset.path", path, "--taskset.scorer", "contains")
    assert rewards(done)["planet"] == 1.0
    assert set(rewards(done).values()) == {0.0, 1.0}


def test_a_table_of_sums_is_asked_by_a_template(tmp_path: Path) -> None:
    settings = {
        "path": str(EXAMPLES / "sums.csv"),
        "prompt": "What is {first} plus {second}?",
        "answer": "{total}",
        "scorer": "last_number",
    }
    words = [word for name, value in settings.items() for word in (f"--taskset.{name}", value)]
    done, _ = play(tmp_path, "jsonl", *words)
    assert set(rewards(done).values()) == {1.0}


PRIORITY = '''
from hotswap import Finish, Harness, Job, Launch

PROGRAM = """
import json, os, urllib.request
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
headers = {"authorization": "Bearer " + os.environ["KEY"], "content-type": "application/json"}
urllib.request.urlopen(urllib.request.Request(os.environ["URL"], body, headers)).read()
print(os.nice(0))
"""


class Priority(Harness):
    """A program that answers with its own priority."""

    def launch(self, job: Job) -> Launch:
        env = {"URL": f"{job.endpoint.url}/v1/chat/completions", "KEY": job.endpoint.key}
        return Launch(argv=("python3", "-c", PROGRAM), env=env)

    def conclude(self, result) -> Finish:
        return Finish(answer=result.stdout.text.strip())
'''


def play(folder: Path, *words: str) -> tuple[Done, Provider]:
    """Run an eval on the scripted provider, and see that it was complete."""
    with Provider(answer) as provider:
        done = evaluate(folder, *words, "-m", f"scripted@{provider.url}")
    assert done.code == 0, done.stderr
    return done, provider


def rewards(done: Done) -> dict[str, float]:
    """The reward of each task."""
    return {trace["task"]["id"]: trace["reward"] for trace in done.traces}
