"""What a provider's error is: its type, by status and by its own code, and whether a repeat can help."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from hotswap.messages import ProviderError

MESSAGE_LIMIT = 2_000
"""Characters of a provider's words that are kept."""

RETRYABLE = frozenset({"rate_limit", "overloaded", "server", "connection", "timeout", "truncated"})
"""Where the same request can succeed a moment later."""

TYPES = RETRYABLE | {"context_length", "auth", "bad_request", "empty", "malformed"}
"""The types of a `ProviderError`."""

CODES = {
    **{kind: kind for kind in TYPES},
    "context_length_exceeded": "context_length",
    "exceed_context_size_error": "context_length",
    "string_above_max_length": "context_length",
    "rate_limit_exceeded": "rate_limit",
    "rate_limit_error": "rate_limit",
    "requests": "rate_limit",
    "tokens": "rate_limit",
    "resource_exhausted": "rate_limit",
    "insufficient_quota": "rate_limit",
    "overloaded_error": "overloaded",
    "unavailable": "overloaded",
    "server_is_overloaded": "overloaded",
    "slow_down": "overloaded",
    "authentication_error": "auth",
    "permission_error": "auth",
    "invalid_api_key": "auth",
    "server_error": "server",
    "internal_server_error": "server",
    "api_error": "server",
    "invalid_request_error": "bad_request",
    "invalid_prompt": "bad_request",
    "badrequesterror": "bad_request",
    "not_found_error": "bad_request",
    "model_not_found": "bad_request",
    "request_too_large": "bad_request",
    "timeout_error": "timeout",
}
"""What providers put in an error's `code`, `type` and `status`, in lower case; and our own types, as we write them."""

STATUSES = {
    401: "auth",
    403: "auth",
    408: "timeout",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}

SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
"""Codes under which a 429 says that the account is empty: waiting does not help."""

TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size|limit)|maximum context|(prompt|input).{0,20}too long"
    r"|tokens?\b.{0,20}\b(limit|maximum|exceed)|exceed.{0,40}tokens",
    re.IGNORECASE,
)
"""Several servers say only in words that a request is too long, as a plain bad request."""


def read_error(status: int, body: bytes, headers: Mapping[str, str]) -> ProviderError:
    """Read an answer that is an error by its status: JSON in any of the usual shapes, HTML, or nothing."""
    found = find_error(parse(body))
    if found is None:
        text = body.decode("utf-8", "replace").strip()
        found = {"message": text or f"HTTP {status} without a body"}
    return to_error(found, status, retry_after(headers))


def find_error(value: Any) -> dict[str, Any] | None:
    """Get the error object in a body or an event, whatever its shape; null where there is none."""
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if isinstance(error, dict) and error:
        return error
    if isinstance(error, str) and error:
        return {**value, "message": value.get("message") or error}
    if not error and "choices" not in value and (value.get("message") or value.get("detail")):
        return {
            "message": value.get("message") or value["detail"],
            "code": value.get("code"),
            "type": value.get("type"),
        }
    return None


def to_error(
    error: Mapping[str, Any], status: int | None, retry_after_s: float | None = None
) -> ProviderError:
    """Say what an error object means. A numeric code in it stands for a status, where HTTP said success."""
    message = error.get("message")
    text = (
        message if isinstance(message, str) else json.dumps(message if message is not None else dict(error))
    )
    words = [str(error.get(name) or "").lower() for name in ("code", "type", "status")]
    code = str(error.get("code"))
    number = int(code) if len(code) == 3 and code.isdecimal() else None
    effective = number if (status is None or status < 400) and number else status
    kind = _classify(words, effective, text)
    spent = any(word in SPENT for word in words)
    return ProviderError(kind, text[:MESSAGE_LIMIT], status, kind in RETRYABLE and not spent, retry_after_s)


def _classify(words: list[str], status: int | None, message: str) -> str:
    by_code = next((CODES[word] for word in words if word in CODES), None)
    by_status = STATUSES.get(status or 0) or _by_hundred(status)
    kind = by_code or by_status
    if by_status in ("overloaded", "rate_limit", "auth") and by_code != "context_length":
        kind = by_status  # says more than the code beside it, which is often only `server_error`
    if kind == "bad_request" and TOO_LONG.search(message):
        return "context_length"
    return kind or "server"


def _by_hundred(status: int | None) -> str | None:
    if status is None or status < 400:
        return None
    return "bad_request" if status < 500 else "server"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Get the seconds that an answer asks to wait: a number, or a date, in any of the headers in use."""
    value = headers.get("retry-after-ms")
    if value is not None and _number(value) is not None:
        return (_number(value) or 0.0) / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _number(value)
    if seconds is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _number(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def nothing(_constant: str) -> None:
    """What a number is that JSON does not know."""


_decode = json.JSONDecoder(parse_constant=nothing).decode


def parse(data: bytes | str) -> Any:
    """Read JSON; null where it is none, and in the place of a NaN or an infinity, which are none."""
    try:
        text = data if isinstance(data, str) else data.decode(json.detect_encoding(data), "surrogatepass")
        return _decode(text)
    except (ValueError, RecursionError):
        return None
