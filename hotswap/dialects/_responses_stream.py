"""The events of a streamed answer of OpenAI's Responses, put together to what its twin in one piece says."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from hotswap.dialects import Assembler, Event
from hotswap.dialects._errors import find_error, parse
from hotswap.dialects._reading import count, table, text_or_none, truncated, unreadable
from hotswap.dialects._responses_answer import UNSAID, Item, conclude, read_failure, whole_output
from hotswap.dialects._responses_slot import GROWTHS, PARTS, Growth, Slot
from hotswap.messages import Answer, ProviderError

FINAL = frozenset({"completed", "incomplete", "failed", "cancelled"})
"""What the status of a response is once it has ended."""
ENDS: Mapping[str, str] = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
"""The events that end a stream."""
FILLED = ("content", "summary", "arguments", "input", "code")
"""Fields that some servers leave empty in a finished item, although deltas have filled them."""


class ResponsesAssembler(Assembler):
    """Reads the events of one stream."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []
        self._places: dict[Any, Slot] = {}
        self._response: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._status: str | None = None
        self._error: ProviderError | None = None
        self._odd: ProviderError | None = None
        self._number = 0

    def feed(self, event: Event) -> None:
        value = parse(event.data)
        if value is None:
            self._odd = self._odd or unreadable(event.name, event.data)
        if not isinstance(value, dict):
            self._note_error(find_error(value))
            return
        kind = text_or_none(value.get("type")) or event.name
        self._number = count(value.get("sequence_number")) or self._number
        if kind in ENDS or isinstance(value.get("response"), dict):
            self._take_response(kind, value)
        elif kind.startswith("response."):
            self._take_item_event(kind, value)
        if not kind.startswith("response."):
            self._note_error(_find_failure(kind, event.name, value))

    def _take_response(self, kind: str, event: Mapping[str, Any]) -> None:
        response = table(event.get("response"))
        self._response = {**self._response, **response}
        usage = table(response.get("usage"))
        self._usage |= {name: value for name, value in usage.items() if value is not None}
        if kind not in ENDS:
            return
        status = response.get("status")
        self._status = status if isinstance(status, str) and status in FINAL else ENDS[kind]
        self._note_error(table(response.get("error")) or table(event.get("error")))
        if self._status == "failed" and self._error is None:
            self._note_error(UNSAID)

    def _note_error(self, error: Mapping[str, Any] | None) -> None:
        if error:
            self._error = read_failure(error)

    def _take_item_event(self, kind: str, event: Mapping[str, Any]) -> None:
        name, _, step = kind.removeprefix("response.").rpartition(".")
        if name in GROWTHS:
            self._grow(GROWTHS[name], event, step == "done")
        elif name == "output_item" and isinstance(event.get("item"), dict):
            self._take_item(event, event["item"], step == "done")
        elif name in PARTS and isinstance(event.get("part"), dict):
            slot = self._find_slot(event, PARTS[name])
            slot.take_part(PARTS[name].field, _place(event), event["part"], step == "done")
        elif name == "output_text.annotation":
            slot = self._find_slot(event, GROWTHS["output_text"])
            slot.annotate(_place(event), event.get("annotation"))

    def _take_item(self, event: Mapping[str, Any], item: dict[str, Any], done: bool) -> None:
        index, name = count(event.get("output_index")), text_or_none(item.get("id"))
        slot = self._places.get((index, name)) or self._places.get(index)
        if slot is None or slot.is_other(item):
            slot = self._open_slot(index, name)
        self._places[index, name] = slot
        if done or not slot.done:
            slot.item, slot.done = item, done

    def _grow(self, growth: Growth, event: Mapping[str, Any], done: bool) -> None:
        slot = self._find_slot(event, growth)
        slot.grow(growth, _place(event), event, done)
        if done and not growth.part and event.get("name") and not slot.item.get("name"):
            slot.item = {**slot.item, "name": event["name"]}

    def _find_slot(self, event: Mapping[str, Any], growth: Growth) -> Slot:
        """Get the item that an event adds to; one that nobody has announced is begun."""
        index, name = count(event.get("output_index")), text_or_none(event.get("item_id"))
        slot = self._places.get((index, name)) or self._places.get(index)
        if slot is None:
            slot = self._open_slot(index, name)
            slot.item = {"type": growth.item, **({"id": name} if name else {})}
            slot.item |= {} if growth.part else {"call_id": event.get("call_id") or name}
        return slot

    def _open_slot(self, index: int | None, name: str | None) -> Slot:
        slot = Slot(index)
        self._slots.append(slot)
        self._places[index] = self._places[index, name] = slot
        return slot

    @property
    def complete(self) -> bool:
        """Only the event that ends the response completes it, although codex runs finished calls before."""
        return self._status is not None or self._error is not None

    @property
    def ended(self) -> bool:
        return self._status is not None

    def answer(self, cut: str | None = None) -> Answer:
        error = self._error
        if error is None and self._status is None:
            error = truncated(cut)
        if error is None and not whole_output(self._response):  # else the last event has all that was lost
            error = self._odd
        response = {**self._response, "status": self._status or "in_progress"}
        return conclude(response, self._items(), self._usage, error)

    def _items(self) -> list[Item]:
        """What the last event lists, and what it leaves out of that which came before it."""
        slots = sorted(self._slots, key=lambda slot: len(self._slots) if slot.index is None else slot.index)
        came = [slot.read(self._status) for slot in slots]
        items = whole_output(self._response) if self.ended else []
        if not items:
            return came
        items = [_fill(item, place, came) for place, item in enumerate(items)]
        for place, item in enumerate(came):
            if item.whole and not any(_covers(listed, item) for listed in items):
                items.insert(place, item)
        return items

    def keep_alive(self) -> bytes:
        """An event that codex takes for progress, as it does not a comment."""
        response = self._response or write_response("in_progress")
        said = {"type": "response.in_progress", "sequence_number": self._number, "response": response}
        return write_event(said)


def write_response(status: str, **fields: Any) -> dict[str, Any]:
    """Get a response object of ours, as small as it may be."""
    made = {"id": "resp_hotswap", "object": "response", "created_at": int(time.time()), "status": status}
    return {
        **made,
        "model": "",
        "output": [],
        "error": None,
        "incomplete_details": None,
        "usage": None,
        **fields,
    }


def write_event(value: Mapping[str, Any]) -> bytes:
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def _find_failure(kind: str, name: str, event: dict[str, Any]) -> Mapping[str, Any] | None:
    """Get the error in an event that is none of a response's: an `error` event, or one without a type."""
    if "error" in (kind, name):
        return find_error(event) or UNSAID
    return find_error(event) if not kind else table(event.get("error"))


def _place(event: Mapping[str, Any]) -> int:
    return count(event.get("content_index")) or count(event.get("summary_index")) or 0


def _fill(item: Item, place: int, came: list[Item]) -> Item:
    """Fill what a listed item leaves empty from the one that came in the stream."""
    value = table(item.value)
    same = [other.value for at, other in enumerate(came) if _same(value, other.value, at == place)]
    if not same or all(value.get(name) for name in FILLED if same[0].get(name)):
        return item
    return Item(
        {**value, **{name: same[0][name] for name in FILLED if not value.get(name) and same[0].get(name)}},
        True,
    )


def _same(listed: Mapping[str, Any], came: Mapping[str, Any], here: bool) -> bool:
    if listed.get("type") != came.get("type"):
        return False
    label = "call_id" if listed.get("call_id") else "id"
    return here or (listed.get(label) is not None and listed.get(label) == came.get(label))


def _covers(listed: Item, came: Item) -> bool:
    """Whether a list has an item that came before it. Ids may differ: only calls are told apart."""
    value = table(listed.value)
    call = came.value.get("call_id")
    return value.get("type") == came.value.get("type") and (not call or value.get("call_id") == call)
