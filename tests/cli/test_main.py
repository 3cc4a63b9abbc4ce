"""The command as a person types it: help, mistakes, exit codes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _kit.provider import Provider, fail, say

from hotswap.cli._say import program
from hotswap.cli.main import main

SLOW = """
import os, time
from hotswap import Task, Taskset, reward

class Slow(Taskset):
    def load(self):
        began = time.monotonic()
        for number in range(1000):
            while number > 500 and not os.path.exists("FOLDER/go") and time.monotonic() < began + 60:
                time.sleep(0.01)
            yield Task(id=str(number), prompt="Well?")

    @reward
    def right(self):
        return 1.0
"""
HELP = ("capitals", "-m openai/gpt-5-mini", "--dry-run", "list", "run", "show")


@pytest.fixture(autouse=True)
def empty_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without settings, and no settings around it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOTSWAP_USER_FILE", "")
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def start(*words: str, called: str = "hotswap", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process of its own."""
    return subprocess.run(
        [Path(sys.executable).parent / called, *words],
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("words", [[], ["--help"], ["help"]])
def test_help_teaches_by_examples(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in HELP)
    assert "Traceback" not in out


def test_help_before_a_command_is_that_commands_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "list"]) == 0
    said = capsys.readouterr().out
    assert main(["list", "--help"]) == 0
    assert said == capsys.readouterr().out


@pytest.mark.parametrize("called", ["eval", "hotswap"])
def test_a_problem_begins_with_the_word_that_was_typed(called: str) -> None:
    assert start("gsm8k", "-x", called=called).stderr.decode().startswith(f"{called}: no option '-x'")


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("hotswap ")


def test_run_help_has_every_setting_with_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    from hotswap.settings.resolved import setting_names

    assert main(["run", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for name, sentence in setting_names():
        assert f"--{name.replace('_', '-')}" in out
        assert sentence in out
    assert "no security boundary" in out


def test_a_setting_that_no_group_of_the_help_names_stands_among_further_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hotswap.cli import _help

    monkeypatch.delitem(_help.GROUPS, "Which tasks")
    assert main(["run", "--help"]) == 0
    further = capsys.readouterr().out.partition(_help.FURTHER)[2]
    assert "--shuffle" in further


def test_help_beside_parts_shows_their_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gsm8k", "-H", "loop,tools=bash", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--taskset.gsm8k.path" in out
    assert "--harness.loop.tools" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gsm8k", "-H", "lop"], "hotswap: no harness 'lop'. Did you mean 'loop'? Known: "),
        (["gsm8k", "--modle", "x"], "hotswap: flag --modle: no setting 'modle'. Did you mean 'model'?"),
        (
            ["gsm8k", "-n", "-1"],
            "hotswap: flag -n: tasks = -1: must be at least 1; leave -n out for all tasks",
        ),
        (["gsm8k", "-k", "0"], "hotswap: flag -k: attempts = 0: must be at least 1"),
        (["gsm8k", "-r", "3"], "did you mean -k 3"),
        (["gsm8k", "-n", "1", "-n", "2"], "tasks is given more than once: 1 and 2"),
        (["gsm8k", "-f", "missing.toml"], "hotswap: no settings file 'missing.toml'"),
        (["gsm8k", "-x"], "hotswap: no option '-x'"),
        (
            ["gsm8k", "--limit", "3"],
            "no setting 'limit'. So many tasks: -n 3. What one rollout may use: --limits.turns,",
        ),
        (["replay", "first"], f"a recorded run is given as a model, {program()} TASKSET -m replay:first"),
        (["compare", "a", "b"], f"{program()} TASKSET -H loop -H loop,tools=bash"),
        (["lst"], f"or the command? {program()} list"),
        (["show", "--bogus"], "hotswap: No such option: --bogus"),
        (["list", "tasksetz"], "Did you mean 'tasksets'?"),
        (["run"], "name"),
    ],
)
def test_a_mistake_is_a_line_that_says_what_would_be_right(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert all(line.startswith("hotswap: ") for line in captured.err.splitlines())


def test_a_command_name_is_reserved_and_its_file_is_reached_by_its_path(
    empty_desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty_desk / "list.py").write_text("from hotswap import Taskset\nclass L(Taskset):\n    '''Mine.'''\n")
    assert main(["list", "tasksets"]) == 0
    assert "Mine." not in capsys.readouterr().out
    assert main(["./list.py", "--help"]) == 0
    assert "taskset list: Mine." in capsys.readouterr().out


def test_a_taskset_alone_and_the_command_run_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for words in (
        ["gsm8k", "-m", "nothing/x"],
        ["run", "gsm8k", "-m", "nothing/x"],
        ["-m", "nothing/x", "gsm8k"],
    ):
        assert main(words) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1] == said[2]
    assert "no model 'nothing/x'" in said[0]


def test_a_dry_run_shows_values_with_origins_cells_and_rollouts(
    empty_desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty_desk / "eval.toml").write_text("[sampling]\ntemperature = 0.0\n")
    words = [
        "reverse_text",
        "-m",
        "a@http://127.0.0.1:9/v1",
        "-n",
        "5",
        "-k",
        "2",
        "--harness.loop.tools",
        "bash",
    ]
    assert main([*words, "--dry-run"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for wanted in (
        "tasks = 5 flag -n",
        "sampling.temperature = 0.0 eval.toml:2",
        "harness.loop.tools = bash flag --harness.loop.tools",
        "concurrency = 16 default",
        "reverse_text/loop/a@127.0.0.1:9:v1/local 5 tasks",
        "10 rollouts: 1 cell, 2 attempts each. No model was called.",
    ):
        assert wanted in lines
    assert list(empty_desk.iterdir()) == [empty_desk / "eval.toml"]


def test_without_a_terminal_there_are_plain_lines_in_any_locale() -> None:
    for environment in ({"LANG": "C", "PYTHONIOENCODING": "cp1252"}, {"TERM": "dumb"}, {"COLUMNS": "20"}):
        for words in (["--help"], ["list"], ["gsm8k", "-H", "l\u00f6p\u4e2d"]):
            done = start(*words, **environment)
            assert done.returncode in (0, 2)
            assert b"Traceback" not in done.stderr
            assert b"\x1b" not in done.stdout + done.stderr


def test_a_reader_that_leaves_early_is_no_crash() -> None:
    program = Path(sys.executable).parent / "hotswap"
    done = subprocess.run(
        ["/bin/sh", "-c", f"'{program}' run --help | head -1"], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("Play a taskset's tasks")
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_run_whose_reader_leaves_early_keeps_its_own_exit_code(
    empty_desk: Path, as_json: list[str]
) -> None:
    for reply, code in ((say("Paris"), 0), (fail(400), 3)):
        with Provider(lambda _, reply=reply: reply) as provider:
            words = ["capitals", "-n", "1", "-m", f"x@{provider.url}", *as_json]
            command = [Path(sys.executable).parent / "hotswap", *words]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                assert process.stdout is not None
                assert process.stderr is not None
                process.stdout.close()
                said = process.stderr.read()
            assert process.returncode == code, said
            assert b"Broken" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [["--help"], ["list"], ["run", "--help"]])
def test_output_that_cannot_be_written_is_one_line_and_no_success(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [Path(sys.executable).parent / "hotswap", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr == "hotswap: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize("words", [["gsm8k", "-m", "a@http://127.0.0.1:9/v1"], ["list"], ["show"]])
def test_a_working_directory_that_was_deleted_is_refused(empty_desk: Path, words: list[str]) -> None:
    gone = empty_desk / "gone"
    gone.mkdir()
    program = Path(sys.executable).parent / "hotswap"
    done = subprocess.run(
        ["/bin/sh", "-c", 'rmdir "$PWD" && exec "$0" "$@"', program, *words],
        cwd=gone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "hotswap: the working directory does not exist any more: change to one that does\n"


def test_a_dry_run_without_the_models_key_shows_all_of_it_and_that_a_run_would_stop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    words = ["capitals", "-m", "openai/gpt-5-mini", "-n", "2"]
    assert main([*words, "--dry-run"]) == 0
    *_, counted, stop = capsys.readouterr().out.splitlines()
    assert counted == "2 rollouts: 1 cell. No model was called."
    assert stop.startswith("A run would stop here: model 'openai/gpt-5-mini': the variable OPENAI_API_KEY")
    assert main([*words, "--dry-run", "--json"]) == 0
    (missing,) = json.loads(capsys.readouterr().out)["missing_keys"]
    assert "export OPENAI_API_KEY=" in missing
    assert main(words) == 2
    assert missing in capsys.readouterr().err


def test_a_dry_run_as_json_says_the_same_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["capitals", "-m", "a@http://127.0.0.1:9/v1", "-n", "100", "-k", "2"]
    words += ["--harness.loop.tools", "bash"]
    assert main([*words, "--dry-run", "--json"]) == 0
    captured = capsys.readouterr()
    said = json.loads(captured.out)
    assert said["settings"]["tasks"] == {"value": 100, "origin": "flag -n"}
    assert said["settings"]["harness.loop.tools"]["value"] == ["bash"]
    assert said["cells"] == [{"name": "capitals/loop/a@127.0.0.1:9:v1/local", "tasks": 52}]
    assert (said["attempts"], said["rollouts"]) == (2, 104)
    assert captured.err == ("taskset 'capitals': 100 tasks were asked for (-n), and 52 are all that it has\n")


def test_a_dry_run_shows_what_a_model_sets_of_its_own_and_not_where_the_run_sets_it(
    empty_desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = '[models.mine]\nurl = "http://127.0.0.1:9/v1"\nsampling = {temperature = 0.3, seed = 7}\n'
    (empty_desk / "eval.toml").write_text(table)
    assert main(["capitals", "-m", "mine", "--sampling.seed", "8", "--dry-run", "--json"]) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings["model.mine.temperature"] == {"value": 0.3, "origin": "the model's preset or table"}
    assert "model.mine.seed" not in settings
    assert settings["sampling.seed"]["value"] == 8


def test_fewer_tasks_than_asked_for_are_said_where_they_were_selected(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["capitals", "-m", "a@http://127.0.0.1:9/v1", "--select", "0:3", "--dry-run", "-n"]
    assert main([*words, "4"]) == 0
    assert capsys.readouterr().err == "taskset 'capitals': 4 tasks were asked for (-n), and 3 were selected\n"
    assert main([*words, "3"]) == 0
    assert capsys.readouterr().err == ""


def test_a_load_that_takes_long_says_again_and_again_how_far_it_is(empty_desk: Path) -> None:
    (empty_desk / "slow.py").write_text(SLOW.replace("FOLDER", str(empty_desk)))
    words = ["./slow.py", "-m", "a@http://127.0.0.1:9/v1", "--shuffle", "--dry-run"]
    program = Path(sys.executable).parent / "hotswap"
    process = subprocess.Popen(
        [program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=empty_desk
    )
    assert process.stderr is not None
    for _ in range(2):
        line = process.stderr.readline()
        read = re.fullmatch(r"\./slow\.py: .*: loading the tasks, ([0-9,]+) read so far\n", line)
        assert read is not None, line
        assert int(read[1].replace(",", "")) > 0
    (empty_desk / "go").touch()
    assert "1000 tasks" in process.communicate(timeout=60)[0]
    assert process.returncode == 0


def test_the_script_of_a_shell_that_is_named_is_shown_and_another_word_is_refused() -> None:
    assert b"complete --command hotswap" in start("--show-completion", "fish").stdout
    assert b"compdef" in start("--show-completion", "zsh").stdout
    refused = start("--show-completion", "tcsh")
    assert refused.returncode == 2
    assert refused.stderr == b"hotswap: no completion for 'tcsh'. Known: bash, fish, powershell, pwsh, zsh.\n"


def test_completion_is_installed_for_the_shell_that_runs_and_for_no_other_word(empty_desk: Path) -> None:
    refused = start("--install-completion", "fish", HOME=str(empty_desk))
    assert refused.returncode == 2
    assert b"--show-completion fish" in refused.stderr
    assert list(empty_desk.iterdir()) == []


def completed(*words: str) -> list[str]:
    """What a shell is offered after these words, the last one incomplete."""
    done = start(
        _HOTSWAP_COMPLETE="complete_bash",
        COMP_WORDS=" ".join(("hotswap", *words)),
        COMP_CWORD=str(len(words)),
    )
    return done.stdout.decode().split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["li"], "list"),
        (["run", "gs"], "gsm8k"),
        (["gs"], "gsm8k"),
        (["run", "gsm8k", "-H", "lo"], "loop"),
        (["run", "gsm8k", "--limits.tu"], "--limits.turns"),
        (["gsm8k", "-r", "lo"], "local"),
    ],
)
def test_the_shell_completes_commands_parts_and_settings(words: list[str], offered: str) -> None:
    assert offered in completed(*words)


def test_the_shell_is_offered_the_models_of_the_settings_files(empty_desk: Path) -> None:
    (empty_desk / "eval.toml").write_text('[models.mine]\nurl = "http://127.0.0.1:8000/v1"\n')
    assert {"mine", "openai"} <= set(completed("gsm8k", "-m", ""))
    (empty_desk / "eval.toml").write_text("[models\n")
    assert "openai" in completed("gsm8k", "-m", "")


def test_in_the_place_of_a_settings_value_no_taskset_is_offered() -> None:
    assert completed("jsonl", "--taskset.path", "") == []
    assert "gsm8k" in completed("jsonl", "--shuffle", "")
    assert "gsm8k" in completed("jsonl", "--taskset", "")


@pytest.mark.parametrize("words", [["--help"], ["list"], ["list", "harnesses"]])
def test_a_look_at_what_there_is_loads_nothing_heavy(words: list[str]) -> None:
    code = f"import sys; from hotswap.cli.main import main; main({words!r}); print(*sys.modules, file=sys.stderr)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stderr.split()
    heavy = {"pydantic", "pydantic_settings", "aiohttp", "asyncio", "rich", "datasets", "genai_prices"}
    assert not {name.split(".")[0] for name in loaded} & heavy
