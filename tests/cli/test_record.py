"""`record` makes one file of what a run recorded, and says what is in it; what is wrong is one line."""

from pathlib import Path

import pytest
from _kit.evals import Done, evaluate
from _kit.provider import Provider, say


@pytest.fixture
def run(tmp_path: Path) -> Done:
    with Provider(lambda _: say("Paris")) as provider:
        done = evaluate(tmp_path, "capitals", "-n", "2", "-k", "2", "-m", f"scripted@{provider.url}")
    assert done.code == 0, done.stderr
    return done


def test_a_run_is_saved_as_a_file_and_the_file_says_what_is_in_it(tmp_path: Path, run: Done) -> None:
    saved = evaluate(tmp_path, "record", "save", "latest", "quiz.recorded")
    assert saved.code == 0
    assert saved.stdout.startswith(f"quiz.recorded: 4 rollouts of run {run.run.name}, ")
    assert "-m replay:quiz.recorded" in saved.stdout
    listed = evaluate(tmp_path, "record", "list", "quiz.recorded")
    assert listed.code == 0
    head, _, rest = listed.stdout.partition("\n")
    assert head.startswith(f"run {run.run.name}: 4 rollouts, 4 exchanges, ")
    assert "capitals/loop/scripted@" in rest
    for row in ("dialects  chat", "tasks     france, turkey", "attempts  0, 1"):
        assert row in rest


def test_a_run_is_listed_without_a_file(tmp_path: Path, run: Done) -> None:
    listed = evaluate(tmp_path, "record", "list", run.run.name[:-2])
    assert listed.stdout.startswith(f"run {run.run.name}: 4 rollouts\n")


def test_a_file_that_is_there_is_overwritten_only_when_told(tmp_path: Path, run: Done) -> None:
    (tmp_path / "kept").write_text("mine")
    refused = evaluate(tmp_path, "record", "save", "latest", "kept")
    assert (refused.code, refused.stderr) == (2, "hotswap: kept is there already: --force overwrites it\n")
    assert (tmp_path / "kept").read_text() == "mine"
    assert evaluate(tmp_path, "record", "save", "latest", "kept", "--force").code == 0
    assert evaluate(tmp_path, "record", "list", "kept").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["svae"], "record does not know 'svae'. Did you mean 'save'?"),
        (["save", "latest"], "record save takes a run and a file"),
        (["save", "gone", "file"], "no run 'gone'"),
        (["save", "latest", "nowhere/file"], "cannot write nowhere/file: No such file or directory"),
        (["save", "latest", "runs"], "runs is a folder: name a file in it"),
        (["list"], "record list takes a file"),
        (["list", "runs/latest/run.json"], "holds no recorded exchanges"),
        (["list", "latest", "--all"], "no option '--all'"),
        (["list", "latest", "--runs"], "--runs needs a value"),
        (["list", "latest", "--runs", "elsewhere"], "there is no run in elsewhere yet"),
    ],
)
def test_what_cannot_work_is_one_line(tmp_path: Path, run: Done, words: list[str], said: str) -> None:
    refused = evaluate(tmp_path, "record", *words)
    assert refused.code == 2
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_run_that_kept_none_is_refused(tmp_path: Path) -> None:
    with Provider(lambda _: say("Paris")) as provider:
        evaluate(tmp_path, "capitals", "-n", "1", "-m", f"scripted@{provider.url}", "--raw", "off")
    refused = evaluate(tmp_path, "record", "save", "latest", "file")
    assert refused.code == 2
    assert "has no recorded exchanges: it was made with --raw off" in refused.stderr
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("words", [[], ["--help"], ["save", "-h"]])
def test_the_help_teaches_recording_and_replaying(tmp_path: Path, words: list[str]) -> None:
    done = evaluate(tmp_path, "record", *words)
    assert done.code == 0
    for taught in ("record save latest", "record list", "-m replay:", "mode=loose", "--raw off", "--force"):
        assert taught in done.stdout
