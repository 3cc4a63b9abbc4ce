"""The names of tools at an endpoint: namespaces and kinds of tools that it does not know become functions, and back."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from hotswap.dialects import parse
from hotswap.translation.pivot import Call, Kind, Tool

LIMIT = 64
"""Characters of a function's name that every endpoint takes."""
DEFAULT_NAMESPACE = "functions"
"""The namespace whose tools are called without it."""
INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input, as raw text."}},
    "required": ["input"],
    "additionalProperties": False,
}
"""What a custom tool takes as a function."""
SHELL = {
    "type": "object",
    "properties": {
        "command": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The program and its arguments.",
        },
        "working_directory": {"type": "string"},
        "timeout_ms": {"type": "integer"},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["command"],
}
"""What `local_shell` takes as a function."""


class Names:
    """What each tool of one request is called at the endpoint."""

    def __init__(self, tools: Sequence[Tool], kinds: Collection[Kind]) -> None:
        self.tools: list[Tool] = []
        """The tools as the endpoint gets them."""
        self._kinds = kinds
        self._flat: dict[tuple[str | None, str], Tool] = {}
        self._original: dict[str, Tool] = {}
        for tool in tools:
            self._add(tool)

    def _add(self, tool: Tool) -> None:
        key = (_namespace(tool.namespace), tool.name)
        if key in self._flat:
            return
        name = self._unique(_joined(*key))
        flat = replace(_as_known(tool, self._kinds), name=name, namespace=None)
        self._flat[key], self._original[name] = flat, tool
        self.tools.append(flat)

    def _unique(self, wanted: str) -> str:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", wanted)[:LIMIT] or "tool"
        if len(wanted) <= LIMIT and name not in self._original:
            return name
        digest = hashlib.sha256(wanted.encode("utf-8", "replace")).hexdigest()[:8]
        return f"{name[: LIMIT - 9]}_{digest}"

    def name(self, name: str, namespace: str | None = None) -> str:
        """Get what a tool is called there; one that is no longer offered is called as it would have been."""
        key = (_namespace(namespace), name)
        found = self._flat.get(key)
        return found.name if found else re.sub(r"[^A-Za-z0-9_-]", "_", _joined(*key))[:LIMIT] or "tool"

    def send(self, call: Call) -> Call:
        """Get a call of the history as the endpoint reads it."""
        name = self.name(call.name, call.namespace)
        if call.kind in self._kinds:
            return replace(call, name=name, namespace=None)
        arguments = json.dumps({"input": call.arguments}) if call.kind == "custom" else call.arguments
        return Call(call.id, name, arguments)

    def restore(self, call: Call) -> Call:
        """Get a call of the answer as the program knows the tool."""
        tool = self._original.get(call.name)
        if tool is None:
            return call
        arguments = call.arguments
        if tool.kind == "custom" and call.kind == "function":
            arguments = unwrap(arguments)
        return Call(call.id, tool.name, arguments, tool.kind, _namespace(tool.namespace))

    def changes(self, call: Call) -> bool:
        """Whether the arguments of a call can only be given back when they are whole."""
        tool = self._original.get(call.name)
        return tool is not None and tool.kind != call.kind


def unwrap(arguments: str) -> str:
    """Get the raw input out of the object that a model wrote around it; a model that wrote none wrote the input."""
    value = parse(arguments)
    if isinstance(value, dict) and isinstance(value.get("input"), str):
        return str(value["input"])
    if isinstance(value, dict) and len(value) == 1 and isinstance(text := next(iter(value.values())), str):
        return text
    return value if isinstance(value, str) else arguments


def _namespace(namespace: str | None) -> str | None:
    return None if namespace == DEFAULT_NAMESPACE else namespace


def _joined(namespace: str | None, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def _as_known(tool: Tool, kinds: Collection[Kind]) -> Tool:
    if tool.kind in kinds:
        return tool
    if tool.kind == "custom":
        return Tool(tool.name, _describe(tool), INPUT)
    return Tool(tool.name, tool.description, tool.schema or (SHELL if tool.kind == "local_shell" else {}))


def _describe(tool: Tool) -> str:
    """A function has no grammar: it is told in words."""
    format_: Any = tool.format if isinstance(tool.format, dict) else {}
    grammar = format_.get("definition")
    if not grammar:
        return tool.description
    return f"{tool.description}\n\n`input` must match this {format_.get('syntax') or ''} grammar:\n{grammar}".strip()
