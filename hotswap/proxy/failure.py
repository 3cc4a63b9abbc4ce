"""A try that failed before anything of its answer had gone to the program, and the words that a program gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from multidict import CIMultiDict

from hotswap.dialects import parse
from hotswap.messages import Answer, ProviderError
from hotswap.proxy.whole import Whole

NO_RETRY = ("x-should-retry", "false")
"""Tells the official SDKs that we have repeated a call as often as it makes sense."""
STATUS: Mapping[str, int] = {"timeout": 504, "replay": 400, "capture": 400}
"""What a program is told where nothing came from the provider; else 502."""
RETRY_AFTER = ("Retry-After", "Retry-After-Ms")
UNREADABLE = ("malformed", "redirect")
"""Errors of which the provider's own bytes would tell the program nothing."""
SAID: Mapping[str, int] = {
    "rate_limit": 429,
    "overloaded": 503,
    "auth": 401,
    "bad_request": 400,
    "context_length": 400,
    "timeout": 504,
}
"""The status of an error that came as a success, where it is said in the program's words; else 502."""


@dataclass(frozen=True)
class Failure:
    """What failed, and what the program gets if this was the last try."""

    error: ProviderError
    status: int
    headers: CIMultiDict[str]
    body: bytes | None = None
    """The provider's own; null where it has none that the program could read."""
    answer: Answer | None = None
    """What could be read of an answer that was sent as a success."""


def unanswered(error: ProviderError) -> Failure:
    """Get the failure of a try to which nothing came back."""
    return Failure(error, STATUS.get(error.type, 502), CIMultiDict())


def answered(whole: Whole, error: ProviderError) -> Failure:
    """Get the failure of a try that was answered by an error."""
    status, body = whole.status, whole.body if whole.own else None
    if error.type in UNREADABLE or parse(whole.body) is None:
        body = None
    if error.type in UNREADABLE or (body is None and status < 300):
        status = SAID.get(error.type, 502)
    for name in RETRY_AFTER:
        whole.headers.popall(name, None)  # we have waited for it, or it is longer than anyone should
    return Failure(error, status, whole.headers, body, whole.answer)


def error_headers() -> CIMultiDict[str]:
    """The headers of an error of ours. None is worth a retry by the program."""
    return CIMultiDict([NO_RETRY, ("Content-Type", "application/json")])


def refusal(limit: str) -> str:
    """Get the words in which a call is refused."""
    return f"this rollout has used up its limit of {limit}: no further model calls are answered"
