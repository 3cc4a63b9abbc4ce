"""A box of bubblewrap: its first process starts and ends commands, its folders lie here."""

from __future__ import annotations

import asyncio
import marshal
import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from hotswap.contracts.runtime import Box, Command, Files, Kept, Made, Needs, PathError, Process
from hotswap.doors import Doors
from hotswap.errors import Fault
from hotswap.processes import Family, Running, release
from hotswap.processes.kin import children_of
from hotswap.processes.running import unstarted
from hotswap.runtimes._cgroups import Group
from hotswap.runtimes._folders import remove_for_certain
from hotswap.runtimes._line import Line, died
from hotswap.runtimes._place import Place
from hotswap.runtimes._seccomp import filter_program
from hotswap.runtimes._tree import Tree

PROGRAM = "/run/hotswap.pyc"
"""Where the first process finds its program inside."""
NOT_EXECUTABLE = 126
END_S = 5.0
"""A box that has been hung up on and has not ended after this long is ended from outside."""


@dataclass(frozen=True)
class Plan:
    """What a box is made from."""

    place: Place
    needs: Needs
    python: Sequence[str]
    """The beginning of an argv that starts a bare Python inside."""
    env: dict[str, str]
    """For all processes in the box."""
    group: Group
    made: Made


class BwrapBox(Box):
    """Namespaces of their own, in which one first process starts commands."""

    def __init__(self, plan: Plan) -> None:
        self.place = plan.place
        self.workdir, self.home = plan.place.workdir, plan.place.home
        self.url = f"http://{plan.needs.gate.host}:{plan.needs.gate.port}"
        self.made = plan.made
        self._plan = plan
        self._env = plan.env
        self._tree = Tree(plan.place.folder / "root", plan.place.own)
        self._image = Tree(plan.place.rootfs, ("/",)) if plan.place.rootfs else None
        self._family = Family(f"box of rollout {plan.needs.rollout}")
        self._line = Line()
        self._bwrap: Running | None = None
        self._first: int | None = None
        self._kept = False

    async def start(self, command: Command) -> Process:
        user = self.place.user
        if command.user not in (None, user.name, str(user.number)):
            message = f"everything in this box runs as {user.name}, not as {command.user}"
            raise Fault("taskset", "box", "user", message)
        cwd = os.path.normpath(os.path.join(self.workdir, command.cwd or ""))  # noqa: PTH118
        try:
            return await self._line.start(command, {**self._env, "PWD": cwd, **command.env}, cwd)
        except ValueError as error:
            return unstarted(NOT_EXECUTABLE, f"{command.argv[0] if command.argv else ''}: {error}")

    async def put(self, files: Files) -> None:
        self._line.hold()
        await self._tree.put({self._absolute(path): file for path, file in files.items()})

    async def get(self, paths: Sequence[str]) -> Files:
        self._line.hold()
        found = {path: await self._tree_of(path).read(self._absolute(path), path) for path in paths}
        return {path: file for path, file in found.items() if file is not None}

    async def end_processes(self) -> None:
        await self._line.end_all()
        # What lives in there came of the first process, or became its child. It is asked of the kernel, not of the box.
        if self._first is not None and children_of(self._first):
            raise Fault("runtime", "box", "processes_left", "could not end all processes in the box")

    async def alive(self) -> bool:
        return self._line.whole

    def locate(self, path: Path) -> str:
        return str(path)

    def keep(self) -> Kept:
        """Let the folder stand. The box itself is gone with its processes; one command makes it again around it."""
        self._kept = True
        folder = shlex.quote(str(self.place.folder))
        return Kept(f"sh {folder}/enter", f"rm -rf {folder}")

    async def open(self, made: Doors | None) -> None:
        """Start its first process. Raises Fault (runtime) where the box cannot be made."""
        self._bwrap = await self._start_first(made)
        try:
            await self._line.up()
        except Fault as fault:
            raise await self._unmade(fault) from fault
        if made is not None:
            await made.arrived(self._said())
            self.url = made.url
            if made.egress_url is not None:
                from hotswap.egress import variables  # few boxes need it

                self._env = {**variables(made.egress_url), **self._env}
        self._limit()

    async def _start_first(self, made: Doors | None) -> Running:
        door = [] if made is None else [made.descriptor]
        contents = [_program(), *([] if (filtered := filter_program()) is None else [filtered])]
        memory = [_in_memory(content) for content in contents]
        program, *filters = map(str, memory)
        options = self.place.arguments("--ro-bind-data", program, PROGRAM)
        for each in filters:
            options += ["--seccomp", each]
        try:
            return await self._family.start(
                ["bwrap", *options, "--", *self._first_argv(made)],
                env=_libraries(),
                cwd="/",
                pass_fds=[*memory, self._line.descriptor, *door],
            )
        finally:
            for descriptor in memory:
                os.close(descriptor)

    def _limit(self) -> None:
        """Put the box, in which nothing runs yet, under its limits; what is not held after all is said."""
        pid = None if self._bwrap is None else self._bwrap.pid
        if pid is None:
            return
        self._first = next(iter(children_of(pid)), None)
        try:
            self._plan.group.add(pid, self._first)
        except OSError:
            unheld = sorted({*self.made.not_enforced, *self._plan.group.held})
            self.made = replace(self.made, not_enforced=tuple(unheld))

    async def close(self) -> None:
        """End it and all in it, and remove its folder. Raises Fault (runtime) where something is left."""
        try:
            with suppress(Fault):
                await self._line.end_all()
            self._line.lose(died())
            if self._bwrap is not None:
                await asyncio.wait([asyncio.ensure_future(self._bwrap.wait())], timeout=END_S)
            await self._family.end()
        finally:
            self._plan.group.remove()
            await self._leave()

    async def _leave(self) -> None:
        folder = self.place.folder
        if self._kept:
            (folder / "enter").write_text(
                shlex.join(["exec", "bwrap", *self.place.arguments(), "--", *self._shell()]) + "\n"
            )
            release(folder)
        else:
            await asyncio.to_thread(remove_for_certain, folder)

    def _shell(self) -> list[str]:
        return ["env", "-i", *(f"{name}={value}" for name, value in self._env.items()), "sh"]

    def _first_argv(self, made: Doors | None) -> list[str]:
        control = str(self._line.descriptor)
        door = [] if made is None else made.argv(())[1:]
        return [*self._plan.python, PROGRAM, control, *door]

    async def _unmade(self, fault: Fault) -> Fault:
        """Say in bwrap's own words why there is no box."""
        said = await self._said()
        reason = said.strip().splitlines()[-1:] or ["it said nothing"]
        return Fault(
            "runtime",
            "box",
            "bwrap",
            f"bubblewrap could not make a box: {reason[0]}",
            said or fault.record.detail,
        )

    async def _said(self) -> str:
        assert self._bwrap is not None
        return (await self._bwrap.wait()).stderr.text

    def _absolute(self, path: str) -> str:
        return os.path.join(self.workdir, path)  # noqa: PTH118

    def _tree_of(self, path: str) -> Tree:
        """The folders of the box, or the image below them."""
        absolute = os.path.normpath(self._absolute(path))
        own = any(f"{absolute}/".startswith(f"{folder}/") for folder in self.place.own)
        if not own and self._image is None:
            raise PathError(f"{path} leads outside the box's own folders")
        return self._tree if own or self._image is None else self._image


@cache
def _program() -> bytes:
    """The program of the first process, compiled: reading its text would take it longer than all else that it does."""
    source = Path(__file__).with_name("_supervisor.py").read_text("utf-8")
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(source, PROGRAM, "exec", dont_inherit=True))


def _in_memory(content: bytes) -> int:
    """Get a descriptor that reads as the content."""
    descriptor = os.memfd_create("program")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _libraries() -> dict[str, str]:
    """What our Python may need to find its own libraries."""
    return {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
