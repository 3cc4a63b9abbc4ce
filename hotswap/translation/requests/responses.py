"""Responses: requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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
    arguments,
    as_object,
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
    written,
)
from hotswap.translation.turns import merge, settle

TAIL = "/responses"
KINDS: tuple[Kind, ...] = ("function", "custom")

KNOWN = frozenset((
    "model", "input", "instructions", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls",
    "reasoning", "text", "max_output_tokens", "temperature", "top_p", "background", "conversation", "prompt",
    "previous_response_id",
))  # fmt: skip
ELSEWHERE = {
    "previous_response_id": "the history is on the provider's server: send the whole of it as `input`",
    "conversation": "the conversation is on the provider's server: send the whole of it as `input`",
    "prompt": "the prompt is on the provider's server: send its text",
    "background": "an answer that is fetched later can only be asked of an endpoint that speaks responses",
}
"""Fields that point to what we cannot ask for."""
LOGPROBS = "message.output_text.logprobs"
OWN_TOOLS = ("computer", "shell", "apply_patch")
"""Tools that the program runs, and that have no schema that could be offered to another model."""
RESULTS = ("computer_call_output", "shell_call_output", "apply_patch_call_output", "mcp_approval_response")
"""What the program answered to calls of such tools: the conversation means nothing without them."""
HIDDEN = {
    "item_reference": "an item that is on the provider's server cannot be sent to another: send the item",
    "compaction": "a history that was compacted to an encrypted item can only be read by who wrote it",
    "compaction_summary": "a history that was compacted to an encrypted item can only be read by who wrote it",
}
ROLES: Mapping[str, Role] = {"system": "system", "developer": "developer", "assistant": "assistant"}


def read(fields: Mapping[str, Any], dropped: set[str]) -> Asked:
    refuse_all(fields, ELSEWHERE)
    refuse_if(
        fields.get("top_logprobs") or LOGPROBS in texts(fields.get("include")),
        "top_logprobs",
        "log-probabilities can only be asked of the same dialect",
    )
    note_rest(fields, KNOWN, dropped)
    reasoning, form = table(fields.get("reasoning")), table(fields.get("text"))
    note_rest(form, ("format", "verbosity"), dropped, "text")
    note_rest({f"reasoning.{name}": value for name, value in reasoning.items()}, _SAID_REASONING, dropped)
    asked = Asked(
        max_tokens=number(fields.get("max_output_tokens")),
        temperature=fields.get("temperature"),
        top_p=fields.get("top_p"),
        effort=text(reasoning.get("effort")) or None,
        verbosity=text(form.get("verbosity")) or None,
        parallel=fields.get("parallel_tool_calls"),
        output=_read_output(table(form.get("format"))),
        thoughts=True,
    )
    if text(fields.get("instructions")):
        asked.turns.append(Turn("system", (Text(fields["instructions"]),)))
    _read_tools(fields.get("tools"), asked.tools, dropped)
    _read_input(fields.get("input"), asked, dropped)
    _read_choice(fields.get("tool_choice"), asked)
    return asked


_SAID_REASONING = frozenset({"reasoning.effort", "reasoning.summary", "reasoning.generate_summary"})


def _read_output(given: Mapping[str, Any]) -> Output | None:
    refuse_unless(given.get("type"), (None, "text", "json_object", "json_schema"), "text.format.type")
    if given.get("type") == "json_object":
        return Output()
    if given.get("type") != "json_schema":
        return None
    name = text(given.get("name")) or "answer"
    return Output(table(given.get("schema")), name, given.get("strict"), given.get("description"))


def _read_tools(given: Any, tools: list[Tool], dropped: set[str], namespace: str | None = None) -> None:
    for said in items(given):
        kind = text(said.get("type"))
        if kind == "namespace":
            note_rest(said, ("type", "name", "tools"), dropped, "tools.namespace")
            _read_tools(said.get("tools"), tools, dropped, text(said.get("name")))
        elif kind in _TOOLS:
            tools.append(_read_tool(said, _TOOLS[kind], namespace))
        else:
            refuse_if(kind.startswith(OWN_TOOLS), f"tools.{kind}", _OWN_TOOL.format(kind))
            dropped.add(f"tools.{kind}")


_OWN_TOOL = "the tool {} is run by the program, and known only to its own provider's models"
_TOOLS: Mapping[str, Kind] = {
    "function": "function",
    "custom": "custom",
    "local_shell": "local_shell",
    "tool_search": "tool_search",
}


def _read_tool(said: Mapping[str, Any], kind: Kind, namespace: str | None) -> Tool:
    return Tool(
        name=text(said.get("name")) or kind,
        description=text(said.get("description")),
        schema=table(said.get("parameters")),
        kind=kind,
        namespace=namespace,
        strict=said.get("strict"),
        format=said.get("format"),
    )


def _read_choice(choice: Any, asked: Asked) -> None:
    if choice in ("auto", "none", "required"):
        asked.choice = Choice(choice)
        return
    said = table(choice)
    kind = said.get("type")
    if kind == "allowed_tools":
        allowed = items(said.get("tools"))
        asked.tools = only(
            asked.tools, {(text(tool.get("namespace")) or None, text(tool.get("name"))) for tool in allowed}
        )
        asked.choice = Choice("required" if said.get("mode") == "required" else "auto")
    elif kind in ("function", "custom", "local_shell"):
        asked.choice = Choice("named", text(said.get("name")) or kind, text(said.get("namespace")) or None)
    elif kind:
        refuse_if(
            True, f"tool_choice.{kind}", f"the model cannot be made to call the server's own tool {kind}"
        )


def _read_input(given: Any, asked: Asked, dropped: set[str]) -> None:
    """What one call of the model wrote is several items here, and one turn in the pivot."""
    if isinstance(given, str):
        asked.turns.append(Turn("user", (Text(given),)))
        return
    turns: list[Turn] = []
    for item in items(given):
        turn = _read_item(item, asked, dropped)
        if turn is not None and turn.parts:
            both = bool(turns) and turns[-1].role == turn.role and turn.role in ("assistant", "tool")
            turns[-1:] = merge([turns[-1], turn]) if both else [*turns[-1:], turn]
    asked.turns += turns


def _read_item(item: Mapping[str, Any], asked: Asked, dropped: set[str]) -> Turn | None:
    kind = text(item.get("type")) or "message"
    refuse_if(kind in HIDDEN, kind, HIDDEN.get(kind, ""))
    refuse_if(kind in RESULTS, kind, f"an item of the type {kind!r} can only be sent to its own provider")
    note_rest({name: item[name] for name in item if name.startswith("internal_")}, (), dropped, "input")
    if kind == "message":
        role = ROLES.get(text(item.get("role")), "user")
        return Turn(role, tuple(_read_content(item.get("content"), dropped)))
    if kind == "reasoning":
        return _read_reasoning(item, dropped)
    if kind in ("additional_tools", "tool_search_output"):
        _read_tools(item.get("tools"), asked.tools, dropped)
    reader = _ITEMS.get(kind)
    if reader is not None:
        return reader(item, dropped)
    if kind != "additional_tools":
        dropped.add(f"input.{kind}")
    return None


def _read_reasoning(item: Mapping[str, Any], dropped: set[str]) -> Turn:
    if item.get("encrypted_content"):
        dropped.add("reasoning.encrypted_content")
    parts = items(item.get("summary")) or items(item.get("content"))
    words = "\n\n".join(text(part.get("text")) for part in parts)
    return Turn("assistant", (Thinking(words),) if words else ())


def _call(item: Mapping[str, Any], dropped: set[str]) -> Turn:  # noqa: ARG001
    return Turn("assistant", (read_call(item),))


def read_call(item: Mapping[str, Any]) -> Call:
    """Read a call of a tool that the program runs, of a request or an answer."""
    called, kind = text(item.get("call_id")) or text(item.get("id")), item.get("type")
    name, namespace = text(item.get("name")), text(item.get("namespace")) or None
    if kind == "custom_tool_call":
        return Call(called, name, text(item.get("input")), "custom", namespace)
    if kind == "local_shell_call":
        action = {name: value for name, value in table(item.get("action")).items() if name != "type"}
        return Call(called, "local_shell", json.dumps(action), "local_shell")
    if kind == "tool_search_call":
        return Call(called, "tool_search", written(item.get("arguments")), "tool_search")
    return Call(called, name, arguments(item.get("arguments")), "function", namespace)


def _result(item: Mapping[str, Any], dropped: set[str]) -> Turn:
    parts = _read_content(item.get("output"), dropped)
    if item.get("type") == "tool_search_output":
        parts = [Text("The tools that were found can be called now:\n" + written(item.get("tools")))]
    called = text(item.get("call_id")) or text(item.get("id"))
    shown = tuple(part for part in parts if isinstance(part, Text | Media))
    return Turn("tool", (Result(called, shown),))


_ITEMS: Mapping[str, Callable[[Mapping[str, Any], set[str]], Turn]] = {
    "function_call": _call,
    "custom_tool_call": _call,
    "local_shell_call": _call,
    "tool_search_call": _call,
    "function_call_output": _result,
    "custom_tool_call_output": _result,
    "local_shell_call_output": _result,
    "tool_search_output": _result,
}


def _read_content(content: Any, dropped: set[str]) -> list[Part]:
    if isinstance(content, str):
        return [Text(content)] if content else []
    return [_read_part(part, dropped) for part in items(content)]


def _read_part(part: Mapping[str, Any], dropped: set[str]) -> Part:
    note_signs(part, dropped)
    kind = text(part.get("type"))
    refuse_if(
        part.get("file_id"),
        "file_id",
        "a file that lies with one provider cannot be sent to another: send its data",
    )
    if kind in ("input_text", "output_text", "text", "summary_text", "reasoning_text"):
        return Text(text(part.get("text")))
    if kind == "refusal":
        return Refusal(text(part.get("refusal")))
    if kind == "input_image":
        if part.get("detail") in ("low", "high"):
            dropped.add("input_image.detail")
        return Media("image", text(part.get("image_url")))
    refuse_if(
        kind != "input_file",
        kind or "content",
        f"a part of the type {kind!r} cannot be sent to another dialect",
    )
    data, name = text(part.get("file_data")), text(part.get("filename")) or None
    url = data_url("application/pdf", data) if data and not data.startswith("data:") else data
    return Media("document", url or text(part.get("file_url")), name)


def write(asked: Asked, names: Names, dropped: set[str]) -> dict[str, Any]:
    refuse_if(asked.stop, "stop", "an endpoint that speaks responses knows no stop sequences")
    # nothing refers to the answer later: no server need keep it
    fields: dict[str, Any] = {"input": _write_turns(asked.turns, names, dropped), "store": False}
    if names.tools:
        fields["tools"] = [write_tool(tool) for tool in names.tools]
        if asked.choice:
            fields["tool_choice"] = _write_choice(asked.choice, names)
        if asked.parallel is not None:
            fields["parallel_tool_calls"] = asked.parallel
    reasoning = {"effort": asked.effort} if asked.effort else {}
    if asked.effort and asked.effort != "none" and asked.thoughts:
        reasoning["summary"] = "auto"
    said = {
        "max_output_tokens": asked.max_tokens,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "reasoning": reasoning or None,
        "text": _write_form(asked),
    }
    unsaid = ("top_k", "seed", "presence_penalty", "frequency_penalty")
    dropped |= {name for name in unsaid if getattr(asked, name) is not None}
    return fields | {name: value for name, value in said.items() if value is not None}


def _write_form(asked: Asked) -> dict[str, Any] | None:
    form: dict[str, Any] = {}
    output = asked.output
    if output is not None and output.schema is None:
        form["format"] = {"type": "json_object"}
    elif output is not None:
        said = {"name": output.name, "schema": output.schema, "strict": output.strict}
        described = {**said, "description": output.description}
        form["format"] = {
            "type": "json_schema",
            **{name: value for name, value in described.items() if value is not None},
        }
    if asked.verbosity:
        form["verbosity"] = asked.verbosity
    return form or None


def write_tool(tool: Tool) -> dict[str, Any]:
    if tool.kind == "custom":
        form = {"format": tool.format} if tool.format else {}
        return {"type": "custom", "name": tool.name, "description": tool.description, **form}
    schema = tool.schema or {"type": "object", "properties": {}}
    # left out, `strict` would be on here, and off in every other dialect
    strict = bool(tool.strict)
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": schema,
        "strict": strict,
    }


def _write_choice(choice: Choice, names: Names) -> Any:
    if choice.mode != "named":
        return choice.mode
    name = names.name(choice.name, choice.namespace)
    kind = next((tool.kind for tool in names.tools if tool.name == name), "function")
    return {"type": kind, "name": name}


def _write_turns(turns: Sequence[Turn], names: Names, dropped: set[str]) -> list[dict[str, Any]]:
    settled = settle(turns)
    if any(isinstance(part, Thinking) for turn in settled for part in turn.parts):
        dropped.add("thinking")  # without its encrypted form the provider does not take it back
    calls = [part for turn in settled for part in turn.parts if isinstance(part, Call)]
    custom = {call.id for call in calls if call.kind == "custom"}
    return [item for turn in settled for item in _write_turn(turn, names, custom)]


def _write_turn(turn: Turn, names: Names, custom: set[str]) -> list[dict[str, Any]]:
    said = [part for part in turn.parts if isinstance(part, Text | Refusal | Media)]
    content = [_write_part(part, turn.role) for part in said]
    items = [{"type": "message", "role": turn.role, "content": content}] if content else []
    items += [write_call(names.send(part)) for part in turn.parts if isinstance(part, Call)]
    return items + [_write_result(part, custom) for part in turn.parts if isinstance(part, Result)]


def write_call(call: Call) -> dict[str, Any]:
    """Write a call as an item; in the words of its kind."""
    head: dict[str, Any] = {"call_id": call.id}
    if call.kind == "local_shell":
        action = {"type": "exec", "env": {}, **as_object(call.arguments)}
        return {"type": "local_shell_call", **head, "action": action}
    if call.kind == "tool_search":
        said = {"execution": "client", "arguments": as_object(call.arguments)}
        return {"type": "tool_search_call", **head, **said}
    named = {"name": call.name, **({"namespace": call.namespace} if call.namespace else {})}
    if call.kind == "custom":
        return {"type": "custom_tool_call", **head, **named, "input": call.arguments}
    return {"type": "function_call", **head, **named, "arguments": call.arguments or "{}"}


def _write_result(result: Result, custom: set[str]) -> dict[str, Any]:
    kind = "custom_tool_call_output" if result.call_id in custom else "function_call_output"
    output: Any = result.text
    if result.media:
        words = [_write_part(Text(result.text), "tool")] if result.text else []
        output = [*words, *(_write_media(media) for media in result.media)]
    return {"type": kind, "call_id": result.call_id, "output": output}


def _write_part(part: Text | Refusal | Media, role: Role) -> dict[str, Any]:
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": part.text}
    if isinstance(part, Media):
        return _write_media(part)
    said = {"type": "output_text", "annotations": []} if role == "assistant" else {"type": "input_text"}
    return {**said, "text": part.text}


def _write_media(media: Media) -> dict[str, Any]:
    if media.kind == "image":
        return {"type": "input_image", "image_url": media.url, "detail": "auto"}
    if media.data is None:
        return {"type": "input_file", "file_url": media.url}
    return {"type": "input_file", "filename": media.name or "document", "file_data": media.url}
