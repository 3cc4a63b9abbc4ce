"""Google's Gemini API: `POST /v1beta/models/MODEL:generateContent` and `:streamGenerateContent`.

The model and whether to stream stand in the path. A stream is one of events with `alt=sse`, else a JSON list
that grows, which is passed on and read in one piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote, unquote

from hotswap.dialects import Assembler, Dialect, Fields, Group
from hotswap.dialects._errors import TOO_LONG, find_error, parse, retry_after
from hotswap.dialects._gemini_answer import (
    GeminiAssembler,
    blocked,
    candidates,
    either,
    read_failure,
    read_message,
    read_parts,
    snake,
)
from hotswap.dialects._reading import malformed, table
from hotswap.messages import Answer, Message, ProviderError

TAIL = re.compile(r"/(?:models|tunedModels)/(?P<model>.+)(?::|%3[Aa])(?P<verb>[A-Za-z]+)$")
STREAM = ":streamGenerateContent"
SAMPLING = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "max_tokens": "maxOutputTokens",
    "seed": "seed",
    "stop": "stopSequences",
}
"""What a run can set, and its name in `generationConfig`."""
ROLES = {"model": "assistant", "": "user", "function": "user"}
READ = frozenset({"role", "parts"})
WORDS = {
    "rate_limit": (429, "RESOURCE_EXHAUSTED"),
    "overloaded": (503, "UNAVAILABLE"),
    "auth": (401, "UNAUTHENTICATED"),
    "authentication_error": (401, "UNAUTHENTICATED"),
    "timeout": (504, "DEADLINE_EXCEEDED"),
    "context_length": (400, "INVALID_ARGUMENT"),
    "bad_request": (400, "INVALID_ARGUMENT"),
    "limit_reached": (400, "INVALID_ARGUMENT"),
    "request_too_large": (400, "INVALID_ARGUMENT"),
}
"""What Google calls our types, with the status of each; any other is INTERNAL."""
INTERNAL = (500, "INTERNAL")


class Gemini(Dialect):
    """Gemini."""

    routes: ClassVar[tuple[str, ...]] = (":generateContent", STREAM)
    helpers: ClassVar[tuple[str, ...]] = (
        ":countTokens",
        ":embedContent",
        ":batchEmbedContents",
        ":asyncBatchEmbedContent",
        ":batchGenerateContent",
        ":predict",
        ":predictLongRunning",
    )
    version: ClassVar[str] = "/v1beta"
    conversation: ClassVar[str] = "contents"
    unsaid: ClassVar[frozenset[str]] = frozenset({"effort"})

    def match(self, path: str) -> str | None:
        return _tail(path, self.routes)

    def helps(self, path: str) -> str | None:
        return _tail(path, self.helpers)

    def address(self, tail: str, model: str) -> str:
        found = TAIL.search(tail)
        if found is None or not model or model == unquote(found["model"]):
            return tail
        return f"/models/{quote(model.removeprefix('models/'), safe='')}:{found['verb']}"

    def streams(self, fields: Fields, tail: str = "") -> bool:  # noqa: ARG002
        return _tail(tail, (STREAM,)) is not None

    def read_model(self, fields: Fields, tail: str = "") -> str:
        found = TAIL.search(tail)
        return unquote(found["model"]) if found else super().read_model(fields)

    def read_preamble(self, fields: Fields) -> tuple[Message, ...]:
        """The system prompt, and a conversation that is a single content, which the API takes, too."""
        system, only = either(fields, "systemInstruction"), fields.get(self.conversation)
        told = system if isinstance(system, str) else read_parts(system)
        said = _read_item(only) if isinstance(only, dict) else ()
        return (*((Message("system", told),) if told else ()), *said)

    def read_items(self, items: Sequence[Any]) -> Iterator[Group]:
        return (Group(tuple(_read_item(item)), 1) for item in items)

    def tool_names(self, fields: Fields) -> frozenset[str]:
        """An entry holds several functions, or is a tool of the provider's."""
        names: set[str] = set()
        for tool in map(table, self.read_tools(fields)):
            declared = either(tool, "functionDeclarations")
            functions = declared if isinstance(declared, list) else ()
            names.update(str(table(one).get("name")) for one in functions)
            names.update(tool if declared is None else ())
        return frozenset(names)

    def read_sampling(self, fields: Fields) -> dict[str, Any]:
        said = {**table(either(fields, "generationConfig")), "toolConfig": either(fields, "toolConfig")}
        return {name: value for name, value in said.items() if value is not None}

    def impose(self, fields: Fields, model: str, sampling: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """The model is in the path. An effort is left out: what stands for it differs from model to model."""
        name = "generation_config" if "generation_config" in fields else "generationConfig"
        config = table(fields.get(name))
        wanted = {
            SAMPLING[ours]: value
            for ours, value in sampling.items()
            if ours in SAMPLING and value is not None
        }
        if isinstance(wanted.get("stopSequences"), str):
            wanted["stopSequences"] = [wanted["stopSequences"]]
        spelled = {snake(key) if snake(key) in config else key: value for key, value in wanted.items()}
        changed = {**({name: {**config, **spelled}} if spelled else {}), **(sampling.get("extra") or {})}
        missing = object()
        return {key: value for key, value in changed.items() if fields.get(key, missing) != value}

    def asks_models(self, path: str, headers: Mapping[str, str]) -> bool:  # noqa: ARG002
        return f"{self.version}/" in path

    def write_models(self, model: str, context: int | None) -> dict[str, Any]:
        verbs = ["generateContent", "streamGenerateContent", "countTokens"]
        named = {"name": f"models/{model}", "displayName": model, "supportedGenerationMethods": verbs}
        return {"models": [named if context is None else {**named, "inputTokenLimit": context}]}

    def authorize(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}

    def read_answer(self, body: bytes) -> Answer:
        """Read an answer in one piece, or the list that a stream without events is."""
        value = parse(body)
        pieces = value if isinstance(value, list) else [value]
        if not any(candidates(piece) or blocked(piece) or find_error(piece) for piece in pieces):
            return malformed(body, "content")
        assembler = GeminiAssembler()
        for piece in pieces:
            assembler.take(piece)
        return assembler.answer() if isinstance(value, list) else assembler.whole()

    def sends_events(self, query: str) -> bool:
        return "alt=sse" in query.split("&")

    def write_stream(self, body: bytes, fields: Fields, query: str) -> bytes | None:  # noqa: ARG002
        value = parse(body)
        if self.sends_events(query):
            pieces = value if isinstance(value, list) else [value]
            return b"".join(b"data: " + json.dumps(piece).encode() + b"\n\n" for piece in pieces)
        return None if isinstance(value, list) else b"[" + body + b"]"

    def assembler(self) -> Assembler:
        return GeminiAssembler()

    def read_error(self, status: int, body: bytes, headers: Mapping[str, str]) -> ProviderError:
        error = find_error(parse(body))
        if error is None:
            return super().read_error(status, body, headers)
        return read_failure(error, status, retry_after(headers))

    def write_error(self, status: int, type: str, message: str) -> bytes:  # noqa: A002
        word = "INVALID_ARGUMENT" if status == 400 else WORDS.get(type, INTERNAL)[1]
        return _write(status, word, type, message)

    def write_error_event(self, type: str, message: str) -> bytes:  # noqa: A002
        return b"data: " + _write(*WORDS.get(type, INTERNAL), type, message) + b"\n\n"


def _tail(path: str, verbs: Sequence[str]) -> str | None:
    found = TAIL.search(path)
    return found[0] if found and f":{found['verb']}" in verbs else None


def _write(code: int, word: str, type: str, message: str) -> bytes:  # noqa: A002
    if type == "context_length" and not TOO_LONG.search(message):
        message = f"The input token count exceeds the maximum number of tokens allowed: {message}"
    return json.dumps({"error": {"code": code, "message": message, "status": word}}).encode()


def _read_item(item: Any) -> Iterator[Message]:
    """Read one content of the list: the results of tools in it, one by one, and what is left of it."""
    if not isinstance(item, dict):
        yield Message("", extra={"raw": item})
        return
    role, parts = str(item.get("role") or ""), read_parts(item)
    results = [part for part in parts if _result(part) is not None]
    for part in results:
        result = _result(part) or {}
        yield Message("tool", [part], tool_call_id=str(result.get("id") or result.get("name") or "") or None)
    if len(results) < len(parts) or not results:
        extra = {name: value for name, value in item.items() if name not in READ and value is not None}
        yield read_message(ROLES.get(role, role), [part for part in parts if _result(part) is None], extra)


def _result(part: Any) -> dict[str, Any] | None:
    found = either(part, "functionResponse") if isinstance(part, dict) else None
    return found if isinstance(found, dict) else None
