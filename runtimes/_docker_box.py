"""A box that is a container: its first process starts and ends commands, and carries files in and out."""

from __future__ import annotations

import asyncio
import marshal
import os
import posixpath
import shlex
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from hotswap.contracts.runtime import Box, Command, File, Files, Kept, Made, Needs, PathError, Process
from hotswap.doors import Doors
from hotswap.errors import Fault
from hotswap.processes import carry_through, release
from hotswap.processes.running import unstarted
from hotswap.runtimes._docker_engine import Engine, is_missing
from hotswap.runtimes._folders import remove_for_certain
from hotswap.runtimes._line import Line, died

INSIDE = "/run/hotswap"
"""Where a box finds what its first process needs."""
NOT_EXECUTABLE = 126
LARGEST_ANSWER = 1 << 29
UP_S = 30.0
ENTRYPOINT_S = 10.0
"""An image's entrypoint that has neither ended nor come to its command after this long is left to run beside."""
TMP = "/tmp"


@dataclass(frozen=True)
class User:
    """A user as the image knows it."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str


@dataclass(frozen=True)
class Plan:
    """What a box is made from."""

    folder: Path
    needs: Needs
    config: Mapping[str, Any]
    """As the engine takes it, but for the command."""
    python: tuple[str, ...]
    """The beginning of an argv that starts a bare Python inside."""
    entrypoint: tuple[str, ...]
    user: str
    workdir: str
    env: Mapping[str, str]
    places: Mapping[Path, str]
    """Where mounts are found inside."""
    made: Made


class DockerBox(Box):
    """A container."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self._engine, self._plan = engine, plan
        self.workdir, self.home, self.url = plan.workdir, "", ""
        self.made = plan.made
        self._env: dict[str, str] = dict(plan.env)
        self._line = Line()
        self._id: str | None = None
        self._users: dict[str, User] = {}
        self._kept = False

    # up

    async def open(self, doors: Doors, starting: asyncio.Semaphore) -> None:
        """Create and start the container. Raises Fault (runtime) where it cannot be."""
        shared = self._plan.folder / "inside"
        with _listening(shared / "line") as way:
            async with starting:
                await self._start(doors)
                await self._hand_in(way)
                await self._line.up()
                await doors.arrived()
        (shared / "line").unlink(missing_ok=True)
        self.url = doors.url
        if doors.egress_url is not None:
            from hotswap.egress import variables  # few boxes need it

            self._env = {**variables(doors.egress_url), **self._env}
        await self._furnish()

    async def _start(self, doors: Doors) -> None:
        door = doors.argv((), inside=INSIDE)[1:]
        config = {**self._plan.config, "Entrypoint": [*self._plan.python, "-c", _first(), *door], "Cmd": []}
        rollout = self._plan.needs.rollout
        creating = asyncio.ensure_future(
            self._engine.call(
                lambda client: client.create_container_from_config(config), f"rollout {rollout}"
            )
        )
        try:
            made = await asyncio.shield(creating)
        except asyncio.CancelledError:  # it may come to be all the same, and is to be removed
            with suppress(Fault):
                self._id = (await carry_through(_wait(creating)))["Id"]
            raise
        self._id = made["Id"]
        await self._engine.call(
            lambda client: client.start(self._id), f"starting a container of {self.made.image}"
        )

    async def _hand_in(self, way: socket.socket) -> None:
        """Hand the container its end of the line, once its first process comes for it."""
        loop = asyncio.get_running_loop()
        over = asyncio.ensure_future(self._ended())
        coming = asyncio.ensure_future(loop.sock_accept(way))
        try:
            await asyncio.wait((coming, over), timeout=UP_S, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                detail = over.result() if over.done() else None
                why = "ended at once" if over.done() else f"did not answer in {UP_S:g} s"
                last = (detail or "it said nothing").strip().splitlines()[-1:]
                raise Fault(
                    "runtime",
                    "box",
                    "start",
                    f"the container of {self.made.image} {why}: {''.join(last)}",
                    detail,
                )
            comer, _ = coming.result()
            with comer:
                socket.send_fds(comer, [b"x"], [self._line.descriptor])
        finally:
            over.cancel()
            coming.cancel()

    async def _ended(self) -> str:
        """Wait until the container runs no more; get what it said."""
        while True:
            await asyncio.sleep(0.5)
            about = await self._engine.call(lambda client: client.inspect_container(self._id), "inspecting")
            if not about["State"]["Running"]:
                said = await self._engine.call(lambda client: client.logs(self._id, tail=20), "logs")
                return f"{about['State'].get('Error') or ''}{said.decode('utf-8', 'replace')}"

    async def _furnish(self) -> None:
        """Find the user, make the folders, and let the image's entrypoint do its part."""
        user = await self._user(self._plan.user)
        home = posixpath.normpath(user.home or "/")
        below = f"{home}/".startswith(f"{self.workdir}/")
        self.home = f"/home/{user.name}" if home == "/" or below else home
        if f"{self.home}/".startswith(f"{self.workdir}/"):
            self.home = "/var/hotswap/home"
        folders = [(self.home, True), (TMP, False), (self.workdir, False)]
        wanted = [(path, user.uid, user.gid, own) for path, own in folders]
        if failed := await self._inside("make_folders", wanted):
            path, why = failed[0]
            raise Fault("runtime", "box", "folders", f"cannot make {path} in {self.made.image}: {why}")
        self._env = {"HOME": self.home, "USER": user.name, **self._env}
        if self._plan.entrypoint:
            await self._enter()

    async def _enter(self) -> None:
        """Start the image's entrypoint, with a command that says when it is reached and then stays."""
        stay = (*self._plan.python, "-c", "import os; os.write(1, b'reached'); os.read(0, 1)")
        process = await self.start(Command(argv=(*self._plan.entrypoint, *stay), stdin=b""))

        async def reached() -> None:
            said = b""
            async for data in process.output():
                said += data
                if b"reached" in said:
                    return

        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(reached(), ENTRYPOINT_S)

    # commands

    async def start(self, command: Command) -> Process:
        user = await self._user(command.user or self._plan.user)
        cwd = posixpath.normpath(posixpath.join(self.workdir, command.cwd or ""))
        env = {**self._env, "PWD": cwd, **command.env}
        first = (_program(), ("become", (user.uid, user.gid, user.groups)))
        try:
            return await self._line.start(command, env, cwd, first)
        except ValueError as error:
            return unstarted(NOT_EXECUTABLE, f"{command.argv[0] if command.argv else ''}: {error}")

    async def put(self, files: Files) -> None:
        user = await self._user(self._plan.user)
        given = []
        for path, file in files.items():
            _check(path)
            given.append((self._absolute(path), path, file.mode, file.content))
        failed = await self._inside("write", (user.uid, user.gid), stdin=marshal.dumps(given))
        for path, kind, why in failed:
            raise _in_the_way(path, kind, why)

    async def get(self, paths: Sequence[str]) -> Files:
        for path in paths:
            _check(path)
        answers = await self._inside("read", [(self._absolute(path), path) for path in paths])
        found = {}
        for path, about in zip(paths, answers, strict=True):
            if about is None:
                continue
            if isinstance(about[0], str):
                raise _in_the_way(path, *about)
            found[path] = File(about[1], about[0])
        return found

    async def end_processes(self) -> None:
        await self._line.end_all()

    async def alive(self) -> bool:
        return self._line.whole

    def locate(self, path: Path) -> str:
        for mount, place in self._plan.places.items():
            if path.is_relative_to(mount):
                return posixpath.join(place, str(path.relative_to(mount))) if path != mount else place
        raise ValueError(f"{path} is below none of the box's mounts")

    def keep(self) -> Kept:
        """Let the container run on, with its processes ended, until it is removed."""
        self._kept = True
        inside = self._plan.folder / "inside"
        (inside / "keep").touch()
        name, folder = (self._id or "")[:12], shlex.quote(str(self._plan.folder))
        user = self._users.get(self._plan.user)
        as_user = f"-u {user.uid}:{user.gid} " if user else ""
        return Kept(
            f"docker exec -it {as_user}-w {shlex.quote(self.workdir)} {name} sh",
            f"docker rm -f {name} && rm -rf {folder}",
        )

    async def close(self) -> None:
        """End it, and remove it with its folder. Raises Fault (runtime) where something is left."""
        with suppress(Fault):
            if self._kept:
                await self._line.end_all()
        self._line.lose(died())
        if self._kept:
            release(self._plan.folder)
            return
        try:
            if self._id is not None:
                await remove(self._engine, self._id)
        finally:
            await asyncio.to_thread(remove_for_certain, self._plan.folder)

    # what is done inside

    async def _user(self, asked: str) -> User:
        if asked not in self._users:
            found = await self._inside("look_up", asked)
            if found is None:
                raise Fault("taskset", "box", "user", f"the image {self.made.image} has no user {asked}")
            uid, gid, groups, name, home = found
            self._users[asked] = User(uid, gid, tuple(groups), name, home)
        return self._users[asked]

    async def _inside(self, name: str, *given: Any, stdin: bytes | None = None) -> Any:
        """Have a function of the program inside called in a process of its own; get its answer."""
        command = Command(argv=("hotswap",), stdin=stdin, output_limit=LARGEST_ANSWER)
        process = await self._line.start(command, {}, "/", (_program(), (name, given)))
        result = await carry_through(process.wait())
        if result.exit != 0:
            raise Fault("runtime", "box", "inside", f"{name} failed in the container", result.stderr.text)
        return marshal.loads(bytes(result.stdout))

    def _absolute(self, path: str) -> str:
        return posixpath.join(self.workdir, path)


async def remove(engine: Engine, name: str) -> None:
    """Remove a container, with its volumes. Raises Fault (runtime, box), naming it, where that fails."""
    try:
        await engine.call(
            lambda client: client.remove_container(name, force=True, v=True), f"container {name[:12]}"
        )
    except Fault as fault:
        if not is_missing(fault):
            message = f"could not remove the container {name[:12]}: {fault.record.message}"
            raise Fault("runtime", "box", "not_removed", message) from fault


async def _wait(future: asyncio.Future[Any]) -> Any:
    return await future


def _listening(path: Path) -> socket.socket:
    """Get a socket that the first process finds; what lies above it keeps others out."""
    way = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    way.bind(str(path))
    path.chmod(0o666)
    way.listen(1)
    way.setblocking(False)
    return way


def _check(path: str) -> None:
    if "\0" in path:
        raise PathError(f"{path!r}: a NUL byte cannot be in a path")


def _in_the_way(path: str, kind: str, why: str) -> Exception:
    if kind == "disk":
        return Fault("runtime", "box", "disk", f"{path}: {why}")
    shown = path if len(path) <= 80 else f"{path[:60]}... ({len(os.fsencode(path))} bytes)"
    return PathError(f"{shown!r}: {why}")


@cache
def _program() -> CodeType:
    return compile(_text("_docker_inside.py"), "_docker_inside.py", "exec", dont_inherit=True)


@cache
def _first() -> str:
    return _text("_docker_first.py")


@cache
def supervisor() -> bytes:
    """The program of the first process, compiled, as `marshal` reads it."""
    return marshal.dumps(compile(_text("_supervisor.py"), "_supervisor.py", "exec", dont_inherit=True))


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")
