"""The errors of hotswap, and `blame`, the boundary that says whose fault a failure was.

    HotswapError
    ├── UsageError      the request cannot work: nothing is run, exit code 2, one line a problem
    ├── StoreError      the run directory cannot be written or read: the run stops, what is finished stays
    └── Fault           one rollout failed: recorded in its trace, and the others go on

A rollout's stages are each wrapped in one `blame(...)`. An error that already says whom to blame passes through
unchanged, so the innermost boundary wins.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

Blame = Literal["provider", "harness", "runtime", "taskset", "scorer", "judge", "user", "tool", "hotswap"]
Stage = Literal["box", "setup", "install", "agent", "finalize", "scoring", "plan"]

DETAIL_LIMIT = 4_000
"""Characters of detail (a traceback, the tail of stderr) that an error keeps."""


class HotswapError(Exception):
    """Everything that hotswap raises on purpose."""


class UsageError(HotswapError):
    """The request cannot work. Carries one line a problem, each saying what was wrong and what would be right."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.detail: str | None = None
        """A traceback, where the cause lies in somebody's code."""


class StoreError(HotswapError):
    """The run directory cannot be written or read back. What was recorded before stays."""


@dataclass(frozen=True)
class ErrorRecord:
    """An error as it stands in a trace."""

    blame: Blame
    stage: Stage
    type: str
    """A short, stable name to filter by: `rate_limit`, `timeout`, `exit_code`, or an exception's class."""
    message: str
    detail: str | None = None
    """What helps to understand it: the tail of stderr, a traceback, the provider's own words."""


class MissingKey(UsageError):
    """The variable that holds a model's key is not set."""

    def __init__(self, variable: str, problem: str) -> None:
        super().__init__(problem)
        self.variable = variable


class Fault(HotswapError):
    """One rollout went wrong, with the blame already decided."""

    def __init__(
        self, blame: Blame, stage: Stage, kind: str, message: str, detail: str | None = None
    ) -> None:
        """`kind` is the record's `type`."""
        super().__init__(message)
        self.record = ErrorRecord(blame, stage, kind, message, detail[-DETAIL_LIMIT:] if detail else None)


@contextmanager
def blame(who: Blame, stage: Stage) -> Iterator[None]:
    """Turn any failure inside into a `Fault` of `who`; a `Fault`, a `UsageError` or a cancellation passes through."""
    try:
        yield
    except HotswapError:
        raise
    except Exception as error:  # a cancellation is none of these and passes through
        detail = "".join(traceback.format_exception(error))
        raise Fault(who, stage, type(error).__name__, str(error) or type(error).__name__, detail) from error


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Get the end of a message about an unknown word: a suggestion where one is close, and the list."""
    names = sorted(known)
    close = get_close_matches(word.replace("-", "_"), names, n=1, cutoff=0.6)
    suggestion = f" Did you mean {close[0]!r}?" if close else ""
    return f"{suggestion} Known: {', '.join(names)}." if names else f"{suggestion} There are none."
