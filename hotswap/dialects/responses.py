"""OpenAI's Responses: `POST /v1/responses`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from hotswap.dialects import Assembler, Dialect, Fields, Group
from hotswap.dialects._errors import RETRYABLE, parse
from hotswap.dialects._reading import table, text_or_none
from hotswap.dialects._responses_answer import read_body
from hotswap.dialects._responses_items import read_items
from hotswap.dialects._responses_stream import ResponsesAssembler, write_event, write_response
from hotswap.dialects._restreamed import of_responses
from hotswap.messages import Answer, Message

SAMPLING = frozenset((
    "temperature", "top_p", "top_k", "min_p", "max_output_tokens", "max_tool_calls", "reasoning", "text",
    "tool_choice", "parallel_tool_calls", "truncation", "service_tier", "top_logprobs",
))  # fmt: skip
ABSENT = frozenset({"stop", "seed"})
"""What other dialects can say and this one cannot."""
CODES: Mapping[str, str] = {
    "context_length": "context_length_exceeded",
    "rate_limit": "rate_limit_exceeded",
    "auth": "invalid_api_key",
    "server": "server_error",
}
"""Our types in the words of the API."""
FATAL = "invalid_prompt"
"""The code at which codex ends, and shows the message: it takes nearly every other one for a passing fault."""


class Responses(Dialect):
    """Responses."""

    routes: ClassVar[tuple[str, ...]] = ("/responses",)
    conversation: ClassVar[str] = "input"
    unsaid: ClassVar[frozenset[str]] = frozenset({"stop", "seed"})

    def helps(self, path: str) -> str | None:
        """All routes below that of a call are beside: `compact`, `input_tokens`, and those of a stored answer."""
        _, below, rest = path.rpartition("/responses/")
        return below + rest if below else None

    def read_preamble(self, fields: Fields) -> tuple[Message, ...]:
        instructions, said = fields.get("instructions"), fields.get("input")
        system = (
            [Message("system", instructions)] if instructions and isinstance(instructions, str | list) else []
        )
        return (*system, *([Message("user", said)] if isinstance(said, str) else []))

    def read_previous(self, fields: Fields) -> str | None:
        return text_or_none(fields.get("previous_response_id"))

    def read_items(self, items: Sequence[Any]) -> Iterator[Group]:
        return read_items(items)

    def read_sampling(self, fields: Fields) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name in SAMPLING and value is not None}

    def impose(self, fields: Fields, model: str, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """`stop` and `seed` do not exist in this dialect and are left out. The rest of `reasoning` is the program's."""
        without = {"extra", *ABSENT}
        wanted = {
            name: value for name, value in sampling.items() if name not in without and value is not None
        }
        if "max_tokens" in wanted:
            wanted["max_output_tokens"] = wanted.pop("max_tokens")
        if "effort" in wanted:
            wanted["reasoning"] = {**table(fields.get("reasoning")), "effort": wanted.pop("effort")}
        wanted |= sampling.get("extra") or {}
        if model:
            wanted["model"] = model
        missing = object()
        return {name: value for name, value in wanted.items() if fields.get(name, missing) != value}

    def authorize(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    def read_answer(self, body: bytes) -> Answer:
        return read_body(body)

    def write_stream(self, body: bytes, fields: Fields, query: str) -> bytes:  # noqa: ARG002
        return b"".join(of_responses(table(parse(body))))

    def assembler(self) -> Assembler:
        return ResponsesAssembler()

    def write_error(self, status: int, type: str, message: str) -> bytes:  # noqa: A002
        kind = "invalid_request_error" if status == 400 else type
        error = {"message": message, "type": kind, "param": None, "code": CODES.get(type, type)}
        return json.dumps({"error": error}).encode()

    def write_error_event(self, type: str, message: str) -> bytes:  # noqa: A002
        """The code is one at which codex does what it should, the type is our own word."""
        code = CODES.get(type, "server_error") if type in (*RETRYABLE, "context_length") else FATAL
        error = {"code": code, "message": message, "type": type}
        said = {
            "type": "response.failed",
            "sequence_number": 0,
            "response": write_response("failed", error=error),
        }
        return write_event(said)
