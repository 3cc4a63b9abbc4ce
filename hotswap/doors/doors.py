"""The receiving side: waits for the sockets that were made in a box, and lets the proxy answer at them."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from hotswap.contracts.runtime import Accept, Needs
from hotswap.errors import Fault

ARRIVAL_S = 30.0
"""A box that has not handed out its sockets after this long is given up."""
NAME = "doors"
LONGEST_PATH = 107
"""Bytes of a Unix socket's path; the system has no room for more."""
MOST_AT_ONCE = 8
"""Descriptors that are taken from one datagram; the system closes what is beyond."""
NUMBER = struct.Struct("i")
CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Doors:
    """Sockets on their way out of one box."""

    url: str
    """The proxy as seen from inside, once the sockets have arrived."""
    egress_url: str | None = None
    """The way out as seen from inside; null where there is none."""

    def __init__(self, needs: Needs, folder: Path | None = None) -> None:
        self._answers: list[Accept] = [needs.gate.accept, *([needs.egress] if needs.egress else [])]
        self._word = secrets.token_hex(16)
        self._servers: list[asyncio.AbstractServer] = []
        self._path = None if folder is None else folder / NAME
        self._given: socket.socket | None = None
        if self._path is None:
            self._way, self._given = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        else:
            self._way = _bound(self._path)
        self._way.setblocking(False)

    @property
    def descriptor(self) -> int:
        """What the program inside is to inherit, where no folder is mounted."""
        if self._given is None:
            raise ValueError(
                "nothing is inherited where a folder is mounted, nor once the sockets have arrived"
            )
        return self._given.fileno()

    def argv(self, python: Sequence[str], *, inside: str = "", then: Sequence[str] = ()) -> tuple[str, ...]:
        """Get what is to be started in the box; `inside` is where it finds the folder, `then` what follows."""
        to = f"{inside}/{NAME}" if self._path is not None else str(self.descriptor)
        return (*python, "-c", _program(), to, self._word, str(len(self._answers)), *then)

    async def arrived(
        self, ended: Coroutine[Any, Any, str] | None = None, timeout_s: float = ARRIVAL_S
    ) -> None:
        """Wait for the sockets and answer at them. `ended` returns when the box is no more, and says why.

        Raises Fault (runtime, box) where they do not come.
        """
        over = asyncio.ensure_future(ended or _never())
        coming = asyncio.ensure_future(self._receive())
        try:
            await asyncio.wait((coming, over), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            listeners = (
                [] if coming.done() else self._look()
            )  # to hand them out may be the last thing that a box does
            if not coming.done() and not listeners:
                raise _missing(over, timeout_s)
            await self._serve(listeners or coming.result())
        finally:
            over.cancel()
            coming.cancel()
            self._shut()

    async def _serve(self, listeners: list[socket.socket]) -> None:
        addresses = [f"http://{each.getsockname()[0]}:{each.getsockname()[1]}" for each in listeners]
        try:
            for answer, listener in zip(self._answers, listeners, strict=True):
                self._servers.append(await answer(listener))
        except BaseException:
            for listener in listeners:
                listener.close()
            raise
        self.url = addresses[0]
        self.egress_url = addresses[1] if len(addresses) > 1 else None

    async def _receive(self) -> list[socket.socket]:
        """Get the sockets of the first datagram that is right."""
        while True:
            await _readable(self._way)
            if listeners := self._look():
                return listeners

    def _look(self) -> list[socket.socket]:
        """Take one datagram; none of it stays open unless it is the one."""
        try:
            said, found = _take(self._way, len(self._word) + 1)
        except (BlockingIOError, ConnectionResetError):
            return []
        right = secrets.compare_digest(said, self._word.encode()) and len(found) == len(self._answers)
        if right and all(map(_listens, found)):
            return found
        for each in found:
            each.close()
        return []

    def _shut(self) -> None:
        """Hear no more."""
        self._way.close()
        if self._given is not None:
            self._given.close()
            self._given = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Answer no more at what was handed out."""
        self._shut()
        for server in self._servers:
            server.close()


@asynccontextmanager
async def opened(needs: Needs, folder: Path | None = None) -> AsyncIterator[Doors]:
    """Doors for one box: by an inherited descriptor, or by a Unix socket in a folder that is mounted in the box.

    The folder must exist, empty and this box's alone; the socket in it may be written by every user, since the box's
    may be another than ours: what lies above it here keeps others out. On leaving, nobody answers at them any more.
    """
    doors = Doors(needs, folder)
    try:
        yield doors
    finally:
        doors.close()


def _bound(path: Path) -> socket.socket:
    if len(bytes(path)) > LONGEST_PATH:
        message = f"{path} is too long for a Unix socket, which takes {LONGEST_PATH} bytes; a shorter TMPDIR is one way"
        raise Fault("runtime", "box", "path", message)
    way = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        way.bind(str(path))
        path.chmod(0o666)
    except OSError as error:
        way.close()
        raise Fault("runtime", "box", "doors", f"{path}: {error.strerror}") from error
    return way


async def _readable(way: socket.socket) -> None:
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(way, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(way)


def _take(way: socket.socket, most: int) -> tuple[bytes, list[socket.socket]]:
    """Get a datagram and its descriptors as sockets; what is no socket is closed, and so counts as missing."""
    said, beside, _, _ = way.recvmsg(most, socket.CMSG_SPACE(MOST_AT_ONCE * NUMBER.size), CLOSE_ON_EXEC)
    found = []
    for level, kind, data in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            whole = len(data) // NUMBER.size * NUMBER.size
            found += [_socket_of(number) for (number,) in NUMBER.iter_unpack(data[:whole])]
    return said, [each for each in found if each is not None]


def _socket_of(number: int) -> socket.socket | None:
    try:
        return socket.socket(fileno=number)
    except OSError:
        with suppress(OSError):
            os.close(number)
        return None


def _listens(found: socket.socket) -> bool:
    tcp = (found.family, found.type) == (socket.AF_INET, socket.SOCK_STREAM)
    return tcp and bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


async def _never() -> str:
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return await never


def _missing(over: asyncio.Future[str], timeout_s: float) -> Fault:
    if over.done():
        message = "the box ended before it handed out its listening sockets"
        return Fault("runtime", "box", "doors", message, over.result())
    return Fault("runtime", "box", "doors", f"the box handed out no listening sockets in {timeout_s:g} s")


@cache
def _program() -> str:
    return Path(__file__).with_name("_inside.py").read_text("utf-8")
