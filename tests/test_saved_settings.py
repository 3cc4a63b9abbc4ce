"""Whole runs from saved settings, and what is in them: the same again in another place, and no secret."""

import re
import shutil
from pathlib import Path

import pytest
from _kit.evals import Done, evaluate
from _kit.provider import Provider, say

TABLES = """\
[models.idle]
url = "https://gateway.example/v1?apikey=canary-key-01&x=canary-x-02"
headers = { "X-Team-Token" = "canary-header-03" }
[models.other]
url = "https://gateway.example/v1?token=tiny5"
"""


def play(folder: Path, provider: Provider, *words: str) -> Done:
    (folder / "q.jsonl").write_text('{"id": "a", "prompt": "p", "answer": "42"}')
    return evaluate(folder, "jsonl", "--taskset.path", "q.jsonl", "-m", f"scripted@{provider.url}", *words)


@pytest.mark.parametrize("output", ["out", "runs/mine"])
def test_a_run_that_was_written_to_a_place_of_its_own_runs_again_in_a_new_one(
    tmp_path: Path, output: str
) -> None:
    with Provider(lambda _: say("42")) as provider:
        first = play(tmp_path, provider, "--output", output)
        again = evaluate(tmp_path, "-f", f"{output}/eval.toml")
        third = evaluate(tmp_path, "-f", f"{output}/eval.toml", "-o", "third")
    assert (first.code, again.code, third.code) == (0, 0, 0), again.stderr + third.stderr
    assert again.run.parent == tmp_path / "runs"
    assert again.run.name.startswith("jsonl--")
    assert (tmp_path / "third/metrics.json").exists()
    assert "output" not in (tmp_path / output / "eval.toml").read_text()


def test_secrets_of_models_that_a_run_does_not_use_are_in_none_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "eval.toml").write_text(TABLES)
    typed = ("--models.idle.headers.X-Vendor-Secret", "canary-typed-04")
    with Provider(lambda _: say("I know canary-x-02 and canary-header-03")) as provider:
        done = play(tmp_path, provider, *typed)
        assert done.code == 0, done.stderr
        files = b"".join(path.read_bytes() for path in done.run.rglob("*") if path.is_file())
        assert b"canary" not in files
        assert b"tiny5" not in files
        saved = (done.run / "eval.toml").read_text()
        assert "https://gateway.example/v1?apikey=[secret:apikey]&x=[secret:x]" in saved
        again = evaluate(tmp_path, "-f", str(done.run / "eval.toml"))
    assert again.code == 0, again.stderr


def test_a_dry_run_and_the_list_of_models_show_no_secret_of_an_address(tmp_path: Path) -> None:
    (tmp_path / "eval.toml").write_text(TABLES)
    with Provider(lambda _: say("42")) as provider:
        dry = play(tmp_path, provider, "--dry-run")
    listed = evaluate(tmp_path, "list", "models")
    assert (dry.code, listed.code) == (0, 0)
    for said in (dry.stdout, listed.stdout):
        assert "[secret:apikey]" in said
        assert "canary" not in said
        assert "tiny5" not in said


def test_runs_that_were_written_elsewhere_are_listed_with_their_path_as_long_as_they_are_there(
    tmp_path: Path,
) -> None:
    with Provider(lambda _: say("42")) as provider:
        for output in ("out", "gone", "runs/inside", "out/below"):
            assert play(tmp_path, provider, "-o", output).code == 0
    shutil.rmtree(tmp_path / "gone")
    listed = evaluate(tmp_path, "list", "runs")
    assert listed.code == 0, listed.stderr
    names = [line.split()[0] for line in listed.stdout.splitlines() if not line.startswith(" ")]
    assert names == ["out/below", "inside", "out"]
    shown = evaluate(tmp_path, "show", "--run", names[0])
    assert (shown.code, "42" in shown.stdout) == (0, True)


def test_a_folder_of_runs_that_cannot_be_made_is_no_trouble_to_a_run_that_goes_elsewhere(
    tmp_path: Path,
) -> None:
    (tmp_path / "runs").write_text("a file")
    with Provider(lambda _: say("42")) as provider:
        done = play(tmp_path, provider, "-o", "out")
    assert done.code == 0, done.stderr
    assert (tmp_path / "out/metrics.json").exists()


def test_what_the_example_settings_say_to_type_works_as_it_stands(tmp_path: Path) -> None:
    text = (Path(__file__).parent.parent / "eval.toml").read_text()
    (tmp_path / "eval.toml").write_text(text)
    commands = re.findall(r"`uv run eval ([^`]*--(?:dry-run|help))`", text)
    assert commands == ["capitals --dry-run", "run --help"]
    for command in commands:
        done = evaluate(tmp_path, *command.split())
        assert done.code == 0, done.stderr
