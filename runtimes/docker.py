"""docker: containers of an engine on this machine, closed as far as the task and the user want."""

from __future__ import annotations

import asyncio
import posixpath
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from hotswap import doors
from hotswap.contracts.environment import Environment
from hotswap.contracts.model import Say
from hotswap.contracts.runtime import Box, Made, Needs, Runtime
from hotswap.errors import Fault, UsageError
from hotswap.processes import carry_through, lives, mark
from hotswap.provision import portable_python
from hotswap.provision.bundles import Bundle
from hotswap.runtimes._docker_box import INSIDE, TMP, DockerBox, Plan, remove, supervisor
from hotswap.runtimes._docker_engine import Engine
from hotswap.runtimes._docker_images import MARKER, Image, Images
from hotswap.runtimes._folders import clean_folders, folder_of_boxes, make_folder, remove_for_certain, usable
from hotswap.runtimes._variables import check_named, environment, named

MOUNTS = "/opt/hotswap"
WORKDIR = "/workspace"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")
"""What root in an ordinary image needs to install packages and to become another user, and no more."""
OWNER, RUN, ROLLOUT = (f"{MARKER}.{name}" for name in ("owner", "run", "rollout"))
MAPPING = re.compile(r"[^\s=]+=[^\s=]+")


class Docker(Runtime):
    """A container of a Docker engine on this machine: the image that a task is made for, its limits held.

    No privileges, few capabilities, and no network beyond what the task and you allow. The program, with a Python where
    it needs one, is mounted read-only: the image may be as empty as it likes.
    """

    closed: ClassVar[bool] = True
    portable: ClassVar[bool] = True

    image: str = "debian:bookworm-slim"
    """The image of tasks that name none."""
    image_map: tuple[str, ...] = ()
    """Images to use in the place of others, in FROM lines too, each as FROM=TO: python:3.12=mirror.test/python:3.12"""
    read_only: bool = False
    """Whether the root file system is read-only; the working directory, HOME and /tmp are then kept in memory."""
    starting: int = 4
    """Containers that are started at once; as many may run as the limits of the run allow."""
    root: str | None = None
    """Folder for the sockets of boxes. None: /var/tmp."""
    env: tuple[str, ...] = ()
    """Further variables: NAME=value, or NAME to pass yours on."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._engine = Engine()
        self._images = Images(self._engine, self.image, self._mapped)
        self._bundle: Bundle | None = None
        self._say: Say = _nothing

    def check(self) -> None:
        if sys.platform != "linux":
            raise UsageError(
                "runtime docker: boxes are reached by Unix sockets, which do not pass into the virtual machine of"
                " Docker on this system; start the eval in a Linux machine"
            )
        check_named("runtime.docker.env", self.env)
        for entry in self.image_map:
            if not MAPPING.fullmatch(entry):
                raise UsageError(
                    f"runtime.docker.image_map: {entry!r}: expected FROM=TO, such as python:3.12=my/python"
                )
        if self.starting < 1:
            raise UsageError(f"runtime.docker.starting = {self.starting}: expected at least 1")
        if self.root is not None and not usable(folder_of_boxes(self.root)):
            raise UsageError(f"runtime.docker.root: {self.root} is no folder that can be written")
        self._engine.check()

    def refuses(self, environment: Environment) -> str | None:
        workdir = environment.workdir
        if workdir is not None and (not workdir.startswith("/") or posixpath.normpath(workdir) == "/"):
            return f"it is to work in {workdir}, where docker wants an absolute path below /"
        if environment.dockerfile and environment.image is None and not Path(environment.dockerfile).is_dir():
            return f"its Dockerfile is to be in {environment.dockerfile}, which is no folder"
        return None

    def handed(self) -> Mapping[str, str]:
        return dict(named(self.env))

    @asynccontextmanager
    async def running(self, say: Say) -> AsyncIterator[None]:
        """Remove first what killed runs left: containers that have ended by themselves."""
        self._say = say
        try:
            for line in await self._swept(also_running=False):
                say(f"removed {line}, which a run that is no more had left")
        except Fault as fault:
            say(fault.record.message)
        yield

    async def prepare(self, environment: Environment, say: Say) -> None:
        self._say = say
        if self._bundle is None:
            self._bundle = await portable_python(say)
        await self._images.get(environment, say)

    @asynccontextmanager
    async def box(self, needs: Needs) -> AsyncIterator[Box]:
        if needs.network.hosts and needs.egress is None:
            message = f"a box that may reach {needs.network} was given no way out to them"
            raise Fault("hotswap", "box", "egress", message)
        if self._bundle is None:
            self._bundle = await portable_python(self._say)
        image = await self._images.get(needs.environment, self._say)
        folder = make_folder(folder_of_boxes(self.root))
        try:
            inside = folder / "inside"
            inside.mkdir(mode=0o755)
            (inside / "supervisor").write_bytes(supervisor())
            box = DockerBox(self._engine, self._plan(folder, needs, image, self._bundle))
        except BaseException:
            remove_for_certain(folder)
            raise
        try:
            async with doors.opened(needs, inside) as made:
                await box.open(made, self._gate)
                yield box
        finally:
            await carry_through(box.close())

    async def clean(self) -> Sequence[str]:
        """Remove containers whose eval is gone, by their label: kept ones, and those that a crash left."""
        self._engine.check()
        removed = await self._swept(also_running=True)
        return [*removed, *await asyncio.to_thread(clean_folders, folder_of_boxes(self.root))]

    async def _swept(self, *, also_running: bool) -> list[str]:
        """Remove containers of evals that are no more. What runs on was kept, or is just ending by itself."""
        filters = {"label": [MARKER, OWNER]}
        listed = await self._engine.call(
            lambda client: client.containers(all=True, filters=filters), "listing"
        )
        left = [each for each in listed if lives(each["Labels"][OWNER]) is False]
        gone = []
        for each in left:
            if also_running or each["State"] != "running":
                await remove(self._engine, each["Id"])
                gone.append(f"container {each['Id'][:12]} of rollout {each['Labels'].get(ROLLOUT)}")
        return gone

    @cached_property
    def _gate(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.starting)

    @cached_property
    def _mapped(self) -> dict[str, str]:
        return dict(entry.split("=", 1) for entry in self.image_map if "=" in entry)

    def _plan(self, folder: Path, needs: Needs, image: Image, bundle: Bundle) -> Plan:
        asked = needs.environment
        workdir = posixpath.normpath(asked.workdir or image.workdir or WORKDIR)
        workdir = WORKDIR if workdir == "/" else workdir
        mounts = dict.fromkeys((bundle.folder, *needs.mounts))
        places = {mount: f"{MOUNTS}/{number}/{mount.name}" for number, mount in enumerate(mounts)}
        own = places[bundle.folder]
        python = tuple(word.replace(str(bundle.folder), own) for word in bundle.argv)
        env = {
            **environment(),
            "PATH": PATH,
            **image.env,
            "TMPDIR": TMP,
            **dict(named(self.env)),
            **asked.env,
        }
        return Plan(
            folder=folder,
            needs=needs,
            config=self._config(folder, needs, image, places, workdir),
            python=(*python, "-I", "-S"),
            entrypoint=image.entrypoint,
            user=asked.user or image.user or "0",
            workdir=workdir,
            env=env,
            places=places,
            made=Made(image=image.shown, not_enforced=("storage_mb",) if asked.storage_mb else ()),
        )

    def _config(
        self, folder: Path, needs: Needs, image: Image, places: Mapping[Path, str], workdir: str
    ) -> dict[str, Any]:
        """Get the container as the engine is told of it."""
        asked = needs.environment
        kept = sorted({*CAPABILITIES, *(name.upper().removeprefix("CAP_") for name in asked.capabilities)})
        host: dict[str, Any] = {
            "Mounts": [
                _mount(folder / "inside", INSIDE),
                *(_mount(mount, place) for mount, place in places.items()),
            ],
            "NetworkMode": "bridge" if needs.network.open else "none",
            "CapDrop": ["ALL"],
            "CapAdd": kept,
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": self.read_only,
            "Memory": (asked.memory_mb or 0) << 20,
            "MemorySwap": (asked.memory_mb or 0) << 20,
            "NanoCpus": int((asked.cpus or 0) * 1e9),
            "PidsLimit": (asked.pids + 1) if asked.pids else None,  # its first process is ours
        }
        if self.read_only:
            places_in_memory = (TMP, workdir, "/root", "/home", "/var/hotswap")
            host["Tmpfs"] = dict.fromkeys(places_in_memory, "exec,mode=1777")
        labels = {MARKER: "container", OWNER: mark(), RUN: needs.run, ROLLOUT: needs.rollout}
        return {
            "Image": image.id,
            "User": "0",
            "WorkingDir": "/",
            "Env": ["LC_ALL=C.UTF-8"],
            "Labels": labels,
            "StopSignal": "SIGKILL",
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": host,
        }


def _mount(source: Path, target: str) -> dict[str, Any]:
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": True}


def _nothing(_line: str) -> None:
    """Tell nobody."""
