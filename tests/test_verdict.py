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
    last_error: ProviderError | None = None,
) -> Verdict:
    error = Output(stderr.encode(), b"", len(stderr))
    result = Result(exit, signal, Output(), error, elapsed_s=20.1, ended_by=ended_by)  # type: ignore[arg-type]
    return decide(Ending(result, Finish(fault=fault), stop, 20.0, last_error), trace)


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


def test_what_a_program_says_of_itself_is_noted_even_with_exit_0() -> None:
    verdict = ended(traced(), fault="API failure")
    assert verdict.error is not None
    assert verdict.error.message == "the program reports: API failure"
