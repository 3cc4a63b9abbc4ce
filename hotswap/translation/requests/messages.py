"""Anthropic's Messages: requests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hotswap.translation.names import Names
from hotswap.translation.pivot import (
    Asked,
    Call,
    Choice,
    Kind,
    Media,
    Output,
    Part,
    Result,
    Role,
    Text,
    Thinking,
    Tool,
    Turn,
)
from hotswap.translation.reading import (
    append,
    as_object,
    data_url,
    items,
    note_rest,
    note_signs,
    number,
    refuse_if,
    refuse_unless,
    table,
    text,
    texts,
    written,
)
from hotswap.translation.turns import instructs, merge, preamble, settle, spoken

TAIL = "/messages"
KINDS: tuple[Kind, ...] = ("function",)

MAX_TOKENS = 32_000
"""What is asked for where the program sets no limit: Anthropic demands one, and its models of today take this one."""
KNOWN = frozenset((
    "model", "messages", "system", "stream", "tools", "tool_choice", "thinking", "output_config", "output_format",
    "max_tokens", "stop_sequences", "temperature", "top_p", "top_k", "container", "mcp_servers",
))  # fmt: skip
BUDGETS = ((2_048, "low"), (8_192, "medium"))
"""Up to how many tokens of thinking an effort is meant; beyond is `high`."""
TOOL = frozenset({"type", "name", "description", "input_schema", "strict", "cache_control"})
OWN_TOOLS = ("bash_", "text_editor_", "computer_", "memory_")
"""Tools that the program runs, and that have no schema that could be offered to another model."""
SERVER_BLOCKS = ("server_tool_use", "mcp_tool_use", "container_upload")


def read(fields: Mapping[str, Any], dropped: set[str]) -> Asked:
    note_rest(fields, KNOWN, dropped)
    refuse_if(fields.get("container"), "container", "a container is on the provider's server")
    dropped |= {"mcp_servers"} if fields.get("mcp_servers") else set()
    thinking, config = table(fields.get("thinking")), table(fields.get("output_config"))
    note_rest(thinking, ("type", "budget_tokens"), dropped, "thinking")
    note_rest(config, ("effort", "format"), dropped, "output_config")
    choice = table(fields.get("tool_choice"))
    asked = Asked(
        max_tokens=number(fields.get("max_tokens")),
        temperature=fields.get("temperature"),
        top_p=fields.get("top_p"),
        top_k=fields.get("top_k"),
        stop=texts(fields.get("stop_sequences")),
        effort=_read_effort(thinking, config),
        output=_read_output(table(config.get("format") or fields.get("output_format"))),
        parallel=False if choice.get("disable_parallel_tool_use") else None,
        choice=_read_choice(choice),
        thoughts=thinking.get("type") in ("enabled", "adaptive"),
    )
    append(asked, Turn("system", tuple(read_content(fields.get("system"), dropped))))
    for tool in items(fields.get("tools")):
        _read_tool(tool, asked.tools, dropped)
    for message in items(fields.get("messages")):
        for turn in _read_message(message, dropped):
            append(asked, turn)
    return asked


def _read_effort(thinking: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """A program that says no effort gets the model's own, as it would from Anthropic."""
    if config.get("effort"):
        return text(config["effort"]) or None
    budget = number(thinking.get("budget_tokens"))
    if thinking.get("type") != "enabled" or budget is None:
        return None
    return next((effort for limit, effort in BUDGETS if budget <= limit), "high")


def _read_output(given: Mapping[str, Any]) -> Output | None:
    refuse_unless(given.get("type"), (None, "text", "json_schema"), "output_config.format.type")
    return Output(table(given.get("schema")), strict=True) if given.get("type") == "json_schema" else None


def _read_choice(choice: Mapping[str, Any]) -> Choice | None:
    kind = choice.get("type")
    if kind == "tool":
        return Choice("named", text(choice.get("name")))
    if kind == "any":
        return Choice("required")
    return Choice("none" if kind == "none" else "auto") if kind in ("auto", "none") else None


def _read_tool(tool: Mapping[str, Any], tools: list[Tool], dropped: set[str]) -> None:
    kind = text(tool.get("type")) or "custom"
    note_signs(tool, dropped)
    if kind != "custom":
        refuse_if(
            kind.startswith(OWN_TOOLS),
            f"tools.{kind}",
            f"the tool {kind} is run by the program, and known only to its own provider's models",
        )
        dropped.add(f"tools.{kind}")
        return
    note_rest(tool, TOOL, dropped, "tools")
    schema = {name: value for name, value in table(tool.get("input_schema")).items() if name != "$schema"}
    tools.append(
        Tool(text(tool.get("name")), text(tool.get("description")), schema, strict=tool.get("strict"))
    )


def _read_message(message: Mapping[str, Any], dropped: set[str]) -> list[Turn]:
    """Results of tools, which are parts of a user's message here, stand before what the user says."""
    said = text(message.get("role"))
    role: Role = "assistant" if said == "assistant" else "system" if said == "system" else "user"
    parts = read_content(message.get("content"), dropped)
    results = tuple(part for part in parts if isinstance(part, Result))
    return [Turn("tool", results), Turn(role, tuple(part for part in parts if not isinstance(part, Result)))]


def read_content(content: Any, dropped: set[str]) -> list[Part]:
    if isinstance(content, str):
        return [Text(content)] if content else []
    return [part for block in items(content) for part in _read_block(block, dropped)]


def _read_block(block: Mapping[str, Any], dropped: set[str]) -> list[Part]:
    kind = text(block.get("type"))
    note_signs(block, dropped)
    if kind == "text":
        return [Text(text(block.get("text")))]
    if kind in ("image", "document"):
        return _read_media(block, kind, dropped)
    if kind == "thinking":
        dropped |= {"thinking.signature"} if block.get("signature") else set()
        return [Thinking(text(block.get("thinking")))]
    if kind == "tool_use":
        return [Call(text(block.get("id")), text(block.get("name")), written(block.get("input")))]
    if kind == "tool_result":
        shown = read_content(block.get("content"), dropped)
        kept = tuple(part for part in shown if isinstance(part, Text | Media))
        return [Result(text(block.get("tool_use_id")), kept, bool(block.get("is_error")))]
    if kind == "redacted_thinking" or kind in SERVER_BLOCKS or kind.endswith("_tool_result"):
        dropped.add(kind)
        return []
    refuse_if(
        True,
        kind or "content",
        f"a block of the type {kind!r} can only be sent to an endpoint that speaks messages",
    )
    return []


def _read_media(block: Mapping[str, Any], kind: Any, dropped: set[str]) -> list[Part]:
    note_rest(block, ("type", "source", "title", "cache_control", "citations"), dropped, kind)
    source, title = table(block.get("source")), text(block.get("title")) or None
    how = source.get("type")
    if how == "base64":
        return [Media(kind, data_url(source.get("media_type"), source.get("data")), title)]
    if how == "url":
        return [Media(kind, text(source.get("url")), title)]
    if how == "text":
        return [Text(text(source.get("data")))]
    if how == "content":
        return read_content(source.get("content"), dropped)
    refuse_if(True, "file_id", "a file that lies with one provider cannot be sent to another: send its data")
    return []


def write(asked: Asked, names: Names, dropped: set[str]) -> dict[str, Any]:
    if any(isinstance(part, Thinking) for turn in asked.turns for part in turn.parts):
        dropped.add("thinking")  # without its signature Anthropic does not take it back
    head, rest = preamble(asked.turns)
    fields: dict[str, Any] = {
        "max_tokens": asked.max_tokens or MAX_TOKENS,
        "messages": [
            {"role": turn.role, "content": [_write_part(part, names) for part in turn.parts]}
            for turn in _arranged(rest)
        ],
    }
    system = [words for turn in head for words in spoken(turn.parts)]
    if system:
        fields["system"] = [{"type": "text", "text": words} for words in system]
    if names.tools:
        fields["tools"] = [_write_tool(tool) for tool in names.tools]
        fields |= _write_choice(asked, names)
    fields |= _write_thinking(asked)
    said = {"temperature": asked.temperature, "top_p": asked.top_p, "top_k": asked.top_k}
    if asked.stop:
        fields["stop_sequences"] = list(asked.stop)
    unsaid = ("seed", "presence_penalty", "frequency_penalty", "verbosity")
    dropped |= {name for name in unsaid if getattr(asked, name) is not None}
    return fields | {name: value for name, value in said.items() if value is not None}


def _write_thinking(asked: Asked) -> dict[str, Any]:
    """An effort needs no thinking blocks in the history, which a budget would demand and nobody else can keep."""
    config: dict[str, Any] = {}
    if asked.effort and asked.effort != "none":
        config["effort"] = "low" if asked.effort == "minimal" else asked.effort
    if asked.output and asked.output.schema is not None:
        config["format"] = {"type": "json_schema", "schema": asked.output.schema}
    refuse_if(
        asked.output and asked.output.schema is None,
        "json_object",
        "an endpoint that speaks messages is held to JSON by a schema alone: give one (json_schema)",
    )
    return {"output_config": config} if config else {}


def _write_tool(tool: Tool) -> dict[str, Any]:
    schema = {"type": "object", **(tool.schema or {"properties": {}})}
    strict = {"strict": True} if tool.strict else {}
    return {"name": tool.name, "description": tool.description, "input_schema": schema, **strict}


def _write_choice(asked: Asked, names: Names) -> dict[str, Any]:
    choice = asked.choice or (Choice("auto") if asked.parallel is False else None)
    if choice is None:
        return {}
    said: dict[str, Any] = {"type": {"required": "any", "named": "tool"}.get(choice.mode, choice.mode)}
    if choice.mode == "named":
        said["name"] = names.name(choice.name, choice.namespace)
    if asked.parallel is False and choice.mode != "none":
        said["disable_parallel_tool_use"] = True
    return {"tool_choice": said}


def _arranged(turns: Sequence[Turn]) -> list[Turn]:
    """User and assistant by turns; the results of tools first in the user's."""
    return merge(turn for turn in (_as_spoken(turn) for turn in settle(turns)) if turn.parts)


def _as_spoken(turn: Turn) -> Turn:
    """Instructions amid the conversation are marked as such among the user's words: few models take them as a role."""
    parts: tuple[Part, ...] = tuple(
        part for part in turn.parts if not isinstance(part, Text) or part.text.strip()
    )
    if turn.role == "assistant":
        return Turn("assistant", tuple(part for part in parts if not isinstance(part, Thinking)))
    if instructs(turn):
        parts = tuple(Text(f"<system-reminder>\n{words}\n</system-reminder>") for words in spoken(parts))
    return Turn("user", parts)


def _write_part(part: Part, names: Names) -> dict[str, Any]:
    if isinstance(part, Media):
        return _write_media(part)
    if isinstance(part, Call):
        return write_call(names.send(part))
    if isinstance(part, Result):
        return _write_result(part)
    return {"type": "text", "text": part.text}


def write_call(call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": as_object(call.arguments)}


def _write_result(result: Result) -> dict[str, Any]:
    shown = [part for part in result.parts if isinstance(part, Media) or part.text.strip()]
    content: Any = [_write_media(part) if isinstance(part, Media) else _text(part.text) for part in shown]
    if len(shown) == 1 and isinstance(shown[0], Text):
        content = shown[0].text
    said = {"type": "tool_result", "tool_use_id": _id(result.call_id), "content": content}
    return {**said, "is_error": True} if result.error else said


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _write_media(media: Media) -> dict[str, Any]:
    source: dict[str, Any] = {"type": "url", "url": media.url}
    if media.data is not None:
        source = {"type": "base64", "media_type": media.media_type, "data": media.data}
    title = {"title": media.name} if media.name and media.kind == "document" else {}
    return {"type": media.kind, "source": source, **title}


def _id(given: str) -> str:
    """Ids of other providers may hold what Anthropic's may not."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", given):
        return given
    digest = hashlib.sha256(given.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', given)}_{digest}"
