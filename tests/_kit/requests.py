"""A whole request as a dialect reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hotswap.dialects import Dialect
from hotswap.messages import Message


@dataclass(frozen=True)
class Request:
    """What a program asked a model."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Any, ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = False


def read_request(dialect: Dialect, fields: Mapping[str, Any], tail: str = "") -> Request:
    """Read all of a request at once, as the proxy does in steps."""
    items = fields.get(dialect.conversation)
    groups = dialect.read_items(items if isinstance(items, list) else ())
    return Request(
        model=dialect.read_model(fields, tail),
        messages=(
            *dialect.read_preamble(fields),
            *(message for group in groups for message in group.messages),
        ),
        tools=dialect.read_tools(fields),
        sampling=dialect.read_sampling(fields),
        stream=dialect.streams(fields, tail),
    )
