"""Images: the one that a task is made for, pulled or built once, whoever asks first."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotswap.contracts.environment import Environment
from hotswap.contracts.model import Say
from hotswap.errors import Fault
from hotswap.provision import locked
from hotswap.runtimes._docker_engine import Engine, is_missing

MARKER = "hotswap"
"""The label of all that we make."""
FROM = re.compile(r"^(\s*FROM\s+(?:--\S+\s+)*)(\S+)(.*)$", re.IGNORECASE | re.MULTILINE)
LAYER = re.compile(r" ---> ([0-9a-f]{12})")
FROM_STEP = re.compile(r"Step \d+/\d+ : FROM ", re.IGNORECASE)
TAIL = 30
"""Lines of a build's log that its failure shows."""
SAID_EVERY_S = 5.0


@dataclass(frozen=True)
class Image:
    """An image that is here."""

    id: str
    shown: str
    """Its digest where it has one, else its id."""
    entrypoint: tuple[str, ...]
    user: str
    workdir: str
    env: Mapping[str, str]


class Images:
    """The images of one runtime."""

    def __init__(self, engine: Engine, default: str, mapped: Mapping[str, str]) -> None:
        self._engine, self._default, self._mapped = engine, default, mapped
        self._tasks: dict[tuple[str | None, str | None], asyncio.Task[Image]] = {}

    async def get(self, environment: Environment, say: Say) -> Image:
        """Get the image for such tasks, made ready the first time. Raises Fault (box)."""
        asked = (environment.image, environment.dockerfile)
        task = self._tasks.get(asked)
        if task is None or _failed(task):
            task = self._tasks[asked] = asyncio.create_task(self._made(environment, say))
        return await asyncio.shield(task)

    async def _made(self, environment: Environment, say: Say) -> Image:
        if environment.image is None and environment.dockerfile is not None:
            return await self._built(Path(environment.dockerfile), say)
        name = environment.image or self._default
        who = "the task asks for it" if environment.image else "runtime.docker.image names it"
        return await self._pulled(self._mapped.get(name, name), who, say)

    async def _found(self, name: str) -> Image | None:
        try:
            about = await self._engine.call(lambda client: client.inspect_image(name), name)
        except Fault as fault:
            if is_missing(fault):
                return None
            raise
        return _image(about)

    async def _pulled(self, name: str, who: str, say: Say) -> Image:
        if found := await self._found(name):
            return found
        async with locked(f"docker-pull-{name}", say):
            if found := await self._found(name):
                return found
            say(f"pulling the image {name}")
            try:
                await self._engine.call(lambda client: _pull(client, name, say), name)
                found = await self._found(name)
            except Fault as fault:
                message = f"the image {name} cannot be had ({who}): {fault.record.message.partition(': ')[2]}"
                raise Fault("runtime", "box", "image", message) from fault
        if found is None:
            raise Fault("runtime", "box", "image", f"the image {name} was pulled and is not there ({who})")
        return found

    async def _built(self, folder: Path, say: Say) -> Image:
        """Build a folder's Dockerfile, unless the same content was built before, by whichever eval."""
        dockerfile = folder / "Dockerfile"
        if not dockerfile.is_file():
            raise Fault("taskset", "box", "dockerfile", f"there is no {dockerfile}")
        text = self._replaced(dockerfile.read_text("utf-8"))
        key = await asyncio.to_thread(content_hash, folder, text)
        name = f"hotswap/built:{key}"
        if found := await self._found(name):
            return found
        async with locked(f"docker-build-{key}", say):
            if found := await self._found(name):
                return found
            say(f"building the image of {dockerfile}")
            log: list[str] = []
            try:
                await self._engine.call(lambda client: _build(client, folder, text, name, log, say), name)
            except Fault as fault:
                log.append(fault.record.message.partition(": ")[2])
            found = await self._found(name)
            if found is None and (half := half_built(log)):
                with suppress(Fault):  # what is in the way is no more than a layer that stays
                    await self._engine.call(lambda client: _remove_nameless(client, half), half)
        if found is None:
            end = "\n".join(log[-TAIL:])
            last = log[-1] if log else "the engine said nothing"
            raise Fault("taskset", "box", "build", f"{dockerfile} cannot be built: {last}", end)
        return found

    def _replaced(self, text: str) -> str:
        """Put other images in the place of those that are mapped, in FROM lines."""
        return FROM.sub(lambda line: line[1] + self._mapped.get(line[2], line[2]) + line[3], text)


def content_hash(folder: Path, dockerfile: str) -> str:
    """Get a hash of a folder's files, their names and modes, with the text that stands for its Dockerfile."""
    digest = hashlib.sha256(dockerfile.encode())
    for path in sorted(folder.rglob("*")):
        if path == folder / "Dockerfile":
            continue
        about = path.lstat()
        digest.update(f"\0{path.relative_to(folder)}\0{about.st_mode:o}\0".encode("utf-8", "surrogateescape"))
        if path.is_symlink():
            digest.update(os.fsencode(path.readlink()))
        elif path.is_file():
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:20]


def _pull(client: Any, name: str, say: Say) -> None:
    repository, tag = _parted(name)
    said_at = time.monotonic()
    layers: dict[str, tuple[int, int]] = {}
    for event in client.pull(repository, tag=tag, stream=True, decode=True):
        if "error" in event:
            raise _docker_error(event["error"])
        detail = event.get("progressDetail") or {}
        if detail.get("total"):
            layers[event.get("id", "")] = (detail.get("current", 0), detail["total"])
        if time.monotonic() - said_at > SAID_EVERY_S:
            said_at = time.monotonic()
            done, total = (sum(each[at] for each in layers.values()) for at in (0, 1))
            say(f"pulling the image {name}: {done >> 20} of {total >> 20} MiB known so far")


def _build(client: Any, folder: Path, text: str, name: str, log: list[str], say: Say) -> None:
    with tempfile.TemporaryDirectory() as aside:
        dockerfile = Path(aside, "Dockerfile")
        dockerfile.write_text(text, "utf-8")
        events = client.build(
            path=str(folder), dockerfile=str(dockerfile), tag=name, labels={MARKER: "image"}, rm=True,
            forcerm=True, decode=True,
        )  # fmt: skip
        for event in events:
            line = str(event.get("stream") or event.get("error") or "").rstrip()
            if line:
                log.extend(line.splitlines())
            if line.startswith("Step "):
                say(f"building the image of {folder}/Dockerfile: {line}")


def half_built(log: list[str]) -> str | None:
    """Get the image of the last step that a build made itself, and did not find in its cache."""
    made = [
        match[1]
        for before, line in itertools.pairwise(log)
        if (match := LAYER.fullmatch(line)) and "Using cache" not in before and not FROM_STEP.match(before)
    ]
    return made[-1] if made else None


def _remove_nameless(client: Any, image: str) -> None:
    """Remove what a build that failed left; what has a name, or is in use, stays."""
    about = client.inspect_image(image)
    if not about.get("RepoTags") and not about.get("RepoDigests"):
        client.remove_image(image)


def _docker_error(message: str) -> Exception:
    import docker.errors  # type: ignore[import-untyped]

    error: Exception = docker.errors.APIError(message)
    return error


def _parted(name: str) -> tuple[str, str | None]:
    """Part a name from its tag; a digest stays with the name, and `latest` stands where neither is."""
    if "@" in name:
        return name, None
    above, _, last = name.rpartition("/")
    repository, _, tag = last.partition(":")
    return f"{above}/{repository}" if above else repository, tag or "latest"


def _image(about: Mapping[str, Any]) -> Image:
    config = about.get("Config") or {}
    digests = about.get("RepoDigests") or ()
    return Image(
        id=about["Id"],
        shown=digests[0] if digests else about["Id"],
        entrypoint=tuple(config.get("Entrypoint") or ()),
        user=config.get("User") or "",
        workdir=config.get("WorkingDir") or "",
        env=dict(_variables(config.get("Env") or ())),
    )


def _variables(entries: Iterable[str]) -> Iterable[tuple[str, str]]:
    for entry in entries:
        name, _, value = entry.partition("=")
        yield name, value


def _failed(task: asyncio.Task[Image]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
