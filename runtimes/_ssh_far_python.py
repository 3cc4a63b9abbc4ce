"""A connection to a machine that may have no Python: then this machine's is carried there, once."""

from __future__ import annotations

import platform

from hotswap.contracts.model import Say
from hotswap.errors import UsageError
from hotswap.processes import Family
from hotswap.provision import portable_python
from hotswap.provision.bundles import loader_in
from hotswap.runtimes._ssh_boot import unpack
from hotswap.runtimes._ssh_carry import key_of, pour, starter
from hotswap.runtimes._ssh_link import Link, NoPython, ssh_environment
from hotswap.runtimes._ssh_words import Way


async def connected(way: Way, root: str | None, say: Say) -> Link:
    """Get an open connection. Raises Fault (runtime), and UsageError where there can be no Python."""
    try:
        return await _opened(way, root)
    except NoPython as refused:
        _hold_fits(way, refused.machine)
    await _carry(way, say)
    try:
        return await _opened(way, root)
    except NoPython:
        message = f"runtime ssh: {way.host} has no Python, and the one that was carried there does not start"
        raise UsageError(f"{message}; install python3 (3.10 or later) there") from None


async def _opened(way: Way, root: str | None) -> Link:
    link = Link(way, root)
    await link.open()
    return link


def _hold_fits(way: Way, machine: str) -> None:
    """Raise UsageError where this machine's Python would not run there."""
    here = f"{platform.system()} {platform.machine()}"
    if not machine.startswith("Linux "):
        raise UsageError(f"runtime ssh: {way.host} is {machine}; boxes are made on Linux machines alone")
    if machine != here:
        message = f"runtime ssh: {way.host} is {machine} and has no Python; this machine's ({here}) does not run there"
        raise UsageError(f"{message}; install python3 (3.10 or later) there")


async def _carry(way: Way, say: Say) -> None:
    bundle = await portable_python(say)
    say(f"carrying a Python to {way.host}, which has none, once")
    name = f"python-{await key_of(bundle.folder)}"
    loader = loader_in(bundle.libraries)
    start = starter(None if loader is None else loader.name, str(bundle.program.relative_to(bundle.folder)))
    family = Family(f"carrying a Python to {way.host}")
    argv = [*way.alone(), unpack(name)]
    session = await family.start(argv, env=ssh_environment(), stdin=b"", output_limit=4096)
    try:
        await pour(session, bundle.folder, packed=False, start=start)
        result = await session.wait()
    finally:
        await family.end()
    if result.exit != 0:
        last = (result.stderr.text.strip().splitlines() or ["it said nothing"])[-1]
        message = f"runtime ssh: a Python could not be carried to {way.host}: {last}"
        raise UsageError(f"{message}; install python3 (3.10 or later) there")
