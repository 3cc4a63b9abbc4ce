"""How a rollout ended, and whose fault it was if something went wrong.

Decided from model calls, exit code and signals alone: never from the reward, and no log text is searched for words.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from hotswap.contracts.harness import Finish
from hotswap.contracts.runtime import Result
from hotswap.errors import ErrorRecord
from hotswap.messages import ProviderError
from hotswap.trace import Trace

STDERR_TAIL = 2_000
"""Characters of the program's last words that an error keeps."""

LAST_WORDS = 120
"""Characters of the last line of stderr that an error's message goes on with."""
_STYLE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""What makes words bold or red on a terminal."""

UNPAID = ErrorRecord("user", "agent", "budget", "the run's budget was spent before the program had an answer")
INTERRUPTED = ErrorRecord(
    "user", "agent", "interrupted", "the run was interrupted while the program was working"
)
BROKEN_OFF = ErrorRecord(
    "user", "scoring", "interrupted", "the run was interrupted while the rollout was scored"
)


@dataclass(frozen=True)
class Ending:
    """All that is known about the end of an agent program."""

    result: Result
    finish: Finish
    stop: str | None
    """The limit that was reached, where one was."""
    limit_s: float | None
    """The time limit that the program was under."""
    last_error: ProviderError | None
    """What the last model call came to, if it failed."""


@dataclass(frozen=True)
class Verdict:
    """What becomes of a rollout: whether what it left is scored, and what is noted."""

    stop: str
    scorable: bool
    error: ErrorRecord | None = None


def decide(ending: Ending, trace: Trace) -> Verdict:
    """Say how a rollout ended. `trace` holds its calls already.

    | what happened                                   | scored | blame    |
    | ----------------------------------------------- | ------ | -------- |
    | the person interrupted the run                  | no     | user     |
    | a limit or a budget was reached                 | if a call was answered | (time limit: harness, noted) |
    | a signal that was not ours ended the program    | no     | harness  |
    | the last model call failed                      | no     | provider |
    | the program reports a limit of its own          | if a call was answered |  |
    | no model call was completed                     | no     | harness  |
    | it says itself that it failed, or exits non-zero | only with a finished answer | harness, noted |
    | anything else                                   | yes    |          |
    """
    result = ending.result
    if result.ended_by == "timeout" or ending.stop == "seconds":
        return Verdict("seconds", scorable=trace.turns > 0, error=_timeout(ending, trace))
    if ending.stop == "interrupted":
        return Verdict("interrupted", scorable=False, error=INTERRUPTED)
    if ending.stop is not None:
        early = UNPAID if ending.stop == "budget" else _no_call(ending)
        return Verdict(ending.stop, scorable=trace.turns > 0, error=None if trace.turns else early)
    if result.signal is not None:
        name = signal.Signals(result.signal).name if result.signal in set(signal.Signals) else "unknown"
        said = f"the program was killed by signal {result.signal} ({name}){_last_words(result)}"
        return _failed(ending, "signal", said)
    if ending.last_error is not None:
        return Verdict("done", scorable=False, error=provider_fault(ending.last_error, _tail(result)))
    if ending.finish.stop is not None and trace.turns:
        return Verdict(ending.finish.stop, scorable=True, error=_reported(ending))
    if trace.turns == 0 and not result.exit:
        return Verdict("done", scorable=False, error=_no_call(ending))
    complaint = _complaint(ending)
    if complaint is None:
        return Verdict("done", scorable=True)
    error = ErrorRecord(
        "harness", "agent", "exit_code" if result.exit else "reported", complaint, _tail(result)
    )
    return Verdict("done", scorable=finished(trace), error=error)


def provider_fault(error: ProviderError, detail: str | None = None) -> ErrorRecord:
    """Write a provider's error as a trace's error, in the provider's own words."""
    status = f" (HTTP {error.status})" if error.status else ""
    return ErrorRecord(error.blame, "agent", error.type, f"{error.message}{status}", detail)


def finished(trace: Trace) -> bool:
    """Whether the main branch ends in an answer of the model that asks for no tool and was not cut off."""
    last = trace.main[-1] if trace.main else None
    return last is not None and last.sampled and not last.tool_calls


def _complaint(ending: Ending) -> str | None:
    if ending.result.exit:
        said = f": {ending.finish.fault}" if ending.finish.fault else _last_words(ending.result)
        return f"the program exited with code {ending.result.exit}{said}"
    return f"the program reports: {ending.finish.fault}" if ending.finish.fault else None


def _reported(ending: Ending) -> ErrorRecord | None:
    """What the program says went wrong beside the limit of its own that ended it; its exit code says no more."""
    if ending.finish.fault is None:
        return None
    message = f"the program reports: {ending.finish.fault}"
    return ErrorRecord("harness", "agent", "reported", message, _tail(ending.result))


def _timeout(ending: Ending, trace: Trace) -> ErrorRecord:
    silent = not trace.calls and not ending.result.stdout.size and not ending.result.stderr.size
    limit, elapsed = f"{ending.limit_s:g} s (limits.seconds)", f"{ending.result.elapsed_s:.1f} s"
    if silent:
        text = f"no output and no model call within the time limit of {limit}; ended after {elapsed}"
        return ErrorRecord("harness", "agent", "no_output", text)
    return ErrorRecord(
        "harness",
        "agent",
        "timeout",
        f"the time limit of {limit} was reached; ended after {elapsed}",
        _tail(ending.result),
    )


def _no_call(ending: Ending) -> ErrorRecord:
    code = ending.result.exit
    message = "the program made no model call that was answered"
    if code is not None:
        message += f", and exited with code {code}"
    message += _last_words(ending.result)
    return ErrorRecord("harness", "agent", "no_model_call", message, _tail(ending.result))


def _failed(ending: Ending, kind: str, message: str) -> Verdict:
    return Verdict(
        "done", scorable=False, error=ErrorRecord("harness", "agent", kind, message, _tail(ending.result))
    )


def _last_words(result: Result) -> str:
    """Get the last line of stderr, to go on a message with: it mostly says why, as `my-agent: not found` does.

    A longer one ends between two words, so that no half of a secret is left, which nobody would know and mask.
    """
    lines = _STYLE.sub("", result.stderr.text).splitlines()
    line = next((line for line in reversed(lines) if line.strip()), "").strip()
    if len(line) > LAST_WORDS:
        line = line[: LAST_WORDS + 1].rpartition(" ")[0].strip()
        line += " ..." if line else ""
    return f": {line}" if line else ""


def _tail(result: Result) -> str | None:
    text = result.stderr.text[-STDERR_TAIL:].strip() or result.stdout.text[-STDERR_TAIL:].strip()
    return text or None
