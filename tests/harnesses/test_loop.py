"""The loop as a harness: a job in, a launch out, and what its end says."""

from pathlib import Path

import pytest

from hotswap.contracts.harness import Endpoint, Finish, Job
from hotswap.contracts.runtime import Output, Result
from hotswap.errors import UsageError
from hotswap.harnesses.loop import Loop

ENDPOINT = Endpoint(url="http://127.0.0.1:8080", key="secret", model="openai/gpt-5-mini")


def job(prompt: str = "What is 6 x 7?", **rest: str) -> Job:
    command = ("python", "-I", "loop.py")
    return Job(prompt=prompt, endpoint=ENDPOINT, command=command, workdir="/work", home="/home", **rest)


def option(argv: tuple[str, ...], name: str) -> str | None:
    return argv[argv.index(name) + 1] if name in argv else None


def ended(code: int | None, stderr: str = "", signal: int | None = None) -> Result:
    return Result(code, signal, Output(), Output(head=stderr.encode(), size=len(stderr)), 1.0)


def test_the_program_is_a_script_that_is_there() -> None:
    script = Loop().install().script
    assert script is not None
    assert "# /// script" in script.read_text()


def test_the_job_becomes_the_programs_own_words_and_its_key_stays_out_of_argv() -> None:
    launch = Loop().launch(job())
    assert launch.argv[:3] == ("python", "-I", "loop.py")
    assert option(launch.argv, "--base-url") == "http://127.0.0.1:8080/v1"
    assert option(launch.argv, "--model") == "openai/gpt-5-mini"
    assert launch.env == {"LOOP_API_KEY": "secret"}
    assert "secret" not in " ".join(launch.argv)


def test_the_prompt_goes_to_standard_input_as_it_is() -> None:
    prompt = "--help 'x' \n\n $(rm) 日本 \ud835 " + "x" * 200_000
    assert Loop().launch(job(prompt)).stdin == prompt.encode("utf-8", "surrogatepass")


def test_a_context_follows_the_prompt() -> None:
    assert Loop().launch(job("Sum up.", context="A long text.")).stdin == b"Sum up.\n\nA long text."


@pytest.mark.parametrize(
    ("settings", "task", "given"),
    [
        ({}, None, None),
        ({}, "of the task", b"of the task"),
        ({"system": "of the run"}, "of the task", b"of the run"),
        ({"system": "of the run"}, None, b"of the run"),
        ({"system": ""}, "of the task", None),
    ],
)
def test_a_system_prompt_of_the_run_replaces_the_tasks(
    settings: dict[str, str], task: str | None, given: bytes | None
) -> None:
    launch = Loop(**settings).launch(job(system=task) if task else job())
    path = option(launch.argv, "--system")
    assert (path is None) == (given is None)
    assert launch.files == ({} if given is None else {str(path).removeprefix("~/"): given})


def test_tools_are_off_until_they_are_asked_for() -> None:
    assert "--tools" not in Loop().launch(job()).argv
    launch = Loop(tools="bash", command_timeout_s="1.5", output_limit=100, max_turns=7).launch(job())
    assert option(launch.argv, "--tools") == "bash"
    assert option(launch.argv, "--command-timeout-s") == "1.5"
    assert option(launch.argv, "--output-limit") == "100"
    assert option(launch.argv, "--max-turns") == "7"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"tools": "bash,python"}, "expected one of bash"),
        ({"command_timeout_s": 0}, "command_timeout_s = 0"),
        ({"output_limit": -1, "max_turns": 0}, "output_limit = -1"),
        ({"command_timeout_s": "inf"}, "command_timeout_s = '?inf"),
        ({"tool": "bash"}, "Did you mean 'tools'?"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        Loop(**settings)


def test_every_setting_has_its_sentence() -> None:
    from hotswap.contracts.options import options

    assert [option.name for option in options(Loop) if not option.doc] == []


def test_a_good_end_leaves_the_answer_to_the_trace() -> None:
    assert Loop().conclude(ended(0)) == Finish()


def test_an_end_at_its_own_limit_of_turns_is_no_fault_and_told_by_its_exit_code() -> None:
    assert Loop().conclude(ended(3, "loop: ended after 3 turns (--max-turns)\n")) == Finish(stop="turns")


def test_a_bad_end_is_told_in_the_programs_last_line() -> None:
    assert Loop().conclude(ended(1, "noise\nloop: HTTP 500: boom\n")) == Finish(fault="HTTP 500: boom")
    assert Loop().conclude(ended(1)) == Finish()
    assert Loop().conclude(ended(None, "Terminated\n", signal=9)) == Finish()


def test_the_launch_is_pure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    harness = Loop(system="x", tools="bash")
    assert harness.launch(job()) == harness.launch(job())
    assert list(tmp_path.iterdir()) == []
