"""The cache folder: where it is, its locks, and how something in it is made exactly once."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from hotswap.contracts.model import Say
from hotswap.errors import UsageError

WAIT_S = 0.1
"""How often a lock that another process holds is tried again."""


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Get the folder of what is provisioned: `HOTSWAP_CACHE`, else `hotswap` in the user's cache folder."""
    if chosen := environment.get("HOTSWAP_CACHE"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path("~/Library/Caches/hotswap").expanduser()
    base = environment.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path("~/.cache").expanduser()) / "hotswap"


def folder(*parts: str) -> Path:
    """Get a folder of the cache, made if need be. Raises UsageError where it cannot be."""
    path = cache_root().joinpath(*parts)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot make the cache folder {path}: {error.strerror}"
        raise UsageError(f"{message}. Set HOTSWAP_CACHE to a folder that can be written") from None
    return path


@asynccontextmanager
async def locked(name: str, say: Say | None = None) -> AsyncIterator[int]:
    """Hold the lock `name`, across tasks and processes. It ends with its holder, however that ends.

    Yields the lock's file descriptor: a child that inherits it keeps the lock for as long as it runs.
    """
    import asyncio

    path = folder("locks") / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        waiting = False
        while not _take(descriptor):
            if say is not None and not waiting:
                say(f"waiting for another process that prepares {name} ({path})")
            waiting = True
            await asyncio.sleep(WAIT_S)
        yield descriptor
    finally:
        os.close(descriptor)


async def once(
    path: Path, usable: Callable[[Path], bool], make: Callable[[Path, int], Awaitable[None]], say: Say
) -> Path:
    """Get `path`, a folder of the cache, made by `make(beside, lock)` if it is not there and `usable`.

    It is made beside its place and moved there when it is whole: whoever is killed leaves nothing half made.
    """
    if usable(path):
        return path
    async with locked(path.name, say) as lock:
        if not usable(path):
            beside = path.with_name(f"{path.name}.part")
            _remove(beside)
            try:
                await make(beside, lock)
                _remove(path)
                beside.rename(path)
            finally:
                _remove(beside)
    return path


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
