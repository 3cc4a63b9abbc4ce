"""Wire formats. A dialect is one file with one class: its routes, and how requests and answers are read.

The proxy finds dialects by the names of their files, and a request's dialect by its path. A request is a
JSON object in which one field is the conversation: a list that grows from call to call. It is read item
by item, so that what was read in the call before need not be read again.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple

from hotswap.dialects._errors import parse as parse
from hotswap.dialects._errors import read_error
from hotswap.messages import Answer, Message, ProviderError, Request

Fields = Mapping[str, Any]
"""The top level of a request's body."""


class Event(NamedTuple):
    """One server-sent event."""

    name: str
    """Empty where the stream did not name it."""
    data: str


class Assembler(ABC):
    """Reads a streamed answer, event by event, into what its twin in one piece would have been."""

    @abstractmethod
    def feed(self, event: Event) -> None:
        """Take the next event. Never raises: what cannot be read is left out."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether a program that has read this far has the whole answer, and could stop reading."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether the last event of the answer has come: nothing that matters follows."""

    @abstractmethod
    def answer(self, cut: str | None = None) -> Answer:
        """What has come. `cut` says how the stream broke; null: it ended by itself, be it too early."""


class Dialect(ABC):
    """One wire format."""

    routes: ClassVar[tuple[str, ...]]
    """How the path of a call ends, below the base address: `/chat/completions`."""
    version: ClassVar[str] = "/v1"
    """The path of the version segment, for an address that has none."""
    conversation: ClassVar[str]
    """The field that holds the conversation."""

    @property
    def name(self) -> str:
        """The name of its file."""
        return type(self).__module__.rpartition(".")[2]

    def match(self, path: str) -> str | None:
        """Get the part of `path` that hangs below a base address; null where it is no call of this kind."""
        return next((route for route in self.routes if path.endswith(route)), None)

    def read_request(self, fields: Fields) -> Request:
        """Read a whole request."""
        items = fields.get(self.conversation)
        read = tuple(self.read_item(item) for item in (items if isinstance(items, list) else ()))
        return Request(
            model=self.read_model(fields),
            messages=(*self.read_preamble(fields), *read),
            tools=self.read_tools(fields),
            sampling=self.read_sampling(fields),
            stream=self.streams(fields),
        )

    def read_model(self, fields: Fields) -> str:
        return str(fields.get("model") or "")

    def read_preamble(self, fields: Fields) -> tuple[Message, ...]:  # noqa: ARG002
        """The messages that stand outside the conversation: a system prompt with a field of its own."""
        return ()

    @abstractmethod
    def read_item(self, item: Any) -> Message:
        """Read one item of the conversation. Never raises: what is not known is kept in `extra`."""

    def read_tools(self, fields: Fields) -> tuple[Any, ...]:
        tools = fields.get("tools")
        return tuple(tools) if isinstance(tools, list) else ()

    @abstractmethod
    def read_sampling(self, fields: Fields) -> dict[str, Any]:
        """The values that steer the answer, in the dialect's own words."""

    def streams(self, fields: Fields) -> bool:
        """Whether a stream is asked for; absent and null are no."""
        return fields.get("stream") is True

    @abstractmethod
    def impose(self, fields: Fields, model: str, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """Get the fields that must change for this model and these values, with what they become."""

    @abstractmethod
    def authorize(self, key: str) -> dict[str, str]:
        """The headers that carry a provider's key."""

    @abstractmethod
    def read_answer(self, body: bytes) -> Answer:
        """Read an answer in one piece, sent as a success. Never raises: where it is none, it has an error."""

    @abstractmethod
    def assembler(self) -> Assembler:
        """Start reading a streamed answer."""

    def read_error(self, status: int, body: bytes, headers: Mapping[str, str]) -> ProviderError:
        """Read an answer whose status says that it is an error."""
        return read_error(status, body, headers)

    @abstractmethod
    def write_error(self, status: int, type: str, message: str) -> bytes:  # noqa: A002
        """The body of an error of ours, in the dialect's words."""


@cache
def known() -> Mapping[str, Dialect]:
    """Every dialect by name: one for each file of this folder that does not begin with an underscore."""
    names = sorted(
        module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")
    )
    return {name: _load(name) for name in names}


def route(path: str) -> tuple[Dialect, str] | None:
    """Get the dialect of a call by its path, and the part of the path below the base address."""
    for dialect in known().values():
        tail = dialect.match(path)
        if tail is not None:
            return dialect, tail
    return None


def _load(name: str) -> Dialect:
    module = importlib.import_module(f"{__name__}.{name}")
    classes = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    )
    found: type[Dialect] = next(cls for cls in classes if issubclass(cls, Dialect))
    return found()
