"""`eval list` says what can be named, and what each takes."""

import json
import os
import re
from pathlib import Path

import pytest
from _kit.traces import scored

from hotswap.cli._columns import columns
from hotswap.cli.main import main
from hotswap.store import RunDirectory, RunInfo


@pytest.fixture(autouse=True)
def empty_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOTSWAP_USER_FILE", "")
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["list", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "name"), [("tasksets", "gsm8k"), ("harness", "loop"), ("runtimes", "local")]
)
def test_parts_are_listed_with_origin_and_summary(
    what: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = (line for line in said(capsys, what).splitlines() if line.startswith(f"{name} "))
    assert "built-in" in line


def test_a_part_is_shown_with_its_settings_their_sentences_types_and_defaults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = " ".join(said(capsys, "harnesses", "loop").split())
    assert "tools = none Tools that the model may call" in out
    assert "max_turns = 100" in out
    assert "(a whole number)" in out
    assert "[harness.loop]" in out


def test_a_taskset_is_asked_through_its_worker(empty_desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (empty_desk / "quiz.py").write_text(
        "from hotswap import Taskset\n"
        "class Quiz(Taskset):\n    '''Mine.'''\n    size: int\n    '''How large.'''\n"
    )
    out = " ".join(said(capsys, "tasksets", "./quiz.py").split())
    assert "taskset quiz (file ./quiz.py) Mine." in out
    assert "size = required How large. (a whole number)" in out


def test_models_say_whether_their_key_is_there_and_never_what_it_is(
    empty_desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-value")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    (empty_desk / "eval.toml").write_text('[models.mine]\nurl = "http://127.0.0.1:8000/v1"\n')
    out = said(capsys, "models")
    assert "OPENAI_API_KEY is set" in out
    assert "ANTHROPIC_API_KEY is not set" in out
    assert "-m mine" in out
    assert "sk-very" not in out


def test_a_model_of_ones_own_says_whether_its_key_is_there(
    empty_desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MINE_KEY", "sk-very-secret-value")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-value")
    monkeypatch.delenv("OTHER_KEY", raising=False)
    address = "http://127.0.0.1:8000/v1"
    (empty_desk / "eval.toml").write_text(
        f'[models.mine]\nurl = "{address}"\nkey = "MINE_KEY"\n'
        f'[models.other]\nurl = "{address}"\nkey = "OTHER_KEY"\n'
        f'[models.leaky]\nurl = "{address}"\nkey = "sk-very-secret"\n'
        '[models.fast]\nmodel = "openai/gpt-5-mini"\n'
        f'[models.free]\nurl = "{address}"\n'
    )
    monkeypatch.setenv("COLUMNS", "200")
    out = said(capsys, "models")
    states = {line.split()[1]: line for line in out.splitlines() if "your own" in line}
    assert "your own, MINE_KEY is set " in states["mine"]
    assert "your own, OTHER_KEY is not set " in states["other"]
    assert "its key is no variable's name" in states["leaky"]
    assert "your own, OPENAI_API_KEY is set " in states["fast"]
    assert "your own  " in states["free"]
    assert "sk-very" not in out


def test_where_there_is_no_run_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "runs").strip() == "no runs in runs yet"


def test_a_run_without_rollouts_is_listed(empty_desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = empty_desk / "runs" / "gsm8k--1"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"schema": 1, "name": "gsm8k--1"}))
    out = said(capsys, "runs")
    assert out.startswith("gsm8k--1  0 rollouts")


def test_a_runs_mean_has_the_digits_that_the_tables_have(
    empty_desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = [scored(f"t{at}", reward=float(at == 0)) for at in range(3)]
    with RunDirectory.create(empty_desk / "runs" / "quiz--1", RunInfo("quiz--1", "", {})) as run:
        for trace in traces:
            run.append(trace)
    assert "mean reward 0.33: " in said(capsys, "runs")


def test_runs_are_listed_the_newest_first_whatever_they_are_called(
    empty_desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for hour, name in enumerate(("m--1", "a--2", "z--3", "b--4")):
        RunDirectory.create(empty_desk / "runs" / name, RunInfo(name, "", {})).close()
        os.utime(empty_desk / "runs" / name / "run.json", (3600 * hour, 3600 * hour))
    assert re.findall(r"^\w--\d", said(capsys, "runs"), re.MULTILINE) == ["b--4", "z--3", "a--2", "m--1"]


@pytest.mark.parametrize("width", [1, 20, 40, 60, 100, 200])
def test_columns_fit_any_width_and_lose_no_word(width: int) -> None:
    rows = [("gsm8k", "built-in", "Grade-school maths: 1,319 word problems."), ("x", "a package 1.0", "")]
    text = columns(rows, indent=2, width=width)
    assert text.split() == [word for row in rows for cell in row for word in cell.split()]
    longest = len("      Grade-school")
    assert all(len(line) <= max(width, longest) for line in text.splitlines())
