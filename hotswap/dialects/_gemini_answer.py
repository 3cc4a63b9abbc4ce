"""What a model says in Gemini: candidates made of parts, in one piece or as a stream of pieces of the same shape."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hotswap.dialects import Assembler, Event
from hotswap.dialects._errors import find_error, parse, to_error
from hotswap.dialects._reading import count, hollow, judge, table, text_or_none, truncated, unreadable
from hotswap.messages import Answer, Finish, Message, ProviderError, ToolCall, Usage

FINISHES: Mapping[str, Finish] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
}
UNUSABLE = frozenset({
    "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE",
})  # fmt: skip
"""What the model wrote was no answer: its doing, and not the provider's."""
MERGED = frozenset({"text", "thought", "thoughtSignature"})
"""Fields of a part that may be a piece of the text before it."""
DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


def either(value: Mapping[str, Any], name: str) -> Any:
    """Get a field that may be spelled `likeThis` or `like_this`: this API takes both."""
    found = value.get(name)
    return value.get(snake(name)) if found is None else found


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def read_parts(content: Any) -> list[Any]:
    """Get the parts of a content, which may be one alone."""
    parts = content.get("parts") if isinstance(content, dict) else content
    return list(parts) if isinstance(parts, list) else [] if parts is None else [parts]


def read_message(role: str, parts: Sequence[Any], extra: Mapping[str, Any] | None = None) -> Message:
    """Read a message that holds no results of tools. A call need not have an id: none is made up."""
    known = [part for part in parts if isinstance(part, dict)]
    thoughts = (text_or_none(part.get("text")) for part in known if part.get("thought") is True)
    calls = (either(part, "functionCall") for part in known)
    return Message(
        role=role,
        content=parts,
        tool_calls=tuple(_read_call(call) for call in calls if isinstance(call, dict)),
        reasoning="".join(thought for thought in thoughts if thought) or None,
        extra=extra or {},
    )


def _read_call(call: Mapping[str, Any]) -> ToolCall:
    arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
    return ToolCall(str(call.get("id") or ""), str(call.get("name") or ""), arguments)


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Read how many tokens were used. Thoughts come beside the candidates here, and what tools of the provider gave
    to the model beside the prompt."""
    thoughts = count(usage.get("thoughtsTokenCount"))
    return Usage(
        input=_sum(count(usage.get("promptTokenCount")), count(usage.get("toolUsePromptTokenCount"))),
        output=_sum(count(usage.get("candidatesTokenCount")), thoughts),
        cached=count(usage.get("cachedContentTokenCount")),
        reasoning=thoughts,
    )


def _sum(*numbers: int | None) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def read_failure(error: Mapping[str, Any], status: int, wait_s: float | None = None) -> ProviderError:
    """Read an error object. How long to wait, and what was wrong with the key or the quota, stands in its details."""
    found = to_error(error, status, wait_s)
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if not isinstance(detail, dict):
            continue
        delay = DELAY.fullmatch(str(detail.get("retryDelay")))
        if delay and found.retry_after_s is None:
            found = replace(found, retry_after_s=float(delay[1]))
        if detail.get("reason") == "API_KEY_INVALID":  # sent as a plain bad request
            found = replace(found, type="auth", retryable=False)
        if "PerDay" in json.dumps(detail.get("violations")):
            found = replace(found, retryable=False)
    return found


def candidates(piece: Any) -> list[dict[str, Any]]:
    """Get the candidates of an answer, or of a piece of one."""
    found = table(piece).get("candidates")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def blocked(piece: Any) -> dict[str, Any] | None:
    """Get why there is no answer at all to this prompt; null where the prompt was not blocked."""
    feedback = table(table(piece).get("promptFeedback"))
    return feedback if feedback.get("blockReason") else None


class GeminiAssembler(Assembler):
    """Reads the pieces of one answer, which is a single one where it came whole."""

    def __init__(self) -> None:
        self._candidates: dict[int, _Candidate] = {}
        self._usage: dict[str, Any] = {}
        self._model: str | None = None
        self._id: str | None = None
        self._blocked: dict[str, Any] | None = None
        self._error: ProviderError | None = None
        self._odd: ProviderError | None = None

    def feed(self, event: Event) -> None:
        piece = parse(event.data)
        if piece is None:
            self._odd = self._odd or unreadable(event.name, event.data)
        self.take(piece)

    def take(self, piece: Any) -> None:
        """Take the next piece."""
        said = candidates(piece)
        error = None if said and not piece.get("error") else find_error(piece)
        if error is not None:
            self._error = read_failure(error, 200)
        for candidate in said:
            self._candidates.setdefault(count(candidate.get("index")) or 0, _Candidate()).feed(candidate)
        self._blocked = blocked(piece) or self._blocked
        self._note(table(piece))

    def _note(self, piece: Mapping[str, Any]) -> None:
        self._model = text_or_none(piece.get("modelVersion")) or self._model
        self._id = self._id or text_or_none(piece.get("responseId"))
        usage = table(piece.get("usageMetadata"))
        self._usage |= {name: value for name, value in usage.items() if value is not None}

    @property
    def complete(self) -> bool:
        return self.ended or self._finished

    @property
    def ended(self) -> bool:
        """Only an error is known to be the last event: else the stream just ends."""
        return self._error is not None

    @property
    def _finished(self) -> bool:
        if not self._candidates:
            return self._blocked is not None
        return all(one.reason for one in self._candidates.values())

    def answer(self, cut: str | None = None) -> Answer:
        broken = cut is not None or not self._finished
        return self._read(self._error or (truncated(cut) if broken else self._odd))

    def whole(self) -> Answer:
        """Get the answer of which all is there, be it without a reason why it finished."""
        return self._read(self._error)

    def _read(self, error: ProviderError | None) -> Answer:
        said = [one for _, one in sorted(self._candidates.items())]
        messages = [one.message(whole=error is None) for one in said]
        finish = said[0].finish if said else None
        if not said and self._blocked is not None:
            why = self._blocked.get("blockReasonMessage") or self._blocked["blockReason"]
            messages, finish = [Message("assistant", refusal=str(why))], "content_filter"
        if error is not None:
            messages = [message for message in messages if not hollow(message)]
        return judge(Answer(tuple(messages), finish, read_usage(self._usage), self._model, error, self._id))

    def keep_alive(self) -> bytes:
        """Nothing: this dialect has no event that says nothing, and its programs wait."""
        return b""


class _Candidate:
    """One candidate, as far as it has come."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._why: str | None = None
        self._parts: list[_Part] = []

    def feed(self, candidate: Mapping[str, Any]) -> None:
        """Take what a piece says of it. A piece begins where the one before broke off: its first part may go on
        with the last one, or be as empty as a piece has to be that only says the end."""
        self.reason = text_or_none(candidate.get("finishReason")) or self.reason
        self._why = text_or_none(candidate.get("finishMessage")) or self._why
        parts = read_parts(candidate.get("content"))
        if self._parts and parts and (self._parts[-1].go_on(parts[0]) or parts[0] == {"text": ""}):
            parts = parts[1:]
        self._parts += [_Part(part) for part in parts]

    @property
    def finish(self) -> Finish | None:
        if self.reason is None:
            return None
        finish = FINISHES.get(self.reason, "other")
        called = any(part.calls for part in self._parts)
        return "tool_calls" if finish == "stop" and called else finish

    def message(self, whole: bool) -> Message:
        extra = {} if whole else {"truncated": True}
        message = read_message("assistant", [part.read() for part in self._parts], extra)
        if self.finish == "content_filter":
            return replace(message, refusal=self._why)
        if self.finish == "other" and (self.reason in UNUSABLE or not hollow(message)):
            said = {"finishReason": self.reason, "finishMessage": self._why}
            known = {name: value for name, value in said.items() if value is not None}
            return replace(message, extra={**extra, **known})
        return message


class _Part:
    """One part of a candidate; a text may come in pieces."""

    def __init__(self, part: Any) -> None:
        self._part = part
        self._texts = [part["text"]] if isinstance(part, dict) and isinstance(part.get("text"), str) else []

    @property
    def calls(self) -> bool:
        return isinstance(self._part, dict) and isinstance(either(self._part, "functionCall"), dict)

    def go_on(self, piece: Any) -> bool:
        """Take a piece that belongs to this part; False where it is a part of its own. A signature ends a part."""
        if not (_is_text(self._part) and _is_text(piece)) or "thoughtSignature" in self._part:
            return False
        if bool(self._part.get("thought")) != bool(piece.get("thought")):
            return False
        self._texts.append(piece.get("text", ""))
        self._part.update(piece)
        return True

    def read(self) -> Any:
        return {**self._part, "text": "".join(self._texts)} if self._texts else self._part


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() <= MERGED and isinstance(part.get("text", ""), str)
