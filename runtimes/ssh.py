"""ssh: boxes on another machine, over the system's own OpenSSH."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from hotswap.contracts.environment import Environment
from hotswap.contracts.model import Say
from hotswap.contracts.network import Network
from hotswap.contracts.runtime import Box, Made, Needs, Runtime
from hotswap.errors import Fault, UsageError
from hotswap.processes import carry_through
from hotswap.runtimes._ssh_box import FarBox, Inside
from hotswap.runtimes._ssh_carry import carried
from hotswap.runtimes._ssh_far_python import connected
from hotswap.runtimes._ssh_link import Link
from hotswap.runtimes._ssh_words import Way
from hotswap.runtimes._variables import check_named, environment, named

HOME, WORKDIR, TMP = "/home/agent", "/workspace", "/tmp"
"""The folders of a closed box."""
LIMITS = ("cpus", "memory_mb", "storage_mb", "pids")


class Ssh(Runtime):
    """Another Linux machine, over OpenSSH: own folders and an own environment there, but no security boundary.

    Agent code runs there with the rights of the user that you log in as. Nothing must be installed there but sshd; the
    model is reached over the same connection, so neither machine needs a public address. When a box is left, and when
    the connection ends in whatever way, its processes are ended and its folder is removed.
    """

    portable = True

    host: str | None = None
    """The machine: a name, user@name, or a Host of your ~/.ssh/config. It must let you in without a question."""
    port: int | None = None
    """Of its sshd. None: as your ~/.ssh/config says, else 22."""
    config: Path | None = None
    """A configuration file for ssh in place of your ~/.ssh/config."""
    inside: Literal["none", "bwrap"] = "none"
    """How boxes are closed there. bwrap: by the bubblewrap of that machine, without a network; none: not at all."""
    options: tuple[str, ...] = ()
    """Further options of ssh, each as in its configuration file with an equals sign: IdentityFile=~/.ssh/work."""
    connect_s: float = 20.0
    """Seconds that may pass until the machine answers."""
    root: str | None = None
    """Folder there that boxes are made in. None: /var/tmp."""
    env: tuple[str, ...] = ()
    """Further variables: NAME=value, or NAME to pass yours on."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if self.inside == "bwrap":
            self.closed, self.default_network = True, "closed"  # type: ignore[misc]
        self._link: Link | None = None
        self._opening = asyncio.Lock()
        self._users = 0
        self._carrying: dict[Path, asyncio.Task[str]] = {}
        self._say: Say = _nothing

    def check(self) -> None:
        if self.host is None:
            raise UsageError("runtime ssh: no machine is named; type: --runtime.ssh.host user@host")
        if not self.host or self.host.startswith("-") or any(letter.isspace() for letter in self.host):
            raise UsageError(
                f"runtime.ssh.host = {self.host!r}: expected a name, user@name, or a Host of ~/.ssh/config"
            )
        if not self._holds(self.network or self.default_network):
            raise UsageError(
                f"runtime.network = {self.network}: ssh cannot hold it; a box that closes is -r sandbox"
            )
        if shutil.which("ssh") is None:
            raise UsageError(
                "runtime ssh: there is no ssh program here; type: apt-get install openssh-client"
            )
        if self.config is not None and not self.config.expanduser().is_file():
            raise UsageError(f"runtime.ssh.config: {self.config} is no file")
        for option in self.options:
            if "=" not in option:
                raise UsageError(
                    f"runtime.ssh.options: {option!r}: expected NAME=value, such as IdentityFile=~/.ssh/work"
                )
        if not 0 < self.connect_s < 1e6:
            raise UsageError(f"runtime.ssh.connect_s = {self.connect_s:g}: expected seconds, more than 0")
        check_named("runtime.ssh.env", self.env)

    def refuses(self, environment: Environment) -> str | None:
        """Say what a folder of another machine cannot be: another file system, or closed."""
        if environment.image or environment.dockerfile:
            return "it is made for an image, which ssh cannot give: choose -r docker"
        if environment.network is not None and not self._holds(environment.network):
            return f"it asks for network {environment.network}, which ssh cannot hold: choose -r sandbox"
        if environment.workdir is not None:
            return (
                f"it is to work in {environment.workdir}; ssh works in a folder of its own: choose -r docker"
            )
        return None

    def _holds(self, network: str) -> bool:
        """Whether boxes can be kept to a network: open, or closed by bubblewrap. Lists of hosts are not held there."""
        wanted = Network.parse(network)
        return wanted.open or (self.inside == "bwrap" and not wanted.hosts)

    def handed(self) -> Mapping[str, str]:
        return dict(named(self.env))

    @asynccontextmanager
    async def running(self, say: Say) -> AsyncIterator[None]:
        """Hold the connection for as long as a run; what is in its way is said before the run begins."""
        self._say = say
        try:
            await self._acquire()
        except Fault as fault:
            raise UsageError(f"runtime ssh: {fault.record.message}") from fault
        try:
            yield
        finally:
            await carry_through(self._release())

    async def prepare(self, environment: Environment, say: Say) -> None:  # noqa: ARG002
        """Remember who is to be told that something is carried."""
        self._say = say

    @asynccontextmanager
    async def box(self, needs: Needs) -> AsyncIterator[Box]:
        link = await self._acquire()
        try:
            box = await self._open(link, needs)
            try:
                yield box
            finally:
                await carry_through(box.close())
        finally:
            await carry_through(self._release())

    async def clean(self) -> Sequence[str]:
        """Remove the boxes on the machine whose eval is gone: kept ones, and those that a crash left."""
        self.check()
        link = await self._acquire()
        try:
            answer = await link.ask(0, "clean")
        finally:
            await carry_through(self._release())
        if answer["left"]:
            message = f"could not remove all of {', '.join(answer['left'])} on {self.host}"
            raise Fault("runtime", "box", "not_removed", message)
        return [f"{folder} on {self.host}" for folder in answer["removed"]]

    async def _acquire(self) -> Link:
        """Get the connection, made where there is none or the last was lost. To be released as often."""
        async with self._opening:
            if self._link is None or not self._link.whole:
                if self._link is not None:
                    await self._link.close()
                self._carrying.clear()
                self._link = None
                self._link = await self._connected()
            self._users += 1
            return self._link

    async def _connected(self) -> Link:
        """Get a new connection, to a machine where boxes can be made as they are wanted."""
        link = await connected(self._way, self.root, self._say)
        lacks = None
        if not link.about["writable"]:
            lacks = f"cannot make boxes in {link.about['root']} on {self.host}; name a folder there by runtime.ssh.root"
        elif self.inside == "bwrap" and (why := (await link.ask(0, "trial")).get("lacks")):
            lacks = f"{self.host} has no closed boxes: {why}"
        if lacks:
            await link.close()
            raise Fault("runtime", "box", "no_boxes", lacks)
        return link

    async def _release(self) -> None:
        self._users -= 1
        if self._users == 0 and self._link is not None:
            link, self._link = self._link, None
            await link.close()

    async def _open(self, link: Link, needs: Needs) -> FarBox:
        asked, user = needs.environment, link.about["user"]
        if asked.user not in (None, user):
            message = f"it is to run as {asked.user}; {self.host} runs everything as {user}"
            raise Fault("taskset", "box", "user", message)
        port, *places = await asyncio.gather(
            link.forwarded(needs.gate.host, needs.gate.port),
            *(self._carried(link, path) for path in needs.mounts),
        )
        number = link.next_number()
        given = {"inside": self.inside, "open": needs.network.open, "port": port, "user": user}
        try:
            answer = await link.ask(0, "open", number, mounts=places, **given)
        except BaseException:
            if link.whole:
                await carry_through(link.ask(0, "close", box=number, keep=False))
            raise
        not_held = tuple(name for name in LIMITS if getattr(asked, name) is not None)
        box = FarBox(link, number, answer["folder"], Made(not_enforced=not_held))
        url = f"http://127.0.0.1:{answer.get('port', port)}"
        places_by_mount = dict(zip(needs.mounts, map(str, places), strict=True))
        box.furnish(self._inside(link, answer["folder"], asked, url, places_by_mount))
        return box

    def _inside(
        self, link: Link, folder: str, asked: Environment, url: str, places: Mapping[Path, str]
    ) -> Inside:
        workdir, home, temporary = (f"{folder}/{name}" for name in ("workdir", "home", "tmp"))
        if self.inside == "bwrap":
            workdir, home, temporary = WORKDIR, HOME, TMP
        env = {
            **link.about["env"],
            **environment(),
            **dict(named(self.env)),
            "HOME": home,
            "TMPDIR": temporary,
            "USER": link.about["user"],
            "GIT_CEILING_DIRECTORIES": str(Path(workdir).parent),
            **asked.env,
        }
        return Inside(workdir, home, url, env, places)

    async def _carried(self, link: Link, path: Path) -> str:
        """Get where a mount is found there; carried once for each connection, whoever asks first."""
        if path not in self._carrying or _failed(self._carrying[path]):
            self._carrying[path] = asyncio.create_task(carried(link, path, self._say))
        return await asyncio.shield(self._carrying[path])

    @property
    def _way(self) -> Way:
        config = None if self.config is None else self.config.expanduser().absolute()
        return Way(str(self.host), self.port, config, self.options, self.connect_s)


def _nothing(_line: str) -> None:
    """Tell nobody."""


def _failed(task: asyncio.Task[str]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
