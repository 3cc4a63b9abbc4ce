"""GSM8K from a local copy, on the real rows where there are any, and from a hub that cannot be reached."""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pyarrow as arrow
import pytest
from _kit.answers import score
from _kit.hub import hub
from pyarrow import parquet

from hotswap.contracts.task import Task
from hotswap.errors import UsageError
from hotswap.tasksets.gsm8k import Gsm8k

ROWS = [
    {"question": "Two and two?", "answer": "2+2=<<2+2=4>>4\n#### 4"},
    {"question": "A price in {braces}?", "answer": "#### 2,125"},
    {"question": "Below zero?", "answer": "It is cold.\n#### -10"},
]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / "copy.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture(scope="module")
def real() -> tuple[Path, list[Task]]:
    path = Path(os.environ.get("HOTSWAP_TEST_DATA", "")) / "gsm8k" / "test.jsonl"
    if not path.is_file():
        pytest.skip("no gsm8k/test.jsonl in the folder that HOTSWAP_TEST_DATA names")
    return path, list(Gsm8k(path=path).load())


def test_ids_count_the_rows_of_the_split(copy: Path) -> None:
    tasks = list(Gsm8k(path=copy).load())
    assert [task.id for task in tasks] == ["test-0", "test-1", "test-2"]
    assert [task.answer for task in tasks] == ["4", "2125", "-10"]
    assert tasks[1].prompt.startswith("A price in {braces}?\n\n")
    assert next(iter(Gsm8k(path=copy, split="train").load())).id == "train-0"
    assert next(iter(Gsm8k(path=copy, prompt="Q: {question}").load())).prompt == "Q: Two and two?"


def test_a_prompt_without_the_question_is_refused(copy: Path) -> None:
    with pytest.raises(UsageError, match=r"did you mean '\{question\}'\?"):
        list(Gsm8k(path=copy, prompt="question").load())


def test_rows_that_are_no_gsm8k_are_refused_with_their_lines(copy: Path) -> None:
    copy.write_text(
        '{"question": "q", "answer": "4"}\n{"prompt": "q"}\n{"question": "q", "answer": "#### four"}\n'
    )
    with pytest.raises(UsageError) as caught:
        list(Gsm8k(path=copy).load())
    assert [problem.removeprefix(str(copy)) for problem in caught.value.problems] == [
        ":1: the reference answer does not end with '#### NUMBER': '4'",
        ":2: no column 'answer' (this row has 'prompt')",
        ":3: the reference answer does not end with '#### NUMBER': '#### four'",
    ]


def test_all_1319_rows_are_read(real: tuple[Path, list[Task]]) -> None:
    _, tasks = real
    assert len(tasks) == 1319
    assert len({task.id for task in tasks}) == 1319
    assert len({task.hash for task in tasks}) == 1319
    assert tasks[12].id == "test-12"
    assert tasks[12].answer == "13"


def test_the_first_rows_of_the_real_data_are_the_same_with_any_number_of_tasks(
    real: tuple[Path, list[Task]],
) -> None:
    path, tasks = real
    assert list(itertools.islice(Gsm8k(path=path).load(), 100)) == tasks[:100]


def test_the_reference_is_right_and_a_wrong_answer_is_not_on_every_row(real: tuple[Path, list[Task]]) -> None:
    path, tasks = real
    taskset = Gsm8k(path=path)
    references = [json.loads(line)["answer"] for line in path.read_text().splitlines()]
    for task, reference in zip(tasks, references, strict=True):
        number = Fraction(task.answer)
        assert score(taskset, task, reference).value == 1
        for right in ("{:,}", "The answer is **${:,}.00**.", r"\boxed{{{}}}", "= {} cm^2"):
            assert score(taskset, task, right.format(int(number))).value == 1, (task.id, right)
        for wrong in (number + 1, -number - 1, number + Fraction(1, 2)):
            assert score(taskset, task, f"{reference}\nNo, it is {float(wrong)}").value == 0, task.id
        assert score(taskset, task, "I do not know.").value == 0
        assert score(taskset, task, None).value == 0


def test_each_score_keeps_what_was_read_and_what_was_expected(copy: Path) -> None:
    task = next(iter(Gsm8k(path=copy).load()))
    found = score(Gsm8k(path=copy), task, "2 + 3 = 5 apples")
    assert (found.value, found.extracted, found.expected) == (0.0, "5", "4")
    assert found.note == "the last number is another one"


LOAD = """
import sys
from hotswap.errors import UsageError
from hotswap.tasksets.gsm8k import Gsm8k
for revision in sys.argv[1:]:
    try:
        print(*[f"{task.id}={task.answer}" for task in Gsm8k(revision=revision).load()])
    except UsageError as error:
        print(*error.problems)
"""
COMMIT = Gsm8k().revision
STALL_S = 150
"""pyarrow's reader, which `datasets` calls, was seen once to wait for ever, on a crowded machine. That is not what is
tested here, so such a load is ended and begun again; another one fails."""


def load_from_hub(home: Path, *revisions: str, **env: str) -> list[str]:
    """What a fresh process prints that loads each revision: its tasks, or why it has none."""
    given = {**os.environ, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", **env}
    command = [sys.executable, "-c", LOAD, *revisions]
    run = functools.partial(subprocess.run, command, env=given, capture_output=True, text=True, check=True)
    try:
        return run(timeout=STALL_S).stdout.splitlines()
    except subprocess.TimeoutExpired:  # see STALL_S
        return run(timeout=STALL_S).stdout.splitlines()


def test_rows_come_from_the_hub_once_and_then_from_its_cache_at_the_commit_that_was_asked_for(
    tmp_path: Path,
) -> None:
    table = io.BytesIO()
    parquet.write_table(arrow.table({name: [row[name] for row in ROWS] for name in ROWS[0]}), table)
    card = b"---\nconfigs:\n- config_name: main\n  data_files:\n  - split: test\n    path: test-*\n---\n"
    files = {"README.md": card, "test-00000-of-00001.parquet": table.getvalue()}
    with hub("openai/gsm8k", COMMIT, files) as address:
        assert load_from_hub(tmp_path, COMMIT, HF_ENDPOINT=address) == ["test-0=4 test-1=2125 test-2=-10"]
    cached, other = load_from_hub(tmp_path, COMMIT, "0" * 40, HF_HUB_OFFLINE="1")
    assert cached == "test-0=4 test-1=2125 test-2=-10"
    assert other.startswith(
        f"gsm8k: the hub's cache holds commit {COMMIT}, and taskset.revision is {'0' * 40}"
    )


def test_a_hub_that_cannot_be_reached_is_one_error_that_names_the_way_out(tmp_path: Path) -> None:
    [problem] = load_from_hub(tmp_path, COMMIT, HF_HUB_OFFLINE="1")
    assert problem.startswith("gsm8k: openai/gsm8k could not be had from its hub (")
    assert problem.endswith("with a local copy: --taskset.path FILE.jsonl")


def test_a_branch_is_no_revision_since_it_would_not_say_which_rows_were_asked() -> None:
    with pytest.raises(UsageError, match=r"taskset\.revision = 'main': the commit"):
        next(iter(Gsm8k(revision="main").load()))
