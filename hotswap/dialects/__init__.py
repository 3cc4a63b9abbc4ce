"""Wire formats. A dialect is one file with one class: its routes, and how requests and answers are read.

The proxy finds dialects by the names of their files, and a request's dialect by its path. A request is a
JSON object in which one field is the conversation: a list that grows from call to call. It is read group
by group, so that what was read in the call before need not be read again.

What a message holds, whatever its dialect:

* `content` is the text, or the dialect's own parts in their order, as sent: nothing is left out or rewritten.
* `tool_calls`, `reasoning` and `refusal` are read out of those parts (or fields) beside it.
* The result of a tool is a message of its own with the role `tool` and the id of the call, even where the
  dialect packs several into one message of the user.
* What one call of the model wrote is one message, even where the dialect splits it into items.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, ClassVar, NamedTuple

from hotswap.dialects._errors import nothing as nothing
from hotswap.dialects._errors import parse as parse
from hotswap.dialects._errors import read_error
from hotswap.messages import Answer, Message, ProviderError

Fields = Mapping[str, Any]
"""The top level of a request's body."""


class Contradiction(Exception):
    """What the run sets and what the program asks for cannot both be; the message says why."""


class Event(NamedTuple):
    """One server-sent event."""

    name: str
    """Empty where the stream did not name it."""
    data: str


class Group(NamedTuple):
    """Items of a conversation that were read together, and the messages in them."""

    messages: tuple[Message, ...]
    items: int
    """How many items were read."""
    open: bool = False
    """Items that follow could belong to the same message: it must be read again with them."""


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

    def keep_alive(self) -> bytes:
        """An event that says that the answer is still to come, as the programs of this dialect need it.

        Also before the first event of the stream. A comment will do for most.
        """
        return b": keep-alive\n\n"


class Dialect(ABC):
    """One wire format."""

    routes: ClassVar[tuple[str, ...]]
    """How the path of a call ends, below the base address: `/chat/completions`."""
    helpers: ClassVar[tuple[str, ...]] = ()
    """Routes below the base address that belong to this dialect and are no turn: `/messages/count_tokens`."""
    version: ClassVar[str] = "/v1"
    """The path of the version segment, for an address that has none."""
    unsaid: ClassVar[frozenset[str]] = frozenset()
    """Values of a run's `sampling` that the dialect has no word for: they are left out."""
    conversation: ClassVar[str]
    """The field that holds the conversation."""

    @property
    def name(self) -> str:
        """The name of its file."""
        return type(self).__module__.rpartition(".")[2]

    def match(self, path: str) -> str | None:
        """Get the part of `path` that hangs below a base address; null where it is no call of this kind."""
        return next((route for route in self.routes if path.endswith(route)), None)

    def helps(self, path: str) -> str | None:
        """The same for a route that is no turn."""
        return next((route for route in self.helpers if path.endswith(route)), None)

    def address(self, tail: str, model: str) -> str:  # noqa: ARG002
        """Get the part of the path that goes up, for a model that replaces the program's; most say it in the body."""
        return tail

    def read_model(self, fields: Fields, tail: str = "") -> str:  # noqa: ARG002
        return str(fields.get("model") or "")

    def read_preamble(self, fields: Fields) -> tuple[Message, ...]:  # noqa: ARG002
        """The messages that stand outside the list: a system prompt with a field of its own, a conversation
        that is a single text."""
        return ()

    def read_previous(self, fields: Fields) -> str | None:  # noqa: ARG002
        """The id of an earlier answer that the provider goes on from, where the dialect has such a thing."""
        return None

    @abstractmethod
    def read_items(self, items: Sequence[Any]) -> Iterator[Group]:
        """Read items of the conversation, in order. Never raises: what is not known is kept in `extra`."""

    def read_tools(self, fields: Fields) -> tuple[Any, ...]:
        tools = fields.get("tools")
        return tuple(tools) if isinstance(tools, list) else ()

    def tool_names(self, fields: Fields) -> frozenset[str]:
        """The names of the tools on offer; of one without a name its type."""
        return frozenset(_tool_name(tool) for tool in self.read_tools(fields))

    @abstractmethod
    def read_sampling(self, fields: Fields) -> dict[str, Any]:
        """The values that steer the answer, in the dialect's own words."""

    def streams(self, fields: Fields, tail: str = "") -> bool:  # noqa: ARG002
        """Whether a stream is asked for; absent and null are no."""
        return fields.get("stream") is True

    def sends_events(self, query: str) -> bool:  # noqa: ARG002
        """Whether a stream that is asked for with this query comes as events; else it is a JSON list that grows."""
        return True

    @abstractmethod
    def write_stream(self, body: bytes, fields: Fields, query: str) -> bytes | None:
        """Write an answer in one piece as the stream that was asked for, and says the same; null where it is one."""

    @abstractmethod
    def impose(self, fields: Fields, model: str, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """Get the fields that must change for this model and these values, with what they become. Raises
        Contradiction."""

    def yields(self, fields: Fields, imposed: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ARG002
        """Name what of the program's own wishes had to change with what was imposed."""
        return ()

    def asks_models(self, path: str, headers: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Whether a request for the list of models is one of this dialect alone."""
        return False

    def write_models(self, model: str, context: int | None) -> dict[str, Any]:  # noqa: ARG002
        """Write the list of models, which has one."""
        return {
            "object": "list",
            "data": [{"id": model, "object": "model", "created": 0, "owned_by": "hotswap"}],
        }

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
        """The body of an error of ours, in the dialect's words. `type` is that of a `ProviderError`, and is read
        from it again, or a word of ours."""

    @abstractmethod
    def write_error_event(self, type: str, message: str) -> bytes:  # noqa: A002
        """The same inside a stream that has begun: the bytes of its last events."""


def _tool_name(tool: Any) -> str:
    """The name of a tool, which some have one level down."""
    said = tool if isinstance(tool, Mapping) else {}
    inner = next((one for one in map(said.get, ("function", "custom")) if isinstance(one, Mapping)), said)
    return str(inner.get("name") or said.get("type"))


@cache
def known() -> Mapping[str, Dialect]:
    """Every dialect by name: one for each file of this folder that does not begin with an underscore."""
    names = sorted(
        module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")
    )
    return {name: _load(name) for name in names}


def write_models(path: str, headers: Mapping[str, str], model: str, context: int | None) -> dict[str, Any]:
    """Write the list of models as who asks for it reads it: most read OpenAI's."""
    asked = (dialect for dialect in known().values() if dialect.asks_models(path, headers))
    return next(asked, known()["chat"]).write_models(model, context)


class Route(NamedTuple):
    """What a path means."""

    dialect: Dialect
    tail: str
    """The part of the path below the base address."""
    turn: bool
    """Whether the model is asked to answer; else it is a route beside."""


@lru_cache(1024)
def route(path: str) -> Route | None:
    """Get the dialect of a path; null where it is of none."""
    for turn in (True, False):
        for dialect in known().values():
            tail = dialect.match(path) if turn else dialect.helps(path)
            if tail is not None:
                return Route(dialect, tail, turn)
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
