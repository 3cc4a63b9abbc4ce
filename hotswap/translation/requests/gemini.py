"""Gemini: requests. It is read only: no endpoint is asked in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hotswap.translation.pivot import (
    Asked,
    Call,
    Choice,
    Media,
    Output,
    Part,
    Result,
    Text,
    Thinking,
    Tool,
    Turn,
)
from hotswap.translation.reading import (
    append,
    data_url,
    items,
    note_rest,
    number,
    only,
    refuse_if,
    refuse_unless,
    table,
    text,
    texts,
    written,
)

KNOWN = frozenset(
    {
        "model",
        "contents",
        "systemInstruction",
        "system_instruction",
        "tools",
        "toolConfig",
        "generationConfig",
    }
)
CONFIG = frozenset((
    "temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "seed", "presencePenalty", "frequencyPenalty",
    "responseMimeType", "responseSchema", "responseJsonSchema", "thinkingConfig", "candidateCount",
    "responseModalities",
))  # fmt: skip
DECLARED = frozenset({"name", "description", "parameters", "parametersJsonSchema"})
FILES = "//generativelanguage.googleapis.com/"
BUDGETS = ((0, "none"), (2_048, "low"), (8_192, "medium"))
MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto"}


def read(fields: Mapping[str, Any], dropped: set[str]) -> Asked:
    note_rest(fields, KNOWN, dropped)
    refuse_if(
        fields.get("cachedContent"),
        "cachedContent",
        "the cached part of the prompt is on the provider's server",
    )
    config = table(fields.get("generationConfig"))
    note_rest(config, CONFIG, dropped)
    refuse_if(
        (number(config.get("candidateCount")) or 1) > 1,
        "candidateCount",
        "only one candidate can be asked for",
    )
    refuse_if(config.get("responseLogprobs"), "responseLogprobs", "log-probabilities cannot be asked for")
    modes = set(texts(config.get("responseModalities")))
    refuse_if(modes - {"TEXT"}, "responseModalities", "images and sound can only be asked of Gemini")
    thinking = table(config.get("thinkingConfig"))
    asked = Asked(
        max_tokens=number(config.get("maxOutputTokens")),
        temperature=config.get("temperature"),
        top_p=config.get("topP"),
        top_k=config.get("topK"),
        seed=config.get("seed"),
        presence_penalty=config.get("presencePenalty"),
        frequency_penalty=config.get("frequencyPenalty"),
        stop=texts(config.get("stopSequences")),
        effort=_read_effort(thinking),
        output=_read_output(config),
        thoughts=bool(thinking.get("includeThoughts")),
    )
    system = table(fields.get("systemInstruction") or fields.get("system_instruction"))
    calls = _Calls()
    append(asked, Turn("system", tuple(_read_parts(system, calls, dropped))))
    for content in items(fields.get("contents")):
        for turn in _read_content(content, calls, dropped):
            append(asked, turn)
    _read_tools(fields, asked, dropped)
    return asked


def _read_effort(thinking: Mapping[str, Any]) -> str | None:
    if text(thinking.get("thinkingLevel")):
        return text(thinking["thinkingLevel"]).lower()
    budget = number(thinking.get("thinkingBudget"))  # -1: as much as the model likes
    return None if budget is None else next((effort for limit, effort in BUDGETS if budget <= limit), "high")


def _read_output(config: Mapping[str, Any]) -> Output | None:
    kinds = (None, "text/plain", "application/json")
    refuse_unless(config.get("responseMimeType"), kinds, "responseMimeType")
    if config.get("responseMimeType") != "application/json":
        return None
    schema = config.get("responseJsonSchema") or config.get("responseSchema")
    return Output(_plain(schema) if isinstance(schema, dict) else None)


def _plain(schema: Any) -> Any:
    """A schema in Gemini's words, whose types are in capitals, as JSON Schema."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        name: value.lower() if name == "type" and isinstance(value, str) else _plain(value)
        for name, value in schema.items()
        if name not in ("nullable", "propertyOrdering", "$schema")
    }
    if schema.get("nullable") is True and isinstance(plain.get("type"), str):
        plain["type"] = [plain["type"], "null"]
    return plain


def _read_tools(fields: Mapping[str, Any], asked: Asked, dropped: set[str]) -> None:
    for tool in items(fields.get("tools")):
        dropped |= {f"tools.{name}" for name in tool if name != "functionDeclarations"}
        for said in items(tool.get("functionDeclarations")):
            note_rest(said, DECLARED, dropped, "functionDeclarations")
            schema = table(said.get("parametersJsonSchema") or said.get("parameters"))
            asked.tools.append(Tool(text(said.get("name")), text(said.get("description")), _plain(schema)))
    note_rest(table(fields.get("toolConfig")), ("functionCallingConfig",), dropped, "toolConfig")
    config = table(table(fields.get("toolConfig")).get("functionCallingConfig"))
    mode = MODES.get(text(config.get("mode")).upper())
    if config.get("allowedFunctionNames"):
        asked.tools = only(asked.tools, {(None, name) for name in texts(config["allowedFunctionNames"])})
    if mode is not None:
        asked.choice = Choice("required" if mode == "required" else "none" if mode == "none" else "auto")


class _Calls:
    """Calls may go without ids here: their results are matched by name, in order."""

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[str, list[str]] = {}

    def open(self, call: Mapping[str, Any]) -> str:
        self._count += 1
        called = text(call.get("id")) or f"call_{self._count}"
        self._open.setdefault(text(call.get("name")), []).append(called)
        return called

    def close(self, response: Mapping[str, Any]) -> str:
        waiting = self._open.get(text(response.get("name")), [])
        called = text(response.get("id")) or (waiting[0] if waiting else "")
        if called in waiting:
            waiting.remove(called)
        return called


def _read_content(content: Mapping[str, Any], calls: _Calls, dropped: set[str]) -> list[Turn]:
    parts = _read_parts(content, calls, dropped)
    results = tuple(part for part in parts if isinstance(part, Result))
    said = tuple(part for part in parts if not isinstance(part, Result))
    return [Turn("tool", results), Turn("assistant" if content.get("role") == "model" else "user", said)]


def _read_parts(content: Mapping[str, Any], calls: _Calls, dropped: set[str]) -> list[Part]:
    return [found for part in items(content.get("parts")) for found in _read_part(part, calls, dropped)]


def _read_part(part: Mapping[str, Any], calls: _Calls, dropped: set[str]) -> list[Part]:
    if part.get("thoughtSignature"):
        dropped.add("thoughtSignature")
    if isinstance(part.get("text"), str):
        return [Thinking(part["text"]) if part.get("thought") else Text(part["text"])]
    call, response = table(part.get("functionCall")), table(part.get("functionResponse"))
    if call:
        return [Call(calls.open(call), text(call.get("name")), written(call.get("args")))]
    if response:
        return [_read_result(response, calls)]
    data, file = table(part.get("inlineData")), table(part.get("fileData"))
    media_type = text(data.get("mimeType") or file.get("mimeType"))
    refuse_if(
        not media_type.startswith(("image/", "application/pdf")),
        media_type.partition("/")[0] or "part",
        f"a part of {media_type or 'an unknown type'} can only be sent to Gemini",
    )
    url = data_url(media_type, data.get("data")) if data else text(file.get("fileUri"))
    lies = not data and (not url.startswith("http") or FILES in url)
    refuse_if(lies, "fileData", "a file that lies with one provider cannot be sent to another: send its data")
    return [Media("image" if media_type.startswith("image/") else "document", url, file.get("displayName"))]


def _read_result(response: Mapping[str, Any], calls: _Calls) -> Result:
    """A function gives back an object, of which `output` or `error` is all, by convention."""
    value = response.get("response")
    said = table(value)
    error = "error" in said
    words = said["error"] if error else said["output"] if said.keys() == {"output"} else value
    media = [table(part.get("inlineData")) for part in items(response.get("parts"))]
    shown = [
        Media("image", data_url(one.get("mimeType"), one.get("data"))) for one in media if one.get("data")
    ]
    spoken = words if isinstance(words, str) else json.dumps(words, ensure_ascii=False)
    return Result(calls.close(response), (Text(spoken), *shown), error)
