"""An item of a streamed answer of OpenAI's Responses, as far as it has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hotswap.dialects._reading import text_or_none
from hotswap.dialects._responses_answer import Item


class Growth(NamedTuple):
    """What a kind of delta adds to: a field of an item, or the text of a part in it."""

    item: str
    """The type of the item."""
    field: str
    part: str = ""
    """The type of the part; empty where the field itself is the text."""
    text: str = "text"
    """Where the part has its text."""


GROWTHS: Mapping[str, Growth] = {
    "output_text": Growth("message", "content", "output_text"),
    "refusal": Growth("message", "content", "refusal", "refusal"),
    "reasoning_text": Growth("reasoning", "content", "reasoning_text"),
    "reasoning_summary_text": Growth("reasoning", "summary", "summary_text"),
    "function_call_arguments": Growth("function_call", "arguments"),
    "custom_tool_call_input": Growth("custom_tool_call", "input"),
    "mcp_call_arguments": Growth("mcp_call", "arguments"),
    "code_interpreter_call_code": Growth("code_interpreter_call", "code"),
}
PARTS: Mapping[str, Growth] = {
    "content_part": GROWTHS["output_text"],
    "reasoning_part": GROWTHS["reasoning_text"],
    "reasoning_summary_part": GROWTHS["reasoning_summary_text"],
}


@dataclass(eq=False)
class Slot:
    """One item of a stream, as far as it has come."""

    index: int | None
    item: dict[str, Any] = field(default_factory=dict)
    done: bool = False
    texts: dict[tuple[Growth, int], list[str]] = field(default_factory=dict)
    parts: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    def is_other(self, item: Mapping[str, Any]) -> bool:
        """Whether an item that comes in this place is another one: some servers give all the same place."""
        mine, its = (text_or_none(one.get("call_id")) for one in (self.item, item))
        if mine and its:
            return mine != its
        if self.item.get("type", item.get("type")) != item.get("type"):
            return True
        return (self.done or self.index is None) and self.item.get("id") != item.get("id")

    def grow(self, growth: Growth, part: int, event: Mapping[str, Any], done: bool) -> None:
        """Take a piece of text, or, when it is done, all of it."""
        name = (growth.text if growth.part else growth.field) if done else "delta"
        text = event.get(name)
        if not isinstance(text, str):
            return
        if not done:
            self.texts.setdefault((growth, part), []).append(text)
        elif text:
            self.texts[growth, part] = [text]

    def take_part(self, name: str, place: int, part: dict[str, Any], done: bool) -> None:
        if done:
            self.parts[name, place] = part
        else:
            self.parts.setdefault((name, place), part)

    def annotate(self, place: int, annotation: Any) -> None:
        part = self.parts.get(("content", place), {"type": "output_text"})
        noted = part.get("annotations")
        noted = noted if isinstance(noted, list) else []
        self.parts["content", place] = {**part, "annotations": [*noted, annotation]}

    def read(self, status: str | None) -> Item:
        """Get the item, when the response has come to this status."""
        value = {
            **self.item,
            **{name: what for name, what in self._grown().items() if not self.item.get(name)},
        }
        whole = self.done or status == "completed"
        if whole and not self.done and "status" in value:
            value["status"] = "completed"
        return Item(value, whole)

    def _grown(self) -> dict[str, Any]:
        grown: dict[str, Any] = {}
        parts: dict[str, dict[int, Any]] = {}
        for (name, place), part in self.parts.items():
            parts.setdefault(name, {})[place] = part
        for (growth, place), pieces in self.texts.items():
            text = "".join(pieces)
            if not growth.part:
                grown[growth.field] = text
                continue
            part = parts.setdefault(growth.field, {}).get(place, {"type": growth.part})
            parts[growth.field][place] = {**part, growth.text: part.get(growth.text) or text}
        return grown | {name: [part for _, part in sorted(these.items())] for name, these in parts.items()}
