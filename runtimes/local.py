"""The local runtime: folders and an environment of its own here, and nothing between it and you."""

from __future__ import annotations

import asyncio
import os
import pwd
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import ClassVar

from hotswap.contracts.environment import Environment
from hotswap.contracts.network import Network
from hotswap.contracts.runtime import (
    Box,
    Command,
    File,
    Files,
    Kept,
    Made,
    Needs,
    PathError,
    Process,
    Runtime,
)
from hotswap.errors import Fault, UsageError
from hotswap.processes import Family, carry_through, release
from hotswap.runtimes._folders import clean_folders, folder_of_boxes, make_folder, remove_for_certain, usable
from hotswap.runtimes._tree import LARGEST_FILE, SMALL, bad_path
from hotswap.runtimes._variables import PASSED, check_named, environment, named

PASSED_ON = (
    *PASSED,
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "LD_LIBRARY_PATH",
)
"""Variables that a box has from here, beside PATH and LC_*: what they name is there, too."""


class LocalBox(Box):
    """A folder with `workdir`, `home` and `tmp`, and a family of processes."""

    def __init__(self, folder: Path, needs: Needs, env: dict[str, str]) -> None:
        self.folder = folder
        self.workdir, self.home, temporary = (f"{folder}/{name}" for name in ("workdir", "home", "tmp"))
        for path in (self.workdir, self.home, temporary):
            Path(path).mkdir()
        self.url = f"http://{_in_url(needs.gate.host)}:{needs.gate.port}"
        self._env = env | {
            "HOME": self.home,
            "TMPDIR": temporary,
            "PWD": self.workdir,
            "GIT_CEILING_DIRECTORIES": str(folder),
        }
        self._env |= needs.environment.env
        asked = {
            name: getattr(needs.environment, name) for name in ("cpus", "memory_mb", "storage_mb", "pids")
        }
        self.made = Made(not_enforced=tuple(name for name, value in asked.items() if value is not None))
        self._kept = False
        self._family = Family(f"box of rollout {needs.rollout}")

    async def start(self, command: Command) -> Process:
        if command.user not in (None, _me()):
            message = f"the local runtime runs everything as {_me()}, not as {command.user}"
            raise Fault("taskset", "box", "user", message)
        cwd = str(Path(self.workdir, command.cwd)) if command.cwd else self.workdir
        return await self._family.start(
            command.argv,
            env={**self._env, "PWD": cwd, **command.env},
            cwd=cwd,
            stdin=command.stdin,
            output_limit=command.output_limit,
            timeout_s=command.timeout_s,
        )

    async def put(self, files: Files) -> None:
        if sum(len(file.content) for file in files.values()) <= SMALL:
            self._write_all(files)
        else:
            await asyncio.to_thread(self._write_all, files)

    async def get(self, paths: Sequence[str]) -> Files:
        found = {}
        for path in paths:
            file = await self._read(path)
            if file is not None:
                found[path] = file
        return found

    async def end_processes(self) -> None:
        await self._family.end()

    async def alive(self) -> bool:
        return Path(self.workdir).is_dir()

    def locate(self, path: Path) -> str:
        return str(path)

    def keep(self) -> Kept:
        self._kept = True
        return Kept(f"cd {quote(self.workdir)}", f"rm -rf {quote(str(self.folder))}")

    async def close(self) -> None:
        """End all processes and remove the folder. Raises Fault (runtime) where something is left."""
        try:
            await self._family.end()
        finally:
            if self._kept:
                release(self.folder)
            else:
                await asyncio.to_thread(remove_for_certain, self.folder)

    def _write_all(self, files: Files) -> None:
        for path, file in files.items():
            with bad_path(path):
                self._write(path, file)

    def _write(self, path: str, file: File) -> None:
        """Write by renaming: a link that stands there is replaced, and never written through."""
        target = Path(self.workdir, path)
        place = Path(os.path.realpath(target.parent), target.name)
        if target.name == "..":
            place = Path(os.path.realpath(target))
        self._hold_inside(place, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.parent / f".{os.getpid():x}-{id(file):x}"
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as stream:  # noqa: PTH123
                stream.write(file.content)
                os.fchmod(descriptor, file.mode)
            new.replace(place)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise

    async def _read(self, path: str) -> File | None:
        with bad_path(path):
            place = Path(os.path.realpath(Path(self.workdir, path)))
            self._hold_inside(place, path)
            try:
                about = place.stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
            if not stat.S_ISREG(about.st_mode):
                raise PathError(f"{path} is no regular file")
            if about.st_size > LARGEST_FILE:
                raise PathError(f"{path} has {about.st_size} bytes; at most {LARGEST_FILE} are read")
            content = (
                place.read_bytes() if about.st_size <= SMALL else await asyncio.to_thread(place.read_bytes)
            )
            return File(content, stat.S_IMODE(about.st_mode))

    def _hold_inside(self, place: Path, path: str) -> None:
        if not place.is_relative_to(self.folder) or place == self.folder:
            raise PathError(f"{path} leads outside the box; the local runtime has no file system of its own")


class Local(Runtime):
    """This machine, as you: own folders and an own environment, but no security boundary.

    Agent code runs with your rights: it can read your files, reach your network, leave things behind. Use it
    for programs and tasks that you would run by hand. What a box keeps apart is the working directory, HOME,
    TMPDIR and the environment; what it guarantees is that all processes are ended and the folders removed.
    """

    root: str | None = None
    """Folder that boxes are made in. None: /var/tmp, since some programs refuse a HOME below /tmp, and many
    look for projects and settings in all folders above, which should not be your own."""
    env: tuple[str, ...] = ()
    """Further variables: NAME=value, or NAME to pass yours on."""

    box_type: ClassVar[type[LocalBox]] = LocalBox
    """What its boxes are; for runtimes that are this one with a difference."""

    def check(self) -> None:
        if not Network.parse(self.network or "open").open:
            raise UsageError(
                f"runtime.network = {self.network}: the local runtime cannot hold it; a box that closes is -r sandbox"
            )
        check_named("runtime.local.env", self.env)
        if self.root is not None and not usable(folder_of_boxes(self.root)):
            raise UsageError(f"runtime.local.root: {self.root} is no folder that can be written")

    def refuses(self, environment: Environment) -> str | None:
        """Say what a folder of this machine cannot be: another file system, or closed."""
        if environment.image or environment.dockerfile:
            return "it is made for an image, which the local runtime cannot give: choose -r docker"
        if environment.network is not None and not Network.parse(environment.network).open:
            return f"it asks for network {environment.network}, which the local runtime cannot hold: choose -r sandbox"
        if environment.user not in (None, _me()):
            return f"it is to run as {environment.user}; the local runtime runs everything as {_me()}"
        return None

    @asynccontextmanager
    async def box(self, needs: Needs) -> AsyncIterator[Box]:
        folder = make_folder(self._parent)
        try:
            box = self.box_type(folder, needs, self._environment)
        except BaseException:
            remove_for_certain(folder)
            raise
        try:
            yield box
        finally:
            await carry_through(box.close())

    async def clean(self) -> Sequence[str]:
        """Remove the folders of boxes whose eval is gone: kept ones, and those that a power failure left."""
        return await asyncio.to_thread(clean_folders, self._parent)

    def handed(self) -> dict[str, str]:
        return dict(named(self.env))

    @cached_property
    def _environment(self) -> dict[str, str]:
        return {**environment(PASSED_ON), "PATH": _path(), **dict(named(self.env))}

    @cached_property
    def _parent(self) -> Path:
        return folder_of_boxes(self.root)


def _path() -> str:
    """Our own environment's programs come last: what agent code installs or changes should not be ours."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if sys.prefix == sys.base_prefix:
        return os.pathsep.join(folders)
    ours = str(Path(sys.prefix, "bin"))
    return os.pathsep.join([*(folder for folder in folders if folder != ours), ours])


def _me() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
