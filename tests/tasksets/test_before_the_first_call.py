"""What is wrong with the tasks of a run is said before a model is called, all of it at once, with file and line."""

import json
from pathlib import Path

from _kit.evals import Done, evaluate
from _kit.provider import Provider, say

ROWS = [
    {"id": "good", "prompt": "p", "answer": "42"},
    {"id": "null 1", "prompt": "p", "answer": None},
    {"id": "also good", "prompt": "p", "answer": "42"},
    {"id": "null-2", "prompt": "p", "answer": None},
]


def play(folder: Path, *words: str, rows: list[dict[str, object]] = ROWS) -> tuple[Done, int]:
    """The eval's end, and how often the model was called."""
    (folder / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with Provider(lambda _: say("42")) as provider:
        done = evaluate(
            folder, "jsonl", "--taskset.path", "q.jsonl", "-m", f"scripted@{provider.url}", *words
        )
        return done, len(provider.posts)


def test_rows_whose_answer_is_null_are_all_named_before_the_first_call(tmp_path: Path) -> None:
    done, calls = play(tmp_path)
    assert (done.code, calls) == (2, 0)
    null = "taskset.answer is '{answer}', which is null in this row: scorer 'exact' cannot score it"
    assert done.stderr.splitlines()[-3:] == [
        f"hotswap: q.jsonl:2: {null}",
        f"hotswap: q.jsonl:4: {null}",
        "hotswap: to run without such a task, leave it out: --exclude 'null 1'",
    ]
    assert not (tmp_path / "runs").exists()


def test_rows_without_the_column_are_named_with_those_that_are_wrong_otherwise(tmp_path: Path) -> None:
    rows = [ROWS[0], {"id": "x", "prompt": "p"}, {"id": "y", "prompt": "", "answer": "1"}]
    done, calls = play(tmp_path, rows=rows)
    assert (done.code, calls) == (2, 0)
    assert [line.split(": ")[1] for line in done.stderr.splitlines()[-2:]] == ["q.jsonl:2", "q.jsonl:3"]


def test_tasks_that_a_run_does_not_use_are_no_trouble_to_it(tmp_path: Path) -> None:
    for words in (("-n", "1"), ("--exclude", "null*"), ("--select", "good", "--select", "2")):
        done, calls = play(tmp_path, *words)
        assert done.code == 0, done.stderr
        assert calls == len(done.traces)
        assert all("problem" not in trace["task"]["data"] for trace in done.traces)
