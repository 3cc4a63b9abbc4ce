"""A program that runs in a box without libraries: it comes with its loader and every shared library that it names.

    bin/NAME    the program
    libs/       its shared libraries, and the loader that finds them there
    ...         what else it was given

It is started through its loader, so no variable is needed, and none is passed on to what it starts. It stands in the
cache, read-only, under a hash of what it was made from, and may be mounted anywhere.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotswap.contracts.model import Say
from hotswap.errors import UsageError
from hotswap.provision import cache
from hotswap.provision.uv import Uv

LISTED = re.compile(r"^\s+(?:(?P<name>\S+) => )?(?P<path>/.+) \(0x[0-9a-f]+\)$", re.MULTILINE)
"""A line of ldd: `libm.so.6 => /lib/libm.so.6 (0x7f...)`, or, for the loader, its path alone."""
LOADER = re.compile(r"ld(-linux.*|-musl.*|64|)\.so\.\d+|ld-[\d.]+\.so")
OPENED_LATER = ("libgcc_s.so.1", "libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")
"""Libraries that glibc itself opens when a thread ends or a name is looked up; no program names them."""
BATCH = 200


@dataclass(frozen=True)
class Bundle:
    """A folder with a program and all that it needs."""

    folder: Path
    program: Path
    libraries: Path

    @property
    def argv(self) -> tuple[str, ...]:
        """The beginning of an argv that starts it, in host paths; each word that is a path may be found elsewhere."""
        loader = loader_in(self.libraries)
        if loader is None:
            return (str(self.program),)
        return (str(loader), "--library-path", str(self.libraries), str(self.program))


Fill = Callable[[Bundle, int], Awaitable[Iterable[Path]]]
"""Adds to a bundle that is being made what is its own, under a lock; gets files whose libraries it needs too."""


async def nothing_more(bundle: Bundle, lock: int) -> Iterable[Path]:  # noqa: ARG001
    """Add nothing to a bundle: its program alone is all that there is."""
    return ()


@dataclass(frozen=True)
class Recipe:
    """What a bundle is made from."""

    name: str
    """Its folder in the cache; it must hold a hash of all that goes in."""
    program: Path
    probe: tuple[str, ...] = ("--version",)
    """Arguments with which the program must end well before its bundle is used."""
    fill: Fill = nothing_more


async def bundled(recipe: Recipe, say: Say) -> Bundle:
    """Get a program bundled, made the first time. A static program has no libraries, and is started as it is.

    Raises UsageError where this machine is no Linux, or what was made does not start.
    """
    program = recipe.program
    refuse_elsewhere(program.name)

    async def make(beside: Path, lock: int) -> None:
        say(f"copying {program.name} with its libraries, once, into {cache.cache_root()}")
        bundle = _at(beside, program.name)
        bundle.program.parent.mkdir(parents=True)
        shutil.copy2(program, bundle.program)
        more = await recipe.fill(bundle, lock)
        await copy_libraries([program, *more], bundle.libraries)
        await step(recipe.name, lock, (*bundle.argv, *recipe.probe))
        make_read_only(beside)

    path = cache.folder("portable") / recipe.name
    return _at(await cache.once(path, Path.is_dir, make, say), program.name)


async def step(name: str, lock: int, argv: Sequence[str]) -> None:
    """Run one step of the making of a bundle. Raises UsageError with its last words."""
    await Uv(name, cache.folder("logs") / f"{name}.log", lock).call(argv, Path(argv[0]).name)


def refuse_elsewhere(what: str, system: str = sys.platform) -> None:
    """Raise UsageError where what runs on this machine does not run in a Linux box."""
    if system != "linux":
        message = f"{what} is to run in a Linux box and is copied from this machine, which is {system}"
        raise UsageError(f"{message}; choose -r local, or start the eval on Linux")


async def copy_libraries(files: Sequence[Path], target: Path, within: Path | None = None) -> None:
    """Copy every shared library that some programs and libraries name, and their loader.

    What lies below `within` is left out: it is found where it is, beside what names it.
    """
    import asyncio

    target.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(files), BATCH):
        for name, path in _named(await _ldd(files[start : start + BATCH])):
            if within is None or not path.is_relative_to(within):
                await asyncio.to_thread(_copy_once, path, target / name)


def loader_in(libraries: Path) -> Path | None:
    """Find the loader among libraries; null where there is none, as for a static program."""
    if not libraries.is_dir():
        return None
    return next((path for path in sorted(libraries.iterdir()) if LOADER.fullmatch(path.name)), None)


def make_read_only(folder: Path) -> None:
    """Take the right to write from every file; folders keep it, so that the cache can be deleted."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(0o555 if path.stat().st_mode & 0o100 else 0o444)


def _at(folder: Path, name: str) -> Bundle:
    return Bundle(folder, folder / "bin" / name, folder / "libs")


async def _ldd(files: Sequence[Path]) -> str:
    import asyncio

    try:
        process = await asyncio.create_subprocess_exec(
            "ldd", *map(str, files), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except FileNotFoundError:
        message = (
            "ldd is not installed, and tells which libraries a program needs; it comes with the C library"
        )
        raise UsageError(f"{message} (Debian: apt-get install libc-bin)") from None
    return (await process.communicate())[0].decode("utf-8", "surrogateescape")


def _named(listing: str) -> Iterator[tuple[str, Path]]:
    """The libraries in what ldd said, and those that their C library opens later; a static program has none."""
    for match in LISTED.finditer(listing):
        path = Path(match["path"])
        yield match["name"] or path.name, path
        if path.name.startswith("libc.so"):
            yield from (
                (name, path.with_name(name)) for name in OPENED_LATER if path.with_name(name).exists()
            )


def _copy_once(source: Path, target: Path) -> None:
    if not target.exists():
        shutil.copy2(source, target)
