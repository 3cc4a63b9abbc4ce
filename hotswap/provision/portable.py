"""A Python that runs in a box where there is none: no interpreter, no library, not even a loader.

It is this machine's interpreter with its standard library, bundled. `sys.prefix` is the mounted folder. A script with
dependencies finds them without a variable: a prelude adds their folder, as `site` does in an environment.
`sys.executable` cannot be started by itself where the box has no loader.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hotswap.contracts.model import Say
from hotswap.errors import UsageError
from hotswap.provision import bundles, cache
from hotswap.provision.bundles import Bundle, Recipe
from hotswap.provision.keys import base_python, key

LEFT_OUT = shutil.ignore_patterns(
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtle*",
    "config-*",
    "_tkinter*",
    "_test*",
    "_ctypes_test*",
    "*.opt-[12].pyc",
)
ASK = """
import json, sys, sysconfig
paths = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
print(json.dumps({"version": sys.version, "prefix": sys.base_prefix, "folders": paths}))
"""
PROBE = ("-I", "-S", "-c", "import encodings, hashlib, json, ssl, subprocess")
COMPILE = ("-I", "-m", "compileall", "-q")
"""What is not compiled here would be at each start: a box cannot write it down."""
PRELUDE = """
import sys
folder, path = sys.argv[1:3]
del sys.argv[:2]
import runpy, site
site.addsitedir(folder)
runpy.run_path(path, run_name="__main__")
"""
"""Runs a script with packages, given the folder of these and its path, with the rest of the argv for its own."""


@dataclass(frozen=True)
class _About:
    """What an interpreter says of itself."""

    version: str
    prefix: str
    folders: list[str]


async def python(say: Say, interpreter: Path | None = None) -> Bundle:
    """Get a Python, the one that runs us unless another is named, as a bundle. Start it with `-I -S`."""
    own = interpreter is None or interpreter == base_python()
    interpreter = base_python() if interpreter is None else interpreter
    bundles.refuse_elsewhere("a Python")
    about = _own() if own else await _ask(interpreter)

    async def fill(bundle: Bundle, lock: int) -> Iterable[Path]:
        import asyncio

        for folder in dict.fromkeys(about.folders):
            target = bundle.folder / Path(folder).relative_to(about.prefix)
            await asyncio.to_thread(_copy_tree, Path(folder), target)
            await bundles.step(name, lock, (str(interpreter), *COMPILE, str(target)))
        return sorted(bundle.folder.rglob("*.so"))

    name = f"python-{about.version.split()[0]}-{key(str(interpreter), about.version)}"
    return await bundles.bundled(Recipe(name, interpreter, PROBE, fill), say)


def _own() -> _About:
    import sysconfig

    outside = {"platbase": sys.base_exec_prefix}  # of any virtual environment
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib", vars=outside)]
    return _About(sys.version, sys.base_prefix, folders)


async def with_packages(site_packages: Path, name: str, say: Say, interpreter: Path) -> Bundle:
    """Get a Python with the libraries that packages with native code need beside its own."""
    base = await python(say, interpreter)
    native = sorted(path for path in site_packages.rglob("*.so*") if path.is_file())
    if not native:
        return base

    async def make(beside: Path, lock: int) -> None:  # noqa: ARG001
        shutil.copytree(base.libraries, beside)
        await bundles.copy_libraries(native, beside, within=site_packages)
        bundles.make_read_only(beside)

    path = cache.folder("portable") / f"{name}-{key(name, base.folder.name)}"
    return Bundle(base.folder, base.program, await cache.once(path, Path.is_dir, make, say))


async def _ask(interpreter: Path) -> _About:
    import asyncio

    process = await asyncio.create_subprocess_exec(
        str(interpreter), "-I", "-S", "-c", ASK, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise UsageError(f"cannot start {interpreter}: it ended with exit code {process.returncode}")
    return _About(**json.loads(said))


def _copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=LEFT_OUT, ignore_dangling_symlinks=True)
