"""The connection to the far machine: one `ssh`, and at its other end the program of ours that makes boxes."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hotswap.contracts.runtime import PathError
from hotswap.errors import Fault
from hotswap.processes import Family, Running, carry_through, entrust, release, remove_folder
from hotswap.runtimes._ssh_boot import NONE, command, program
from hotswap.runtimes._ssh_frames import GREETING, REPLY, REQUEST, Frame, Frames, said
from hotswap.runtimes._ssh_words import Way

FAREWELL_S = 20.0
"""The far program may take so long to end and remove what is left of its boxes."""
REMOVAL_S = 5.0
FORWARD_S = 20.0
LAST_WORDS_S = 0.5
PASSED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SSH_AUTH_SOCK",
    "LANG",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "KRB5CCNAME",
)
"""Variables that ssh is given: it finds its settings, its agent and a person's ticket by them."""

Hear = Callable[[Frame], None]
More = Callable[[], Awaitable[bytes]]


class NoPython(Exception):
    """The far machine has no Python that will do; `machine` is its system and processor."""

    def __init__(self, machine: str) -> None:
        super().__init__(machine)
        self.machine = machine


class Link:
    """One connection. It is opened once, and once it is lost it stays so: another is made in its place."""

    def __init__(self, way: Way, root: str | None) -> None:
        self.way, self._root = way, root
        self.about: Mapping[str, Any] = {}
        """What the far program says of its machine: user, folders, environment."""
        self._family = Family(f"connection to {way.host}")
        self._folder = Path(
            tempfile.gettempdir() if not os.access("/tmp", os.W_OK) else "/tmp", f"hs-{os.urandom(5).hex()}"
        )
        self._fault: Fault | None = None
        self._count = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._boxes: dict[int, tuple[Hear, Callable[[Fault], None]]] = {}
        self._ports: dict[int, asyncio.Task[int]] = {}
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._ssh: Running | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._opened = asyncio.Event()

    @property
    def control(self) -> Path:
        """The socket by which the connection is shared."""
        return self._folder / "c"

    @property
    def whole(self) -> bool:
        """Whether anything can be asked over it."""
        return self._fault is None

    async def open(self) -> None:
        """Connect. Raises Fault (runtime) in one line with the remedy, and NoPython."""
        entrust(self._folder)
        self._folder.mkdir(mode=0o700)
        argv = [*self.way.first(self.control), command()]
        self._ssh = await self._family.start(argv, env=ssh_environment(), stdin=b"", output_limit=4096)
        stream = self._ssh.output()
        try:
            await self._ssh.send(program("hotswap.runtimes._ssh_far", "main", {"root": self._root}))
            rest = await self._greeted(stream.__anext__)
        except BaseException:
            await self.close()
            raise
        self._tasks = [
            asyncio.create_task(self._hear(stream.__anext__, rest)),
            asyncio.create_task(self._speak()),
        ]

    async def close(self) -> None:
        """Hang up; the far program ends and removes what is left, and then all of it is gone here."""
        await carry_through(self._close())

    async def _close(self) -> None:
        ssh = self._ssh
        if ssh is not None and not ssh.over:
            with suppress(ValueError):
                await ssh.send(None)
            await asyncio.wait([asyncio.ensure_future(ssh.wait())], timeout=FAREWELL_S)
        self.lose(_lost(self.way.host, "it was closed"))
        for task in self._tasks:
            task.cancel()
        await self._family.end()
        await asyncio.to_thread(remove_folder, str(self._folder), REMOVAL_S)
        release(self._folder)

    # asking

    def hold(self) -> None:
        """Raise Fault where the connection is lost."""
        if self._fault is not None:
            raise self._fault

    def next_number(self) -> int:
        """Get a number that no box, process or request of this connection has had."""
        self._count += 1
        return self._count

    async def ask(self, to: int, do: str, number: int | None = None, /, **rest: Any) -> dict[str, Any]:
        """Ask the far program, or the supervisor of a box, for something. Raises Fault and PathError."""
        self.hold()
        number = self.next_number() if number is None else number
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self.send(said(REQUEST, to, number, {"do": do, **rest}))
        value: dict[str, Any] = await answer
        if "path" in value:
            raise PathError(value["path"])
        if "fault" in value:
            kind, message = value["fault"]
            raise Fault("runtime", "box", kind, f"{self.way.host}: {message}")
        return value

    def send(self, data: bytes) -> None:
        """Have something written to the connection, in order."""
        self._outbox.put_nowait(data)

    def attach(self, box: int, hear: Hear, lost: Callable[[Fault], None]) -> None:
        """Have what comes for a box handed to it."""
        self._boxes[box] = (hear, lost)

    def detach(self, box: int) -> None:
        """Hand a box nothing more."""
        self._boxes.pop(box, None)

    async def forwarded(self, host: str, port: int) -> int:
        """Get the port on the far machine's loopback at which a port here is reached; made once."""
        if port not in self._ports:
            self._ports[port] = asyncio.create_task(self._forward(host, port))
        return await asyncio.shield(self._ports[port])

    async def shared(self, there: str, *words: str, stdin: bytes | None = None) -> Running:
        """Start one more `ssh` that uses this connection, with a command for the far machine or none."""
        argv = [*self.way.shared(self.control, *words), *([there] if there else [])]
        return await self._family.start(argv, env=ssh_environment(), stdin=stdin, output_limit=4096)

    async def _forward(self, host: str, port: int) -> int:
        asked_for = f"127.0.0.1:0:{f'[{host}]' if ':' in host else host}:{port}"
        asked = await self.shared("", "-O", "forward", "-R", asked_for)
        await asyncio.wait([asyncio.ensure_future(asked.wait())], timeout=FORWARD_S)
        result = await asked.wait() if asked.over else None
        if result is None or result.exit != 0 or not result.stdout.text.strip().isdigit():
            words = "ssh did not answer" if result is None else result.stderr.text + result.stdout.text
            raise Fault("runtime", "box", "forward", self.way.explained(words), words)
        return int(result.stdout.text)

    # hearing

    async def _greeted(self, more: More) -> bytes:
        """Read up to the greeting; get what came behind it."""
        heard = b""
        while True:
            try:
                heard += await more()
            except StopAsyncIteration:
                raise await self._refused(heard) from None
            _before, found, behind = heard.partition(GREETING)
            if found and b"\n" in behind:
                line, _, rest = behind.partition(b"\n")
                self.about = json.loads(line)
                return rest

    async def _refused(self, heard: bytes) -> Exception:
        """Say why there is no connection."""
        assert self._ssh is not None
        result = await self._ssh.wait()
        for line in heard.decode("utf-8", "replace").splitlines():
            if line.startswith(NONE):
                return NoPython(line.removeprefix(NONE).strip())
        said_last = result.stderr.text
        if result.exit == 127 and "ssh" in said_last and "not found" in said_last:
            message = "there is no ssh program here; install OpenSSH's client (Debian: apt-get install openssh-client)"
            return Fault("runtime", "box", "ssh", message)
        return Fault("runtime", "box", "ssh", self.way.explained(said_last), said_last)

    async def _hear(self, more: More, rest: bytes) -> None:
        frames = Frames()
        try:
            while True:
                for frame in frames.feed(rest):
                    self._take(frame)
                rest = await more()
        except StopAsyncIteration:
            self.lose(_lost(self.way.host, await self._last_words()))

    async def _last_words(self) -> str:
        assert self._ssh is not None
        await asyncio.wait([asyncio.ensure_future(self._ssh.wait())], timeout=LAST_WORDS_S)
        return (await self._ssh.wait()).stderr.text if self._ssh.over else ""

    def _take(self, frame: Frame) -> None:
        if frame.kind == REPLY and frame.number:
            answer = self._answers.pop(frame.number, None)
            if answer is not None and not answer.done():
                answer.set_result(frame.json)
        elif frame.box in self._boxes:
            hear, lost = self._boxes[frame.box]
            if frame.kind == REPLY:
                lost(Fault("runtime", "box", *frame.json["fault"]))
            else:
                hear(frame)

    async def _speak(self) -> None:
        assert self._ssh is not None
        while True:
            await self._ssh.send(await self._outbox.get())

    def lose(self, fault: Fault) -> None:
        """Tell everyone who waits that the connection is no more."""
        if self._fault is not None:
            return
        self._fault = fault
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(fault)
                answer.exception()  # nobody need be waiting
        self._answers.clear()
        for _, lost in list(self._boxes.values()):
            lost(fault)


def ssh_environment() -> dict[str, str]:
    """Get what ssh is given of our environment."""
    return {name: value for name, value in os.environ.items() if name in PASSED}


def _lost(host: str, detail: str) -> Fault:
    return Fault("runtime", "box", "connection_lost", f"the connection to {host} is lost", detail or None)
