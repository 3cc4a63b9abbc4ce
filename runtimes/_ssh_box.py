"""A box on the far machine: a folder there, and a supervisor that starts commands in it."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotswap.contracts.runtime import Box, Command, File, Files, Kept, Made, PathError, Process
from hotswap.errors import Fault
from hotswap.processes import carry_through
from hotswap.processes.running import unstarted
from hotswap.runtimes._ssh_frames import CHUNK, EXIT, GOT, PUT, STDERR, STDOUT, TAKEN, Frame
from hotswap.runtimes._ssh_link import Link
from hotswap.runtimes._ssh_process import FarProcess

NOT_EXECUTABLE = 126


@dataclass(frozen=True)
class Inside:
    """What a box looks like from inside."""

    workdir: str
    home: str
    url: str
    env: Mapping[str, str]
    """For all processes in the box."""
    places: Mapping[Path, str]
    """Where the mounts are found."""


class FarBox(Box):
    """Commands, files and processes over the connection."""

    def __init__(self, link: Link, number: int, folder: str, made: Made) -> None:
        self.folder, self.made = folder, made
        self._link, self._number = link, number
        self._fault: Fault | None = None
        self._kept = False
        self._running: dict[int, FarProcess] = {}
        self._got: dict[int, bytearray] = {}
        self._inside = Inside("", "", "", {}, {})
        link.attach(number, self._hear, self._lost)

    def furnish(self, inside: Inside) -> None:
        """Say what it looks like, before anything is started in it."""
        self._inside = inside
        self.workdir, self.home, self.url = inside.workdir, inside.home, inside.url

    async def start(self, command: Command) -> Process:
        user = self._link.about["user"]
        if command.user not in (None, user):
            message = f"everything on {self._link.way.host} runs as {user}, not as {command.user}"
            raise Fault("taskset", "box", "user", message)
        cwd = os.path.join(self.workdir, command.cwd or "").rstrip("/") or "/"  # noqa: PTH118
        try:
            order = _order(command, {**self._inside.env, "PWD": cwd, **command.env}, cwd)
        except ValueError as error:
            return unstarted(NOT_EXECUTABLE, f"{command.argv[0] if command.argv else ''}: {error}")
        self._hold()
        number = self._link.next_number()
        process = FarProcess(number, command, self._say, self._end)
        self._running[number] = process
        try:
            await self._link.ask(self._number, "start", number, **order)
        except asyncio.CancelledError:
            await process.end()
            raise
        except Fault:
            self._running.pop(number, None)
            raise
        process.begin(command)
        return process

    async def put(self, files: Files) -> None:
        self._hold()
        number = self._link.next_number()
        for file in files.values():
            for at in range(0, len(file.content), CHUNK):
                self._say(PUT, number, file.content[at : at + CHUNK])
        listed = [[path, file.mode, len(file.content)] for path, file in files.items()]
        for path in files:
            _check(path)
        await self._link.ask(self._number, "put", number, files=listed)

    async def get(self, paths: Sequence[str]) -> Files:
        self._hold()
        number = self._link.next_number()
        for path in paths:
            _check(path)
        content = self._got[number] = bytearray()
        try:
            answer = await self._link.ask(self._number, "get", number, paths=list(paths))
        finally:
            del self._got[number]
        found, at = {}, 0
        for path, mode, size in answer["files"]:
            found[path] = File(bytes(content[at : at + size]), mode)
            at += size
        return found

    async def end_processes(self) -> None:
        self._hold()
        running = list(self._running.values())
        for process in running:
            process.is_ended_by("us")
        left = (await carry_through(self._link.ask(self._number, "end")))["left"]
        for process in running:
            process.give_up()
        if left:
            raise Fault(
                "runtime", "box", "processes_left", f"could not end {left} processes in {self.folder}"
            )

    async def alive(self) -> bool:
        return self._fault is None and self._link.whole

    def locate(self, path: Path) -> str:
        for mount, place in self._inside.places.items():
            if path.is_relative_to(mount):
                return str(Path(place, path.relative_to(mount)))
        return str(path)

    def keep(self) -> Kept:
        self._kept = True
        enter = f"cd {shlex.quote(self.workdir)} && exec ${{SHELL:-sh}}"
        way = self._link.way
        return Kept(
            shlex.join([*way.by_hand("-t"), enter]),
            shlex.join([*way.by_hand(), f"rm -rf {shlex.quote(self.folder)}"]),
        )

    async def close(self) -> None:
        """End all processes and remove the folder. Raises Fault (runtime) where something is left."""
        try:
            await self._close()
        except Fault:
            if self._link.whole:
                raise
            # at the other end of a lost connection, the far program does all this by itself
        finally:
            self._link.detach(self._number)

    async def _close(self) -> None:
        try:
            if self._fault is None:
                await self.end_processes()
        finally:
            answer = await self._link.ask(0, "close", box=self._number, keep=self._kept)
        if not answer.get("removed"):
            message = f"could not remove all of {self.folder} on {self._link.way.host}"
            raise Fault("runtime", "box", "not_removed", message)

    async def _end(self, process: FarProcess) -> int:
        answer = await self._link.ask(self._number, "end", process=process.number)
        return int(answer["left"])

    def _say(self, kind: bytes, number: int, payload: bytes) -> None:
        if self._link.whole:
            self._link.send(Frame(kind, self._number, number, payload).packed())

    def _hear(self, frame: Frame) -> None:
        if frame.kind == GOT:
            if frame.number in self._got:
                self._got[frame.number] += frame.payload
            return
        process = self._running.get(frame.number)
        if process is None:
            return
        if frame.kind in (STDOUT, STDERR):
            process.wrote(frame.kind, frame.payload)
        elif frame.kind == TAKEN:
            process.took(int(frame.payload))
        elif frame.kind == EXIT:
            del self._running[frame.number]
            process.exited(frame.json)

    def _lost(self, fault: Fault) -> None:
        self._fault = fault
        for process in self._running.values():
            process.lost(fault)
        self._running.clear()

    def _hold(self) -> None:
        self._link.hold()
        if self._fault is not None:
            raise self._fault


def _order(command: Command, env: Mapping[str, str], cwd: str) -> dict[str, Any]:
    """Get an order as the supervisor reads it. Raises ValueError where a word cannot be one."""
    argv = [os.fspath(word) for word in command.argv]
    for word in (*argv, *env, *env.values(), cwd):
        os.fsencode(word)
    return {"argv": argv, "env": dict(env), "cwd": cwd, "stdin": command.stdin is not None}


def _check(path: str) -> None:
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise PathError(f"{path!r}: {error}") from error
