"""Our half of the line to a box's first process (`_supervisor.py`): commands are started and ended over it."""

from __future__ import annotations

import asyncio
import marshal
import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import CodeType
from typing import Any, Literal

from hotswap.contracts.runtime import Command
from hotswap.errors import Fault
from hotswap.processes import Running, carry_through
from hotswap.processes.kin import kin
from hotswap.processes.pipes import Feed, Intake
from hotswap.processes.running import Pipes

ANSWER_S = 40.0
"""A first process that says nothing for so long, where it is asked, is held to be dead: it answers in 21 s at most."""
LONGEST_MESSAGE = 256
ALL = 0
First = tuple[CodeType, Any]
"""Code that a new process executes before it becomes its program, and what that finds as `given`."""
MESSAGE = re.compile(rb"(up|began|refused|exit|ended)(?: (\d{1,18}))?(?: (-?\d{1,18}))?")


class Entered(Running):
    """A process that was started in a box through its first process."""

    def __init__(self, line: Line, token: int) -> None:
        super().__init__()
        self.token = token
        self.mark = kin().next_mark()
        self._line = line

    def attend(self, ours: list[int], command: Command) -> None:
        """Take its pipes, and its time limit."""
        self._outputs = (Intake(ours[0], command.output_limit), Intake(ours[1], command.output_limit))
        if command.stdin is not None:
            self._feed = Feed(ours[2], command.stdin, keep_open=not command.stdin)
        if command.timeout_s is not None:
            self._timer = self._loop.call_later(command.timeout_s, self._run_out)

    def exited(self, code: int) -> None:
        """It has ended: by itself, or where the code is negative by that signal."""
        self._settle(code if code >= 0 else None, -code if code < 0 else None)

    def lost(self, fault: Fault) -> None:
        """Its box is no more, or never started it: whoever waits for it is told so."""
        if not self.over:
            self._let_go()
            self._over.set_exception(fault)
            self._over.exception()  # nobody need be waiting
        for intake in self._outputs:
            intake.close()

    async def _end(self, by: Literal["timeout", "us"]) -> None:
        self.is_ended_by(by)
        with suppress(Fault):  # with its box, all that came of it has ended
            if await carry_through(self._line.end(self.mark)):
                self.give_up()
            await self.finish(())

    def give_up(self) -> None:
        """It cannot be ended: nobody is to wait for it."""
        self._settle(None, None)


class Line:
    """The line to the first process of one box."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._fault: Fault | None = None
        self._count = 0
        self._running: dict[int, Entered] = {}
        self._answers: dict[tuple[str, int], asyncio.Future[int]] = {}
        self._up = self._expect("up", 0)
        self._loop.add_reader(self._ours, self._readable)

    @property
    def descriptor(self) -> int:
        """What the first process is to inherit."""
        return self._theirs.fileno()

    @property
    def whole(self) -> bool:
        """Whether commands can be started over it."""
        return self._fault is None

    def hold(self) -> None:
        """Raise Fault where the box is no more."""
        if self._fault is not None:
            raise self._fault

    async def up(self) -> None:
        """Wait until commands can be started; call it once the first process has inherited its end."""
        self._theirs.close()
        await self._answer(self._up)

    async def start(
        self, command: Command, env: Mapping[str, str], cwd: str, first: First | None = None
    ) -> Entered:
        """Start a command, whose process executes `first` before. Raises ValueError where a word cannot be one, and
        Fault."""
        order = encoded(command.argv, env, cwd, first)
        self._count += 1
        entered, pipes = Entered(self, self._count), Pipes()
        try:
            for outwards in (False, False, *([] if command.stdin is None else [True])):
                pipes.open(outwards=outwards)
            began = self._order(entered, order, pipes.theirs)
        except BaseException:
            pipes.close(pipes.ours)
            raise
        finally:
            pipes.close(pipes.theirs)
        unfinished = {token: other for token, other in self._running.items() if not other.closed}
        self._running = unfinished | {entered.token: entered}
        entered.attend(pipes.ours, command)
        try:
            number = await self._answer(began)
        except BaseException:
            await entered.end()
            raise
        if number:
            raise self._refused(entered, f"could not start {command.argv[0]}: {os.strerror(number)}")
        return entered

    async def end(self, mark: int = ALL) -> int:
        """End what came of a start, or everything in the box; get how many processes are left."""
        self._count += 1
        return await self._answer(self._ask(f"end {self._count} {mark}", "ended", self._count))

    async def end_all(self) -> None:
        """End everything in the box. Raises Fault where something is left."""
        running = list(self._running.values())
        for entered in running:
            entered.is_ended_by("us")
        left = await carry_through(self.end())
        for entered in running:
            if left:
                entered.give_up()
            await entered.finish(())
        if left:
            raise Fault("runtime", "box", "processes_left", f"could not end {left} processes in the box")

    def lose(self, fault: Fault) -> None:
        """Hang up, and tell everyone who waits: the box is no more. A first process that still hears it ends."""
        if self._fault is not None:
            return
        self._fault = fault
        self._loop.remove_reader(self._ours)
        self._ours.close()
        self._theirs.close()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(fault)
                answer.exception()  # nobody need be waiting
        for entered in list(self._running.values()):
            entered.lost(fault)
        self._running.clear()

    def _order(self, entered: Entered, order: bytes, theirs: list[int]) -> asyncio.Future[int]:
        descriptor = os.memfd_create("order")
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(order)
            text = f"start {entered.token} {entered.mark}"
            return self._ask(text, "began", entered.token, [descriptor, *theirs])
        finally:
            os.close(descriptor)

    def _refused(self, entered: Entered, message: str) -> Fault:
        fault = Fault("runtime", "box", "no_room", message)
        del self._running[entered.token]
        entered.lost(fault)
        return fault

    def _ask(self, text: str, word: str, token: int, descriptors: Sequence[int] = ()) -> asyncio.Future[int]:
        """Send a message; get what becomes of it."""
        if self._fault is not None:
            raise self._fault
        try:
            socket.send_fds(self._ours, [text.encode()], descriptors)
        except OSError as error:
            self.lose(died(f"nothing can be told to it: {error.strerror}"))
            raise died() from error
        return self._expect(word, token)

    def _expect(self, word: str, token: int) -> asyncio.Future[int]:
        answer = self._answers[word, token] = self._loop.create_future()
        return answer

    async def _answer(self, answer: asyncio.Future[int]) -> int:
        await asyncio.wait((answer,), timeout=ANSWER_S)
        if not answer.done():
            self.lose(died(f"its first process has not answered for {ANSWER_S:g} s"))
        return answer.result()

    def _readable(self) -> None:
        """Take what the first process says. It is the word of a box: read by its form, and no further."""
        try:
            said = self._ours.recv(LONGEST_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        match = MESSAGE.fullmatch(said)
        if match is None:
            self.lose(died())
            return
        word, token, number = match[1].decode(), int(match[2] or 0), int(match[3] or 0)
        if word == "exit":
            if entered := self._running.get(token):
                entered.exited(number)
        elif answer := self._answers.pop(("began" if word == "refused" else word, token), None):
            answer.set_result(number)


def encoded(argv: Sequence[str], env: Mapping[str, str], cwd: str, first: First | None = None) -> bytes:
    """Get an order as the first process reads it. Raises ValueError where a word cannot be one."""
    variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    words = [os.fsencode(word) for word in argv]
    if not words:
        raise ValueError("no program was named")
    return marshal.dumps((words, variables, os.fsencode(cwd), *(first or ())))


def died(detail: str | None = None) -> Fault:
    """The fault of a box that ends under the program."""
    return Fault("runtime", "box", "box_died", "the box ended while it was in use", detail)
