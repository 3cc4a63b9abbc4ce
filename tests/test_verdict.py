"""How a rollout ended is decided from calls, exit code and signals."""

import pytest

from hotswap.contracts.harness import Finish
from hotswap.contracts.runtime import Output, Result
from hotswap.messages import ProviderError, ToolCall
from hotswap.trace import Branch, CallRecord, CellRecord, Node, TaskRecord, Trace
from hotswap.verdict import Ending, Verdict, decide

FAILED = ProviderError("rate_limit", "slow down", status=429, retryable=True)


def traced(*, turns: int = 1, tool_call: bool = False) -> Trace:
    """A trace of so many completed turns, the last of which may ask for a tool."""
    cell = CellRecord("t/h/m/r", "t", "h", "1", "m", "r")
    trace = Trace(id="1", run="r", cell=cell, task=TaskRecord("t", "sha256:0"), attempt=0)
    trace.messages = [Node(0, None, "user", "hi")]
    for turn in range(turns):
        calls = [ToolCall("c", "bash", "{}")] if tool_call and turn == turns - 1 else []
        trace.messages.append(
            Node(turn + 1, turn, "assistant", "42", sampled=True, call=turn, tool_calls=calls)
        )
        trace.calls.append(CallRecord(turn, [turn + 1], "chat", "/v1/chat/completions", "m", 200, 0.0))
    if turns:
        trace.branches = [Branch(leaf=turns)]
    return trace


def ended(
    trace: Trace,
    *,
    exit: int | None = 0,  # noqa: A002
    signal: int | None = None,
    ended_by: str = "itself",
    stop: str | None = None,
    stderr: str = "",
    fault: str | None = None,
    own_stop: str | None = None,
    last_error: ProviderError | None = None,
) -> Verdict:
    error = Output(stderr.encode(), b"", len(stderr))
    result = Result(exit, signal, Output(), error, elapsed_s=20.1, ended_by=ended_by)  # type: ignore[arg-type]
    return decide(Ending(result, Finish(fault=fault, stop=own_stop), stop, 20.0, last_error), trace)


def test_a_program_that_answers_and_exits_with_0_is_scored_without_an_error() -> None:
    assert ended(traced()) == Verdict("done", scorable=True)


def test_a_word_on_stderr_is_no_fault() -> None:
    assert ended(traced(), stderr="ERROR cache manager: benign").error is None


def test_exit_0_without_a_model_call_is_the_harness_fault_and_is_not_scored() -> None:
    verdict = ended(traced(turns=0), stderr="bye")
    assert not verdict.scorable
    assert verdict.error is not None
    assert (verdict.error.blame, verdict.error.type, verdict.error.detail) == (
        "harness",
        "no_model_call",
        "bye",
    )


def test_a_usage_error_shows_the_exit_code_and_the_end_of_stderr() -> None:
    verdict = ended(traced(turns=0), exit=2, stderr="error: unexpected argument")
    assert not verdict.scorable
    assert verdict.error is not None
    assert "code 2" in verdict.error.message
    assert verdict.error.detail == "error: unexpected argument"


@pytest.mark.parametrize(
    ("exit", "message"),
    [
        (127, "the program exited with code 127: sh: my-agent: not found"),
        (
            0,
            "the program made no model call that was answered, and exited with code 0: sh: my-agent: not found",
        ),
    ],
)
def test_a_failed_program_is_quoted_with_the_last_line_that_it_printed_on_stderr(
    exit: int,  # noqa: A002
    message: str,
) -> None:
    stderr = "starting\n\x1b[31msh: my-agent: not found\x1b[0m \r\n\n\x1b[0m"
    verdict = ended(traced(turns=0), exit=exit, stderr=stderr)
    assert verdict.error is not None
    assert verdict.error.message == message


def test_a_program_that_was_killed_is_quoted_too_and_its_own_account_comes_before_its_last_line() -> None:
    killed = ended(traced(), exit=None, signal=9, stderr="out of memory\n")
    told = ended(traced(), exit=1, stderr="bye\n", fault="API failure")
    assert killed.error is not None
    assert killed.error.message == "the program was killed by signal 9 (SIGKILL): out of memory"
    assert told.error is not None
    assert told.error.message == "the program exited with code 1: API failure"


def test_a_long_last_line_is_cut_between_words_so_that_no_half_of_a_secret_is_left() -> None:
    secret = "k" * 60
    verdict = ended(traced(turns=0), exit=1, stderr=f"{'word ' * 20}{secret} more")
    assert verdict.error is not None
    assert verdict.error.message == f"the program exited with code 1: {'word ' * 20}..."
    whole = ended(traced(turns=0), exit=1, stderr=secret * 3)
    assert whole.error is not None
    assert whole.error.message == "the program exited with code 1"


def test_exit_1_after_a_finished_answer_is_scored_and_noted() -> None:
    verdict = ended(traced(), exit=1)
    assert verdict.scorable
    assert verdict.error is not None
    assert verdict.error.type == "exit_code"


def test_exit_1_in_the_middle_of_the_work_is_not_scored() -> None:
    assert not ended(traced(tool_call=True), exit=1).scorable


def test_a_signal_is_named_by_its_number_and_name_and_not_as_an_exit_code() -> None:
    verdict = ended(traced(), exit=None, signal=9)
    assert not verdict.scorable
    assert verdict.error is not None
    assert verdict.error.message == "the program was killed by signal 9 (SIGKILL)"


@pytest.mark.parametrize("exit", [0, 1])
def test_a_last_call_that_failed_is_the_providers_fault_whatever_the_exit_code(exit: int) -> None:  # noqa: A002
    verdict = ended(traced(), exit=exit, last_error=FAILED)
    assert not verdict.scorable
    assert verdict.error is not None
    assert (verdict.error.blame, verdict.error.type) == ("provider", "rate_limit")
    assert verdict.error.message == "slow down (HTTP 429)"


def test_a_provider_that_never_answered_is_to_blame_and_not_the_program() -> None:
    verdict = ended(traced(turns=0), exit=1, last_error=FAILED)
    assert verdict.error is not None
    assert verdict.error.blame == "provider"


def test_a_time_limit_is_scored_on_what_was_left_and_names_limit_and_elapsed_time() -> None:
    verdict = ended(traced(), exit=None, signal=9, ended_by="timeout")
    assert verdict.scorable
    assert verdict.stop == "seconds"
    assert verdict.error is not None
    assert "20 s (limits.seconds)" in verdict.error.message
    assert "20.1 s" in verdict.error.message


def test_a_silent_program_at_its_time_limit_is_told_from_a_slow_one() -> None:
    verdict = ended(traced(turns=0), exit=None, signal=9, ended_by="timeout")
    assert verdict.error is not None
    assert verdict.error.type == "no_output"


def test_a_limit_of_ours_is_a_reason_to_stop_and_no_error() -> None:
    verdict = ended(traced(tool_call=True), exit=1, stop="turns")
    assert verdict == Verdict("turns", scorable=True)


def test_a_limit_of_the_programs_own_is_a_reason_to_stop_and_no_error() -> None:
    verdict = ended(traced(tool_call=True), exit=3, own_stop="turns")
    assert verdict == Verdict("turns", scorable=True)
    assert not ended(traced(turns=0), exit=3, own_stop="turns").scorable
    assert not ended(traced(), exit=3, own_stop="turns", last_error=FAILED).scorable


def test_what_is_wrong_beside_a_limit_of_the_programs_own_is_noted() -> None:
    verdict = ended(traced(tool_call=True), exit=3, own_stop="turns", fault="a tool is missing")
    assert (verdict.stop, verdict.scorable) == ("turns", True)
    assert verdict.error is not None
    assert (verdict.error.type, verdict.error.message) == (
        "reported",
        "the program reports: a tool is missing",
    )


def test_what_a_program_says_of_itself_is_noted_even_with_exit_0() -> None:
    verdict = ended(traced(), fault="API failure")
    assert verdict.error is not None
    assert verdict.error.message == "the program reports: API failure"
