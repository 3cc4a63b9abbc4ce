"""Tasks from files of rows: odd rows, templates, ids, tables, and what is refused."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from _kit.answers import score

from hotswap.contracts.task import Task
from hotswap.errors import Fault, UsageError
from hotswap.tasksets.jsonl import Jsonl

EXAMPLES = Path(__file__).parents[2] / "examples"

# The odd rows that a file can have: a byte order mark, ids of two types, a blank line, ids that are paths, duplicates,
# null, a number, NaN, a line separator of Unicode, broken JSON, no id, no newline at the end.
ODD = (
    b"\xef\xbb\xbf"
    b'{"id": 0, "prompt": "number", "answer": "0"}\n'
    b'{"id": "0", "prompt": "text", "answer": "0"}\n'
    b"\n"
    b'{"id": "a/b:c d", "prompt": "p", "answer": "x"}\n'
    b'{"id": "../../etc/x", "prompt": "p", "answer": "x"}\n'
    b'{"id": "dup", "prompt": "first", "answer": "1"}\n'
    b'{"id": "dup", "prompt": "second", "answer": "2"}\n'
    b'{"id": "n", "prompt": "null answer", "answer": null}\n'
    b'{"id": "num", "prompt": "number answer", "answer": 42}\n'
    b'{"id": "extra", "prompt": "p", "answer": "1", "weight": NaN}\n'
    b'{"id": "sep", "prompt": "line\xe2\x80\xa8separator", "answer": "1"}\n'
    b'{"id": "bad json", "prompt": \n'
    b'{"prompt": "no id", "answer": "1"}\n'
    b'{"id": "last", "prompt": "no newline", "answer": "1"}'
)


def write(path: Path, content: bytes | str | Sequence[Any]) -> Path:
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
    return path


def load(path: Path, content: bytes | str | Sequence[Any], **settings: Any) -> list[Task]:
    return list(Jsonl(path=write(path, content), **settings).load())


def problems(path: Path, content: bytes | str | Sequence[Any], **settings: Any) -> list[str]:
    with pytest.raises(UsageError) as caught:
        load(path, content, **settings)
    return [problem.replace(str(path), "FILE") for problem in caught.value.problems]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


# Odd rows


def test_all_bad_rows_are_listed_at_once_with_file_line_and_id(rows: Path) -> None:
    assert problems(rows, ODD) == [
        "FILE:7: duplicate id 'dup' (first at line 6)",
        "FILE:10: NaN is not JSON",
        "FILE:12: not JSON: Expecting value at column 31",
    ]


def without_bad_rows() -> bytes:
    return b"\n".join(line for number, line in enumerate(ODD.split(b"\n"), 1) if number not in (7, 10, 12))


def test_odd_rows_that_are_sound_all_become_tasks_with_ids_of_their_own(rows: Path) -> None:
    tasks = load(rows, without_bad_rows())
    assert [task.id for task in tasks] == [
        "0",
        "0-text",
        "a/b:c d",
        "../../etc/x",
        "dup",
        "n",
        "num",
        "sep",
        "row-" + tasks[8].id[4:],
        "last",
    ]
    assert [task.answer for task in tasks[:2]] == ["0", "0"]
    assert tasks[5].answer is None
    assert tasks[6].answer == 42
    assert tasks[7].prompt == "line\u2028separator"


def test_the_same_files_given_as_test_data_load_alike(rows: Path) -> None:
    folder = os.environ.get("HOTSWAP_TEST_DATA")
    given_rows = Path(folder or "") / "../cases/24-taskset-odd-rows/tasks.jsonl"
    if not folder or not given_rows.is_file():
        pytest.skip("no cases beside HOTSWAP_TEST_DATA")
    content = given_rows.read_bytes()
    assert [problem.split(":")[1] for problem in problems(rows, content)] == ["7", "10", "12"]
    kept = [line for number, line in enumerate(content.split(b"\n"), 1) if number not in (7, 10, 12)]
    assert len(load(rows, b"\n".join(kept))) == 10


def test_a_run_that_ends_before_the_bad_row_is_not_troubled_by_it(rows: Path) -> None:
    tasks = Jsonl(path=write(rows, ODD)).load()
    assert len(list(itertools.islice(tasks, 5))) == 5


def test_after_a_bad_row_no_task_is_yielded_any_more(rows: Path) -> None:
    seen = []
    with pytest.raises(UsageError):
        seen.extend(task.id for task in Jsonl(path=write(rows, ODD)).load())
    assert seen == ["0", "0-text", "a/b:c d", "../../etc/x", "dup"]


def test_a_null_answer_is_a_fault_of_the_taskset_when_it_is_scored_and_never_0(rows: Path) -> None:
    [task] = load(rows, [{"prompt": "p", "answer": None, "id": "n"}])
    with pytest.raises(Fault) as caught:
        score(Jsonl(path=rows), task, "anything")
    assert caught.value.record.blame == "taskset"
    assert "'n'" in caught.value.record.message


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[1]", "this is one JSON array; write one object a line (`jq -c '.[]' FILE`)"),
        ("1", "expected an object, got 1"),
        ('"text"', 'expected an object, got "text"'),
        ("null", "expected an object, got null"),
        ('{"prompt": Infinity}', "Infinity is not JSON"),
        ('{"prompt": -Infinity}', "-Infinity is not JSON"),
        ('{"prompt": 1e400}', "number 1e400 is out of range"),
        ('{"id": 1, "id": 2}', "key 'id' stands in one object twice"),
        ("{'prompt': 1}", "not JSON: Expecting property name enclosed in double quotes at column 2"),
        ('{"a": ' + "[" * 100_000, "JSON that is nested too deeply"),
        ('{"prompt": null, "answer": "1"}', "column 'prompt' is null, and taskset.prompt needs it"),
        ('{"prompt": " ", "answer": "1"}', "taskset.prompt is '{prompt}', which is empty in this row"),
        (
            '{"prompt": ["p"], "answer": "1"}',
            "taskset.prompt is '{prompt}', a list in this row; text is wanted",
        ),
        (
            '{"question": "p", "answer": "1"}',
            "no column 'prompt' (this row has 'question', 'answer'); taskset.prompt is '{prompt}'. "
            "To name another: --taskset.prompt '{question}'",
        ),
        (
            '{"prompt": "p"}',
            "no column 'answer' (this row has 'prompt'); taskset.answer is '{answer}'. "
            "To name another: --taskset.answer '{COLUMN}'",
        ),
        ('{"id": true, "prompt": "p", "answer": 1}', "id true is neither text nor a number"),
        ('{"id": [1], "prompt": "p", "answer": 1}', "id [1] is neither text nor a number"),
        (
            '{"prompt": "p", "answer": 1, "tags": 5}',
            "tags are a list of texts, or one text with commas; taskset.tags is 'tags' (none: leave it)",
        ),
        (
            '{"prompt": "p", "answer": 1, "files": {"../x": "y"}}',
            "file '../x' would stand outside the working directory; paths are relative; "
            "taskset.files is 'files' (none: leave it)",
        ),
    ],
)
def test_a_bad_row_is_refused_with_its_line_and_what_would_be_right(
    rows: Path, line: str, problem: str
) -> None:
    assert problems(rows, "\n" + line + "\n") == [f"FILE:2: {problem}"]


def test_all_that_is_wrong_with_one_row_is_said_at_once_and_with_the_flags_to_type(rows: Path) -> None:
    row = {"id": True, "Question": "1+1", "label": "2", "tags": 5}
    has = "(this row has 'id', 'Question', 'label', 'tags')"
    assert problems(rows, [row]) == [
        "FILE:1: id true is neither text nor a number",
        f"FILE:1: no column 'prompt' {has}; taskset.prompt is '{{prompt}}'. "
        "To name another: --taskset.prompt '{Question}'",
        f"FILE:1: no column 'answer' {has}; taskset.answer is '{{answer}}'. "
        "To name another: --taskset.answer '{label}'",
        "FILE:1: tags are a list of texts, or one text with commas; taskset.tags is 'tags' (none: leave it)",
    ]


def test_a_column_that_is_nearly_spelt_is_put_into_the_template_that_is_to_be_typed(rows: Path) -> None:
    row = {"first": 1, "second": 2, "total": 3}
    [problem] = problems(rows, [row], prompt="What's {frist} plus {second}?", answer="{total}")
    assert problem.endswith(""". To name another: --taskset.prompt 'What'"'"'s {first} plus {second}?'""")


def test_templates_that_cannot_be_and_a_scorer_without_its_needs_are_refused_together(rows: Path) -> None:
    settings: dict[str, Any] = {"prompt": "{q", "answer": None, "system": "}"}
    assert [problem.partition(":")[0] for problem in problems(rows, [{"q": "1"}], **settings)] == [
        "scorer 'exact' needs a right answer, and taskset.answer is none",
        "taskset.prompt = '{q'",
        "taskset.system = '}'",
    ]


def test_two_templates_without_a_column_are_refused_together_with_what_else_is_wrong(rows: Path) -> None:
    said = problems(rows, [{"q": "1", "a": "2", "id": [1]}], prompt="q", answer="a")
    assert [problem.partition(";")[0] for problem in said] == [
        "taskset.prompt is 'q' and names no column",
        "taskset.answer is 'a' and names no column",
        "FILE:1: id [1] is neither text nor a number",
    ]


def test_bytes_that_are_not_utf_8_are_named(rows: Path) -> None:
    assert problems(rows, b'{"prompt": "caf\xe9"}') == ["FILE:1: not UTF-8: byte 0xe9 at column 16"]


def test_the_same_problem_on_many_lines_is_said_once_and_many_are_cut(rows: Path) -> None:
    assert problems(rows, [{"q": 1, "answer": 1}] * 500) == [
        "FILE:1: no column 'prompt' (this row has 'q', 'answer'); taskset.prompt is '{prompt}'. "
        "To name another: --taskset.prompt '{COLUMN}' (and 499 more lines like it)"
    ]
    listed = problems(rows, "".join(f"bad{number}\n" * 2 for number in range(3)) + '{"id":1,"id":2}\n')
    assert len(listed) == 2
    listed = problems(rows, [{"id": str(number // 2), "prompt": "p", "answer": 1} for number in range(200)])
    assert len(listed) == 51
    assert listed[-1] == "FILE: and 50 more problems"


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_a_file_without_rows_is_refused(rows: Path, content: bytes) -> None:
    assert problems(rows, content) == ["FILE: no rows"]


def test_a_path_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.jsonl: No such file"):
        list(Jsonl(path=tmp_path / "none.jsonl").load())
    with pytest.raises(UsageError, match="Is a directory"):
        list(Jsonl(path=tmp_path).load())


def test_the_path_is_required() -> None:
    with pytest.raises(UsageError, match=r"'path' .* is required, as --taskset\.path PATH: "):
        Jsonl()


# Ids


def test_a_number_and_a_text_of_one_spelling_are_two_ids_in_either_order(rows: Path) -> None:
    def ids(*given_ids: Any) -> list[str]:
        return [
            task.id for task in load(rows, [{"id": one, "prompt": "p", "answer": 1} for one in given_ids])
        ]

    assert ids(0, "0") == ["0", "0-text"]
    assert ids("0", 0) == ["0", "0-number"]
    assert ids(1, 1.0, "1.5", 1.5) == ["1", "1.0", "1.5", "1.5-number"]


@pytest.mark.parametrize(
    "given_ids", [(0, "0", 0), (0, "0", "0"), ("0", 0, 0), ("0", 0, "0"), (0, "0", "0-text")]
)
def test_a_third_of_that_spelling_is_a_duplicate(rows: Path, given_ids: tuple[Any, ...]) -> None:
    [problem] = problems(rows, [{"id": one, "prompt": "p", "answer": 1} for one in given_ids])
    assert problem.startswith("FILE:3: duplicate id '0")


def test_a_row_without_an_id_gets_one_by_its_content_wherever_it_stands(rows: Path) -> None:
    one, two = {"prompt": "1", "answer": "1"}, {"prompt": "2", "answer": "2"}
    first = load(rows, [one, two])
    assert [task.id for task in load(rows, [two, one])] == [first[1].id, first[0].id]
    assert [task.id for task in load(rows, [{**one, "id": None}])] != [first[0].id]
    reordered = [{"answer": "1", "prompt": "1"}]
    assert load(rows, reordered)[0].id == first[0].id
    assert load(rows, [one], prompt="Say {prompt}")[0].id == first[0].id


def test_rows_without_ids_that_are_alike_are_counted(rows: Path) -> None:
    tasks = load(rows, [{"prompt": "p", "answer": 1}] * 3)
    base = tasks[0].id
    assert [task.id for task in tasks] == [base, f"{base}-2", f"{base}-3"]


def test_null_and_empty_ids_count_as_none_and_0_does_not(rows: Path) -> None:
    rows_given = [{"id": one, "prompt": "p", "answer": 1} for one in (None, "", 0)]
    assert [task.id[:4] for task in load(rows, rows_given)] == ["row-", "row-", "0"]


def test_half_of_a_character_in_an_id_or_a_row_is_no_trouble(rows: Path) -> None:
    half = '{"id": "\\ud800", "prompt": "p", "answer": "1"}\n{"prompt": "\\ud800", "answer": "1"}\n'
    assert [task.id[:4] for task in load(rows, half)] == ["\ud800", "row-"]


def test_another_column_can_hold_the_ids_and_must_then_be_there(rows: Path) -> None:
    assert load(rows, [{"key": "k", "prompt": "p", "answer": 1}], id="key")[0].id == "k"
    assert problems(rows, [{"prompt": "p", "answer": 1}], id="key") == [
        "FILE:1: no column 'key' (this row has 'prompt', 'answer')"
    ]
    assert load(rows, [{"id": "k", "prompt": "p", "answer": 1}], id=None)[0].id.startswith("row-")


# Templates


def test_a_template_puts_columns_into_text_and_doubled_braces_stay(rows: Path) -> None:
    row = {
        "a": "x",
        "n": 3,
        "list": [1, "\u00e9"],
        "deep": {"to": ["p", "q"]},
        "with space": "s",
        "answer": "1",
    }
    template = "{a} {n} {list} {deep.to.1} {with space} {{a}} {{}}"
    assert load(rows, [row], prompt=template)[0].prompt == 'x 3 [1, "\u00e9"] q s {a} {}'


@pytest.mark.parametrize("template", ["{a", "a}", "{}", "{{a}", "}{"])
def test_a_lone_brace_is_refused_before_any_row_is_read(tmp_path: Path, template: str) -> None:
    with pytest.raises(UsageError, match=r"a lone '[{}]'"):
        list(Jsonl(path=tmp_path / "none", prompt=template).load())


def test_a_template_that_names_no_column_is_refused_with_the_braces_that_were_forgotten(rows: Path) -> None:
    two = [{"q": "1+1?", "a": "2"}, {"q": "2+2?", "a": "4"}]
    columns = "Columns: q, a"
    for settings, said in (
        ({"prompt": "q", "answer": "{a}"}, "taskset.prompt is 'q' and names no column; did you mean '{q}'?"),
        ({"prompt": "{q}", "answer": "a"}, "taskset.answer is 'a' and names no column; did you mean '{a}'?"),
        (
            {"prompt": "Say {{q}}", "answer": "{a}"},
            "taskset.prompt is 'Say {{q}}' and names no column: a template names columns in braces, as {NAME}.",
        ),
        (
            {"prompt": "{q}", "answer": "yes"},
            "taskset.answer is 'yes' and names no column: a template names columns in braces, as {NAME}.",
        ),
    ):
        assert problems(rows, two, **settings) == [f"{said} {columns}"]
    assert problems(rows, two[:1], prompt="{q}", answer="a")[0].endswith(f"did you mean '{{a}}'? {columns}")


def test_one_prompt_for_all_rows_is_sound_where_their_files_or_system_prompts_differ(rows: Path) -> None:
    two = [{"role": "clerk", "answer": "1", "files": {"a": "b"}}, {"role": "cook", "answer": "2"}]
    assert [task.prompt for task in load(rows, two[:1], prompt="Mend it.")] == ["Mend it."]
    assert [task.prompt for task in load(rows, two, prompt="Who?", system="A {role}.")] == ["Who?", "Who?"]
    assert "names no column" in problems(rows, two, prompt="role", system="A {role}.")[0]
    assert "names no column" in problems(rows, two, prompt="Mend it.")[0]


def test_an_answer_of_one_column_keeps_its_value_and_any_other_is_text(rows: Path) -> None:
    row = {"prompt": "p", "a": 1, "b": [2, 3]}
    assert load(rows, [row], answer="{b}")[0].answer == [2, 3]
    assert load(rows, [row], answer="{a}")[0].answer == 1
    assert load(rows, [row], answer="{a} and {b}")[0].answer == "1 and [2, 3]"
    assert load(rows, [row], answer="yes")[0].answer == "yes"


def test_the_system_prompt_tags_and_files_come_from_columns(rows: Path) -> None:
    row = {"prompt": "p", "answer": "1", "role": "clerk", "tags": ["a", "b"], "files": {"in/x.txt": "y"}}
    [task] = load(rows, [row], system="You are a {role}.")
    assert (task.system, task.tags, task.files) == ("You are a clerk.", ("a", "b"), {"in/x.txt": "y"})
    [task] = load(rows, [row], tags=None, files=None)
    assert (task.system, task.tags, task.files) == (None, (), {})
    [task] = load(rows, [{**row, "kind": "c, d"}], tags="kind")
    assert task.tags == ("c", "d")
    assert problems(rows, [row], tags="kind")[0].startswith("FILE:1: no column 'kind'")


# Tables


def test_a_csv_file_has_quotes_lines_in_cells_a_mark_and_blank_lines(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbfid,prompt,answer\r\n\r\n1,"two\nlines, and ""quotes""",x\r\n2,\xe2\x80\xa8,y\r\n'
    assert [
        (task.id, task.prompt, task.answer)
        for task in load(tmp_path / "rows.csv", content, prompt=">{prompt}")
    ] == [
        ("1", '>two\nlines, and "quotes"', "x"),
        ("2", ">\u2028", "y"),
    ]


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ";"), ("a.tsv", "\t"), ("a.CSV", ",")])
def test_the_first_row_says_what_divides_the_cells(tmp_path: Path, name: str, mark: str) -> None:
    content = mark.join(("id", "prompt", "answer")) + "\n" + mark.join(("1", "p", "x")) + "\n"
    assert load(tmp_path / name, content)[0].prompt == "p"


def test_bad_rows_of_a_table_are_listed_with_the_line_where_they_begin(tmp_path: Path) -> None:
    content = 'id,prompt,answer\n1,"a\nb",x\n2,p\n3,p,x,y\n1,p,x\n'
    assert problems(tmp_path / "rows.csv", content) == [
        "FILE:4: 2 cells where the first row names 3 columns",
        "FILE:5: 4 cells where the first row names 3 columns",
        "FILE:6: duplicate id '1' (first at line 2)",
    ]
    assert problems(tmp_path / "rows.csv", "a,a\n1,2\n") == [
        "FILE:1: the first row names the columns, each once; it has 'a', 'a'"
    ]
    assert problems(tmp_path / "rows.csv", 'prompt,answer\np,x\n"open,x\n')[0].startswith("FILE:3: not CSV")
    assert problems(tmp_path / "rows.csv", b"prompt,answer\np,x\n\xff,x\n") == [
        "FILE:3: not UTF-8: byte 0xff"
    ]
    assert problems(tmp_path / "rows.csv", "prompt,answer\n") == ["FILE: no rows"]


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    assert len(load(tmp_path / "rows.csv", f"prompt,answer\n{'x' * 300_000},1\n")[0].prompt) == 300_000


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    assert load(tmp_path / "rows.jsonl.gz", gzip.compress(without_bad_rows()))[0].id == "0"
    assert load(tmp_path / "rows.csv.gz", gzip.compress(b"prompt,answer\np,x\n"))[0].answer == "x"
    assert "Not a gzipped file" in problems(tmp_path / "rows.jsonl.gz", b"{}")[0]
    assert "ended before" in problems(tmp_path / "rows.jsonl.gz", gzip.compress(without_bad_rows())[:-20])[0]


# Scoring


def test_the_scorer_is_chosen_by_name_with_its_options(rows: Path) -> None:
    row = {"id": "1", "prompt": "p", "answer": "Paris"}
    [task] = load(rows, [row])
    assert score(Jsonl(path=rows), task, "it is paris").value == 0
    assert score(Jsonl(path=rows, scorer="contains", ignore_case=True), task, "it is paris").value == 1
    assert score(Jsonl(path=rows, scorer="contains"), task, None).note == "no answer"
    with pytest.raises(UsageError, match="scorer = 'nearly'"):
        Jsonl(path=rows, scorer="nearly")


def test_a_pattern_scores_rows_that_have_no_answer(rows: Path) -> None:
    settings: dict[str, Any] = {"answer": None, "scorer": "regex", "pattern": "yes|no"}
    [task] = load(rows, [{"prompt": "p"}], **settings)
    assert score(Jsonl(path=rows, **settings), task, "yes").value == 1
    assert score(Jsonl(path=rows, **settings), task, "perhaps").value == 0
    assert problems(rows, [{"prompt": "p"}], answer=None) == [
        "scorer 'exact' needs a right answer, and taskset.answer is none"
    ]


def test_answers_that_the_scorer_cannot_use_are_listed_before_anything_runs(rows: Path) -> None:
    given_rows = [{"prompt": "p", "answer": answer} for answer in ("1", "one", "2", "two")]
    assert problems(rows, given_rows, scorer="last_number") == [
        "FILE:2: answer 'one' names no number (scorer 'last_number')",
        "FILE:4: answer 'two' names no number (scorer 'last_number')",
    ]


# Size


def test_a_million_rows_start_in_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for number in range(0, 1_000_000, 1_000):
            file.write(
                "".join(f'{{"id": {number + one}, "prompt": "p", "answer": "1"}}\n' for one in range(1_000))
            )
    tracemalloc.start()
    try:
        tasks: Iterator[Task] = Jsonl(path=path).load()
        assert [task.id for task in itertools.islice(tasks, 5)] == ["0", "1", "2", "3", "4"]
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


# Examples


def test_the_example_files_load_and_their_right_answers_are_right() -> None:
    questions = Jsonl(path=EXAMPLES / "questions.jsonl", scorer="contains", ignore_case=True)
    tasks = list(questions.load())
    assert [task.id for task in tasks][:2] == ["planet", "water"]
    assert score(questions, tasks[0], "The largest planet is Jupiter.").value == 1
    assert score(questions, tasks[2], "Eight legs.").value == 1
    assert score(questions, tasks[2], "18").value == 0

    sums = Jsonl(
        path=EXAMPLES / "sums.csv",
        prompt="What is {first} plus {second}?",
        answer="{total}",
        scorer="last_number",
    )
    tasks = list(sums.load())
    assert tasks[2].prompt == "What is 1,250 plus 3,750?"
    for task in tasks:
        assert score(sums, task, f"The total is {task.answer}.").value == 1
        assert score(sums, task, f"The total is {task.answer}1").value == 0
