"""Chat Completions: requests."""

from __future__ import annotations

from collections.abc import Mapping
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
    Refusal,
    Result,
    Role,
    Text,
    Thinking,
    Tool,
    Turn,
)
from hotswap.translation.reading import (
    append,
    arguments,
    data_url,
    items,
    note_rest,
    note_signs,
    number,
    only,
    refuse_all,
    refuse_if,
    refuse_unless,
    table,
    text,
    texts,
)
from hotswap.translation.turns import of_type, preamble, settle, shown_after, spoken

TAIL = "/chat/completions"
KINDS: tuple[Kind, ...] = ("function",)
"""Custom tools are in OpenAI's own API only: they are sent as functions, which every server knows."""

ALTERING = {
    "logit_bias": "biases are of the ids of one model's tokens",
    "audio": "an answer in sound can only be asked of an endpoint that speaks chat",
    **dict.fromkeys(
        (
            "guided_json",
            "guided_regex",
            "guided_choice",
            "guided_grammar",
            "structured_outputs",
            "grammar",
            "json_schema",
        ),
        "a form of the answer in words of one server cannot be said to another",
    ),
}
"""Fields without which the answer would be another one."""
MESSAGE = frozenset((
    "role", "content", "tool_calls", "function_call", "tool_call_id", "reasoning_content", "reasoning", "refusal",
    "annotations", "logprobs", "audio",
))  # fmt: skip

ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "developer",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
KNOWN = frozenset((
    "model", "messages", "stream", "stream_options", "tools", "functions", "tool_choice", "function_call",
    "parallel_tool_calls", "response_format", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k",
    "seed", "presence_penalty", "frequency_penalty", "stop", "reasoning_effort", "verbosity", "n",
))  # fmt: skip


def read(fields: Mapping[str, Any], dropped: set[str]) -> Asked:
    refuse_if(
        (number(fields.get("n")) or 1) > 1,
        "n",
        "several answers to one call (n > 1) can only be asked of chat",
    )
    refuse_if(
        fields.get("logprobs"),
        "logprobs",
        "log-probabilities can only be asked of an endpoint that speaks chat",
    )
    refuse_all(fields, ALTERING)
    note_rest(fields, KNOWN, dropped)
    asked = Asked(
        max_tokens=number(fields.get("max_completion_tokens")) or number(fields.get("max_tokens")),
        stop=texts(fields.get("stop")),
        effort=text(fields.get("reasoning_effort")) or None,
        parallel=fields.get("parallel_tool_calls"),
        output=_read_output(table(fields.get("response_format"))),
        thoughts=True,
        usage_chunk=bool(table(fields.get("stream_options")).get("include_usage")),
    )
    for name in _SAME:
        setattr(asked, name, fields.get(name))
    _read_tools(fields, asked, dropped)
    legacy = _Legacy()
    for message in items(fields.get("messages")):
        append(asked, read_message(message, dropped, legacy))
    return asked


_SAME = ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty", "verbosity")


def _read_output(given: Mapping[str, Any]) -> Output | None:
    refuse_unless(given.get("type"), (None, "text", "json_object", "json_schema"), "response_format.type")
    if given.get("type") == "json_object":
        return Output()
    if given.get("type") != "json_schema":
        return None
    said = table(given.get("json_schema"))
    return Output(
        table(said.get("schema")),
        text(said.get("name")) or "answer",
        said.get("strict"),
        said.get("description"),
    )


def _read_tools(fields: Mapping[str, Any], asked: Asked, dropped: set[str]) -> None:
    legacy = [{"type": "function", "function": function} for function in items(fields.get("functions"))]
    for tool in (*items(fields.get("tools")), *legacy):
        said = table(tool.get("function") or tool.get("custom"))
        if not said:
            dropped.add(f"tools.{tool.get('type')}")
            continue
        custom = tool.get("type") == "custom"
        grammar = table(said.get("format"))
        asked.tools.append(
            Tool(
                name=text(said.get("name")),
                description=text(said.get("description")),
                schema=table(said.get("parameters")),
                kind="custom" if custom else "function",
                strict=said.get("strict"),
                format={"type": "grammar", **grammar["grammar"]}
                if table(grammar.get("grammar"))
                else grammar or None,
            )
        )
    _read_choice(fields.get("tool_choice", fields.get("function_call")), asked)


def _read_choice(choice: Any, asked: Asked) -> None:
    if choice in ("auto", "none", "required"):
        asked.choice = Choice(choice)
    elif isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = table(choice.get("allowed_tools"))
        names = {
            (None, text(table(tool.get("function")).get("name"))) for tool in items(allowed.get("tools"))
        }
        asked.tools = only(asked.tools, names)
        asked.choice = Choice("required" if allowed.get("mode") == "required" else "auto")
    elif not isinstance(choice, dict):
        refuse_unless(choice, (None,), "tool_choice")
    else:
        said = table(choice.get("function") or choice.get("custom") or choice)
        asked.choice = Choice("named", text(said.get("name")))


class _Legacy:
    """The ids of calls that have none: those of the time before there were tools."""

    def __init__(self) -> None:
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return self.last()

    def last(self) -> str:
        return f"call_{self._count}"


def read_message(message: Mapping[str, Any], dropped: set[str], legacy: _Legacy | None = None) -> Turn:
    """Read one message, of a request or an answer."""
    legacy = legacy or _Legacy()
    note_rest(
        {name: value for name, value in message.items() if value is not False}, MESSAGE, dropped, "messages"
    )
    role = ROLES.get(text(message.get("role")), "user")
    content = tuple(read_content(message.get("content"), dropped))
    if role == "tool":
        called = text(message.get("tool_call_id")) or legacy.last()
        return Turn(
            role, (Result(called, tuple(part for part in content if isinstance(part, Text | Media))),)
        )
    if role != "assistant":
        return Turn(role, content)
    thinking = text(message.get("reasoning_content")) or text(message.get("reasoning"))
    refusal = text(message.get("refusal"))
    return Turn(
        role,
        (
            *((Thinking(thinking),) if thinking else ()),
            *content,
            *((Refusal(refusal),) if refusal else ()),
            *_read_calls(message, legacy),
        ),
    )


def _read_calls(message: Mapping[str, Any], legacy: _Legacy) -> list[Call]:
    calls = items(message.get("tool_calls"))
    if isinstance(message.get("function_call"), dict) and not calls:
        calls = [{"id": legacy.next(), "function": message["function_call"]}]
    return [_read_call(call) for call in calls]


def _read_call(call: Mapping[str, Any]) -> Call:
    custom = table(call.get("custom"))
    if custom:
        return Call(text(call.get("id")), text(custom.get("name")), text(custom.get("input")), "custom")
    function = table(call.get("function"))
    return Call(text(call.get("id")), text(function.get("name")), arguments(function.get("arguments")))


def read_content(content: Any, dropped: set[str]) -> list[Part]:
    if isinstance(content, str):
        return [Text(content)] if content else []
    return [part for block in items(content) for part in _read_block(block, dropped)]


def _read_block(block: Mapping[str, Any], dropped: set[str]) -> list[Part]:
    note_signs(block, dropped)
    kind = block.get("type")
    if kind == "text":
        return [Text(text(block.get("text")))]
    if kind == "refusal":
        return [Refusal(text(block.get("refusal")))]
    if kind == "image_url":
        image = block.get("image_url")
        if text(table(image).get("detail")) in ("low", "high"):
            dropped.add("image_url.detail")
        return [Media("image", text(table(image).get("url")) or text(image))]
    if kind == "file":
        return [_read_file(table(block.get("file")))]
    refuse_if(
        True,
        text(kind) or "content",
        f"a part of the type {kind!r} can only be sent to an endpoint that speaks chat",
    )
    return []


def _read_file(file: Mapping[str, Any]) -> Media:
    data = text(file.get("file_data"))
    refuse_if(
        not data, "file_id", "a file that lies with one provider cannot be sent to another: send its data"
    )
    return Media(
        "document",
        data if data.startswith("data:") else data_url("application/pdf", data),
        file.get("filename"),
    )


def write(asked: Asked, names: Names, dropped: set[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"messages": _write_turns(asked.turns, names)}
    if names.tools:
        fields["tools"] = [_write_tool(tool) for tool in names.tools]
        if asked.choice:
            fields["tool_choice"] = _write_choice(asked.choice, names)
        if asked.parallel is not None:
            fields["parallel_tool_calls"] = asked.parallel
    if asked.max_tokens is not None:
        # reasoning models of OpenAI take this name alone; most other servers know the old one only
        fields["max_completion_tokens" if asked.effort else "max_tokens"] = asked.max_tokens
    if asked.stop:
        fields["stop"] = list(asked.stop)
    if asked.effort:
        fields["reasoning_effort"] = asked.effort
    if asked.output:
        fields["response_format"] = _write_output(asked.output)
    if asked.top_k is not None:
        dropped.add("top_k")
    said = {name: getattr(asked, name) for name in _SAME if name != "top_k"}
    return fields | {name: value for name, value in said.items() if value is not None}


def _write_output(output: Output) -> dict[str, Any]:
    if output.schema is None:
        return {"type": "json_object"}
    said = {
        "name": output.name,
        "schema": output.schema,
        "strict": output.strict,
        "description": output.description,
    }
    return {
        "type": "json_schema",
        "json_schema": {name: value for name, value in said.items() if value is not None},
    }


def _write_tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "description": tool.description}
    function["parameters"] = tool.schema or {"type": "object", "properties": {}}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _write_choice(choice: Choice, names: Names) -> Any:
    if choice.mode != "named":
        return choice.mode
    return {"type": "function", "function": {"name": names.name(choice.name, choice.namespace)}}


def _write_turns(turns: list[Turn], names: Names) -> list[dict[str, Any]]:
    """The instructions at the beginning are one system message: many chat templates take no second one."""
    head, rest = preamble(turns)
    messages: list[dict[str, Any]] = []
    if head:
        words = "\n\n".join(words for turn in head for words in spoken(turn.parts))
        messages.append({"role": "system", "content": words})
    for turn in settle(rest):
        messages += _write_turn(turn, names)
    return messages


def _write_turn(turn: Turn, names: Names) -> list[dict[str, Any]]:
    if turn.role == "tool":
        results = of_type(turn.parts, Result)
        written = [{"role": "tool", "tool_call_id": one.call_id, "content": one.text} for one in results]
        after = shown_after(results)
        return [*written, *([] if after is None else _write_turn(after, names))]
    if turn.role == "assistant":
        return [_write_assistant(turn, names)]
    role = "system" if turn.role == "developer" else turn.role
    return [{"role": role, "content": _write_content(turn.parts)}]


def _write_assistant(turn: Turn, names: Names) -> dict[str, Any]:
    words = "".join(part.text for part in turn.parts if isinstance(part, Text | Refusal))
    message: dict[str, Any] = {"role": "assistant", "content": words or None}
    thinking = "".join(part.text for part in of_type(turn.parts, Thinking))
    calls = [write_call(names.send(call)) for call in of_type(turn.parts, Call)]
    if thinking:
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = calls
    else:
        message["content"] = words
    return message


def write_call(call: Call) -> dict[str, Any]:
    if call.kind == "custom":
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments or "{}"},
    }


def _write_content(parts: tuple[Part, ...]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return [_write_part(part) for part in parts if isinstance(part, Text | Media)]


def _write_part(part: Text | Media) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if part.kind == "image":
        return {"type": "image_url", "image_url": {"url": part.url}}
    refuse_if(
        part.data is None,
        "document",
        "a document behind an address cannot be sent to an endpoint that speaks chat",
    )
    return {"type": "file", "file": {"filename": part.name or "document", "file_data": part.url}}
