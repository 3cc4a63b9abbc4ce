"""What a runtime's author writes: boxes, in which commands run, files come and go, and the proxy is reached."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from hotswap.contracts.environment import Environment
from hotswap.contracts.model import Say
from hotswap.contracts.network import OPEN, Network
from hotswap.contracts.options import Part
from hotswap.errors import UsageError

if TYPE_CHECKING:
    import asyncio
    import socket

OUTPUT_LIMIT = 1 << 20
"""Bytes that are kept of each output stream, half from its beginning and half from its end."""
WORD_LIMIT = 1024
"""Bytes of an endless word that are left out beside a cut."""
WHITE = re.compile(rb"\s")


@dataclass(frozen=True, kw_only=True)
class Command:
    """One process to start. Never a shell string."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the box's own environment."""
    cwd: str | None = None
    """Null: the box's working directory. A relative path hangs below it."""
    user: str | None = None
    stdin: bytes | None = None
    """Null: at end of file from the start."""
    timeout_s: float | None = None
    """After this the whole tree is ended and the result says so."""
    output_limit: int = OUTPUT_LIMIT

    def __post_init__(self) -> None:
        check_start(self)


class Start(Protocol):
    """What a process is started with."""

    @property
    def argv(self) -> tuple[str, ...]: ...
    @property
    def stdin(self) -> bytes | None: ...


def check_start(start: Start) -> None:
    """Raise TypeError where text stands for a tuple of words, which would be its letters, or for bytes."""
    kind, argv = type(start).__name__, start.argv
    if isinstance(argv, str | bytes):
        raise TypeError(f"{kind}(argv={argv!r}): a tuple of words is wanted, as {tuple(argv.split())!r}")
    for word in argv:
        if not isinstance(word, str | os.PathLike):
            raise TypeError(
                f"{kind}(argv=...) has {word!r} in it: a tuple of words is wanted, each of them text"
            )
    if isinstance(start.stdin, str):
        raise TypeError(f"{kind}(stdin={start.stdin[:40]!r}): bytes are wanted, as text.encode() gives them")


@dataclass(frozen=True)
class Output:
    """What was kept of one output stream: all of it, or its beginning and its end."""

    head: bytes = b""
    tail: bytes = b""
    size: int = 0
    """Bytes that the process wrote in all."""

    def __bytes__(self) -> bytes:
        missing = self.size - len(self.head) - len(self.tail)
        if not missing:
            return self.head + self.tail
        head, tail = _to_a_word(self.head[::-1])[::-1], _to_a_word(self.tail)
        missing = self.size - len(head) - len(tail)
        return head + f"\n[... {missing} of {self.size} bytes left out ...]\n".encode() + tail

    @property
    def text(self) -> str:
        """As text: bytes that are no UTF-8 become U+FFFD."""
        return bytes(self).decode("utf-8", "replace")


def _to_a_word(data: bytes) -> bytes:
    """Get what follows the first white space: half a word may be half of a secret, which nobody would recognise."""
    found = WHITE.search(data, 0, WORD_LIMIT)
    return data[found.start() if found else WORD_LIMIT :]


@dataclass(frozen=True)
class Result:
    """How a process ended."""

    exit: int | None
    """Its exit code; null when a signal ended it."""
    signal: int | None
    stdout: Output
    stderr: Output
    elapsed_s: float
    ended_by: Literal["itself", "timeout", "us"] = "itself"
    """`timeout`: its time limit; `us`: `Process.end` or `Box.end_processes`."""


@dataclass(frozen=True)
class File:
    """A file's content and mode."""

    content: bytes
    mode: int = 0o644


Files = Mapping[str, File]
"""Files by path relative to the box's working directory; an absolute path is taken as it is."""


class PathError(ValueError):
    """A path that cannot be put or got: it leads outside the box, is too long, or is no regular file."""


class Accept(Protocol):
    """Serves what connects to a listening socket, until the server that it returns is closed."""

    async def __call__(self, listener: socket.socket) -> asyncio.AbstractServer: ...


@dataclass(frozen=True)
class Gate:
    """Where the proxy is reached."""

    host: str
    port: int
    """On the host's loopback."""
    accept: Accept
    """Answers at a socket that was made to listen elsewhere, such as on a box's own loopback, as at its own."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a rollout needs of its box."""

    rollout: str
    """The rollout's id: labels whatever the runtime makes for it."""
    gate: Gate
    run: str = ""
    """The run's name, for labels."""
    mounts: tuple[Path, ...] = ()
    """Host folders that must be readable inside; `Box.locate` says where."""
    environment: Environment = field(default_factory=Environment)
    """What the task asks for."""
    network: Network = OPEN
    """What may be reached: what `Runtime.policy` made of the task's wish and the user's."""
    egress: Accept | None = None
    """Answers as the way out to the hosts that `network` names; null where it names none."""


@dataclass(frozen=True)
class Made:
    """What a box turned out to be."""

    runtime: str | None = None
    """The runtime that made it, where the one that was named chose another."""
    image: str | None = None
    """The image that it was made from, by its digest or id."""
    not_enforced: tuple[str, ...] = ()
    """What was asked for and is not held here, such as `memory`."""


@dataclass(frozen=True)
class Kept:
    """How a person looks into a box that was left, and how it is removed: each a command line."""

    enter: str
    remove: str


class Process(ABC):
    """A process that was started in a box."""

    @abstractmethod
    async def wait(self) -> Result:
        """Get how it ended. May be awaited more than once. A child that keeps an output open does not delay it."""

    @abstractmethod
    async def end(self) -> None:
        """End it and everything that it started: TERM, then after a short grace KILL. Returns when all are gone."""

    @abstractmethod
    def output(self) -> AsyncIterator[bytes]:
        """Iterate over stdout as it comes, from its beginning; one reader, and it must keep reading."""

    @abstractmethod
    async def send(self, data: bytes | None) -> None:
        """Write to standard input of a process started with `stdin=b""`; None closes it.

        What the process no longer reads is dropped.
        """


class Box(ABC):
    """One started instance of a runtime."""

    workdir: str
    """Absolute path inside of the directory that commands run in."""
    home: str
    """Absolute path inside of the home folder: outside the working directory, private to this box."""
    url: str
    """The proxy as seen from inside, without a path."""
    made: Made = Made()
    """What it turned out to be."""

    @abstractmethod
    async def start(self, command: Command) -> Process:
        """Start a process. Raises Fault (runtime) where the box cannot; a program that is not there exits with 127."""

    async def run(self, command: Command) -> Result:
        """Start a process and wait for its end; cancelled, the process is ended first."""
        process = await self.start(command)
        try:
            return await process.wait()
        except BaseException:
            await process.end()
            raise

    @abstractmethod
    async def put(self, files: Files) -> None:
        """Write files, making folders as needed; a link at the place of a file is replaced. Raises PathError."""

    @abstractmethod
    async def get(self, paths: Sequence[str]) -> Files:
        """Read files. One that does not exist is left out. Raises PathError."""

    @abstractmethod
    async def end_processes(self) -> None:
        """End every process that was started in this box and is still running, and all that they started."""

    @abstractmethod
    async def alive(self) -> bool:
        """Whether commands can still be started."""

    @abstractmethod
    def locate(self, path: Path) -> str:
        """Where a path below one of `Needs.mounts` is found inside."""

    def keep(self) -> Kept | None:
        """Let the box stand when it is left, its processes ended; null where this runtime cannot."""
        return None


class Runtime(Part, ABC):
    """The place where the program runs. It hands out boxes."""

    closed: ClassVar[bool] = False
    """Whether agent code is kept from the host and from other rollouts."""
    default_network: ClassVar[str] = "open"
    """What boxes may reach where the user says nothing."""
    portable: ClassVar[bool] = False
    """Boxes may lack every library of this machine: programs are mounted with all that they need."""

    network: str | None = None
    """What a box may reach beside the model: open, closed, or hosts such as example.org,*.example.net."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        try:
            Network.parse(self.network or self.default_network)
        except ValueError as error:
            raise UsageError(f"network = {self.network!r}: {error}") from None

    @abstractmethod
    def box(self, needs: Needs) -> AbstractAsyncContextManager[Box]:
        """A started box; on leaving, all its processes are gone and everything that it left is removed."""

    def handed(self) -> Mapping[str, str]:
        """The person's own variables that boxes are given. Those named as secrets are masked in all that is written."""
        return {}

    def check(self) -> None:
        """Raise UsageError, naming the remedy, where this machine cannot provide such boxes."""

    def refuses(self, environment: Environment) -> str | None:  # noqa: ARG002
        """Say why a task that asks for this cannot be played here; null where it can. Asked before a run begins."""
        return None

    def policy(self, environment: Environment) -> Network:
        """Get what a box for such a task may reach: the stricter of what the task and the user say."""
        own = Network.parse(self.network or self.default_network)
        return own if environment.network is None else own.stricter(Network.parse(environment.network))

    @asynccontextmanager
    async def running(self, say: Say) -> AsyncIterator[None]:  # noqa: ARG002
        """Hold what all boxes of a run share, such as a connection. Entered once, before the first of them."""
        yield

    async def prepare(self, environment: Environment, say: Say) -> None:
        """Make ready what boxes for such tasks are made from, such as an image. Called before each; done once.

        Raises Fault (runtime, box) where it cannot be had, saying which and who needs it.
        """

    async def clean(self) -> Sequence[str]:
        """Remove what runs that are no more left here; get a line for each thing. Raises Fault for what remains."""
        return ()
