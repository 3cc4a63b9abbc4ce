"""bubblewrap: closed boxes on Linux, without root and without a daemon."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from hotswap import doors
from hotswap.contracts.environment import Environment
from hotswap.contracts.model import Say
from hotswap.contracts.runtime import Box, Made, Needs, Runtime
from hotswap.errors import Fault, UsageError
from hotswap.processes import carry_through
from hotswap.provision import portable_python
from hotswap.provision.bundles import Bundle
from hotswap.runtimes._bwrap_box import BwrapBox, Plan
from hotswap.runtimes._cgroups import groups_left, make_group, removed
from hotswap.runtimes._etc import User, etc_folder, kept_folder
from hotswap.runtimes._folders import clean_folders, folder_of_boxes, make_folder, remove_for_certain, usable
from hotswap.runtimes._place import NAMESPACES, SYSTEM, Place, hardening
from hotswap.runtimes._tree import can_hold
from hotswap.runtimes._variables import check_named, environment, named

PYTHON = Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()
HOME, WORKDIR, TMP = "/home/agent", "/workspace", "/tmp"
STANDARD_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
AGENT, AGENT_NUMBER = "agent", 1000
LIMITS = ("cpus", "memory_mb", "storage_mb", "pids")
INSTALL = "apt-get install bubblewrap (or the same by your system's package manager)"
SWITCHES = {
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "kernel.unprivileged_userns_clone=1"),
    "/proc/sys/user/max_user_namespaces": ("0", "user.max_user_namespaces=10000"),
}
"""What may forbid namespaces to a user: the file, what it then says, and the setting that allows them."""
IN_A_CONTAINER = (
    "inside of a container it takes docker run --privileged, or --security-opt seccomp=unconfined"
)


class Bwrap(Runtime):
    """A closed box on Linux, by bubblewrap: no network but the model, nothing of yours to be seen. No root, no daemon.

    A box sees this machine's system folders, read-only, with a few files of /etc, and has a working directory, HOME and
    /tmp of its own. All else is absent: your home folder, /run and its sockets, other processes, the network.
    """

    closed: ClassVar[bool] = True
    default_network: ClassVar[str] = "closed"

    root: str | None = None
    """Folder that boxes are made in. None: /var/tmp."""
    rootfs: str | None = None
    """Folder with a root file system that boxes see in the place of this machine's, read-only, such as an image that
    was exported from Docker: docker export $(docker create IMAGE) | tar -x -C FOLDER"""
    read: tuple[str, ...] = ()
    """Further folders of this machine that boxes may read, at their own path, such as /opt/tools."""
    env: tuple[str, ...] = ()
    """Further variables: NAME=value, or NAME to pass yours on."""

    _bundle: Bundle | None = None
    """The Python that is mounted where boxes see another system."""

    def check(self) -> None:
        if sys.platform != "linux":
            raise UsageError("runtime bwrap: bubblewrap is for Linux; here a closed box is -r docker")
        check_named("runtime.bwrap.env", self.env)
        for path in self.read:
            if not Path(path).expanduser().exists():
                raise UsageError(f"runtime.bwrap.read: {path} does not exist")
        if self.root is not None and not usable(folder_of_boxes(self.root)):
            raise UsageError(f"runtime.bwrap.root: {self.root} is no folder that can be written")
        if (
            self._image is not None
            and not (self._image / "usr").is_dir()
            and not (self._image / "bin").is_dir()
        ):
            raise UsageError(
                f"runtime.bwrap.rootfs: {self.rootfs} is no root file system: it has neither bin nor usr"
            )
        kept_folder()
        _try_out()

    def refuses(self, environment: Environment) -> str | None:
        if self._image is None and (environment.image or environment.dockerfile):
            return (
                "it is made for an image: choose -r docker, or name its file system by --runtime.bwrap.rootfs"
            )
        if environment.capabilities:
            return f"it asks for {', '.join(environment.capabilities)}, which bwrap does not give: choose -r docker"
        workdir = environment.workdir
        if workdir is not None and (not workdir.startswith("/") or workdir == "/"):
            return f"it is to work in {workdir}, where bwrap wants an absolute path below /"
        if (
            workdir is not None
            and self._image is None
            and workdir.split("/")[1] in (*SYSTEM, "etc", "proc", "dev")
        ):
            return f"it is to work in {workdir}, which is this machine's own: choose -r docker, or give bwrap a rootfs"
        return None

    def handed(self) -> dict[str, str]:
        return dict(named(self.env))

    @property
    def portable(self) -> bool:  # type: ignore[override]
        """Programs are mounted with all that they need where boxes see another system than this machine's."""
        return self.rootfs is not None

    async def prepare(self, environment: Environment, say: Say) -> None:  # noqa: ARG002
        """Have a Python that starts where there is none, for boxes with a file system of their own."""
        if self._image is not None and self._bundle is None:
            self._bundle = await portable_python(say)

    @asynccontextmanager
    async def box(self, needs: Needs) -> AsyncIterator[Box]:
        if needs.network.hosts and needs.egress is None:
            raise Fault(
                "hotswap",
                "box",
                "egress",
                f"a box that may reach {needs.network} was given no way out to them",
            )
        folder = make_folder(self._parent)
        async with AsyncExitStack() as stack:
            try:
                box = BwrapBox(await self._plan(folder, needs))
            except BaseException:
                remove_for_certain(folder)
                raise
            stack.push_async_callback(_carried_through, box)
            made = None if needs.network.open else await stack.enter_async_context(doors.opened(needs))
            await box.open(made)
            yield box

    async def clean(self) -> Sequence[str]:
        groups = [str(group) for group in groups_left() if removed(group)]
        return [*await asyncio.to_thread(clean_folders, self._parent), *groups]

    async def _plan(self, folder: Path, needs: Needs) -> Plan:
        """Make the folders of a box, and decide how it is to look."""
        asked = needs.environment
        workdir = os.path.normpath(asked.workdir or WORKDIR)
        user = self._user(asked)
        place = Place(
            folder=folder,
            etc=etc_folder(user, HOME, open_network=needs.network.open),
            own=tuple(dict.fromkeys((HOME, TMP, workdir))),
            workdir=workdir,
            home=HOME,
            user=user,
            mounts=(*needs.mounts, *self._own_mounts),
            rootfs=self._image,
            open_network=needs.network.open,
        )
        await asyncio.to_thread(place.make) if self._image else place.make()
        group = make_group(folder.name, asked)
        made = Made(
            not_enforced=tuple(
                name for name in LIMITS if getattr(asked, name) is not None and name not in group.held
            )
        )
        return Plan(place, needs, self._python, self._environment(place) | dict(asked.env), group, made)

    @property
    def _python(self) -> tuple[str, ...]:
        """The beginning of an argv that starts a bare Python in a box."""
        return (*((str(PYTHON),) if self._bundle is None else self._bundle.argv), "-I", "-S")

    @cached_property
    def _own_mounts(self) -> tuple[Path, ...]:
        """What the first process needs, and what the person lets boxes read."""
        readable = [Path(path).expanduser().absolute() for path in self.read]
        if self._bundle is not None:
            return (self._bundle.folder, *readable)
        prefix = Path(sys.base_prefix).resolve()
        return (*((prefix,) if PYTHON.is_relative_to(prefix) else (prefix, PYTHON.parent)), *readable)

    @cached_property
    def _parent(self) -> Path:
        return folder_of_boxes(self.root)

    @cached_property
    def _image(self) -> Path | None:
        return None if self.rootfs is None else Path(os.path.realpath(Path(self.rootfs).expanduser()))

    def _environment(self, place: Place) -> dict[str, str]:
        here = os.environ.get("PATH", "").split(os.pathsep) if self._image is None else []
        path = [folder for folder in here if folder and place.visible(Path(folder))]
        return {
            **environment(),
            "PATH": os.pathsep.join(dict.fromkeys([*path, *STANDARD_PATH])),
            **dict(named(self.env)),
            "HOME": place.home,
            "TMPDIR": TMP,
            "PWD": place.workdir,
            "USER": place.user.name,
        }

    def _user(self, asked: Environment) -> User:
        if self._image is not None:
            return _user_of_image(self._image, asked.user or "root")
        number = os.getuid()
        if asked.user is None:
            return User("root" if number == 0 else AGENT, number)
        if asked.user in ("root", "0"):
            return User("root", 0)
        return User(AGENT, int(asked.user)) if asked.user.isdigit() else User(asked.user, AGENT_NUMBER)


async def _carried_through(box: BwrapBox) -> None:
    await carry_through(box.close())


def _user_of_image(image: Path, asked: str) -> User:
    """Find a user in an image's own list. Raises Fault (taskset) where there is none of that name."""
    if asked.isdigit():
        return User(asked, int(asked))
    file = Path(os.path.realpath(image / "etc" / "passwd"))
    lines = (
        file.read_text("utf-8", "replace").splitlines()
        if file.is_relative_to(image) and file.is_file()
        else []
    )
    numbers = {
        name: int(number)
        for name, _, number, *_ in (line.split(":") for line in lines if line.count(":") > 2)
    }
    if asked not in {"root": 0, **numbers}:
        raise Fault(
            "taskset", "box", "user", f"the image has no user {asked}; it has {', '.join(numbers) or 'none'}"
        )
    return User(asked, {"root": 0, **numbers}[asked])


def _try_out() -> None:
    """Make a box once. Raises UsageError with the one command that mends what is in its way."""
    try:
        box = [
            *NAMESPACES,
            "--unshare-net",
            *hardening(),
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
        ]
        argv = ["bwrap", *box, "--", "/bin/sh", "-c", ":"]
        done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        raise UsageError(f"runtime bwrap: bubblewrap is not installed; type: {INSTALL}") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        raise UsageError(f"runtime bwrap: a box cannot be made here ({said}); {_remedy() or IN_A_CONTAINER}")
    if not can_hold():
        raise UsageError(
            "runtime bwrap: it takes Linux 5.6 to keep the paths of a box in it; choose -r docker"
        )


def _remedy() -> str | None:
    """The command that lets a user make namespaces, where the system is known to forbid it."""
    for file, (forbidding, setting) in SWITCHES.items():
        with suppress(OSError):
            if Path(file).read_text().strip() == forbidding:
                return f"type: sudo sysctl {setting}"
    return None
