"""From a script to the beginning of an argv that starts it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from hotswap.contracts.model import Say
from hotswap.errors import UsageError
from hotswap.provision import cache, metadata
from hotswap.provision.keys import base_python, key
from hotswap.provision.metadata import ScriptMetadata
from hotswap.provision.portable import PRELUDE, with_packages
from hotswap.provision.portable import python as portable_python
from hotswap.provision.uv import Uv


@dataclass(frozen=True)
class Program:
    """A program that can be started."""

    argv: tuple[str, ...] = ()
    """The beginning of its argv, in host paths."""
    mounts: tuple[Path, ...] = ()
    """Host folders that a box must be able to read for it."""


async def script(path: Path, say: Say, *, portable: bool = False) -> Program:
    """Get a Python script (PEP 723) as a program, its environment made by uv the first time.

    A script without dependencies whose first line asks for a bare Python (`#!/usr/bin/env -S python3 -I -S`)
    needs neither environment nor uv, and starts several times as fast: it is compiled once, and run by the
    interpreter that runs us. Any other runs isolated (`-I`) in an environment of its own.

    A portable one runs in a box that has nothing, and comes alone: what lies beside it here is not to be found there.
    """
    path = path.expanduser().absolute()
    needs = metadata.read(path)
    fits = needs.requires_python is None or metadata.satisfies(needs.requires_python, sys.version_info[:3])
    if needs.bare and not needs.dependencies and fits:
        return await _portable_bare(path, say) if portable else _bare(path)
    environment = await _environment(path, needs, fits, say)
    if portable:
        return await _portable(path, environment, say)
    python = environment / "bin" / "python"
    mounts = (environment, *_interpreter_folders(_base_of(environment), python.resolve()), path.parent)
    return Program((str(python), "-I", str(path)), _distinct(mounts))


def _bare(path: Path) -> Program:
    python = base_python()
    compiled = _compile(path)
    mounts = (*_interpreter_folders(Path(sys.base_prefix).resolve(), python), compiled.parent)
    return Program((str(python), "-I", "-S", str(compiled)), _distinct(mounts))


async def _portable_bare(path: Path, say: Say) -> Program:
    bundle = await portable_python(say)
    alone = _compile(path)
    if alone == path:
        alone = _alone(path)
    return Program((*bundle.argv, "-I", "-S", str(alone)), _distinct((bundle.folder, alone.parent)))


async def _portable(path: Path, environment: Path, say: Say) -> Program:
    """A script in a Python of its own, to which a prelude adds the packages of its environment."""
    (packages,) = environment.glob("lib/python*/site-packages")
    interpreter = (environment / "bin" / "python").resolve()
    bundle = await with_packages(packages, environment.name, say, interpreter)
    alone = _alone(path)
    argv = (*bundle.argv, "-I", "-S", "-c", PRELUDE, str(packages), str(alone))
    return Program(argv, _distinct((bundle.folder, bundle.libraries, packages, alone.parent)))


def _alone(path: Path) -> Path:
    """Get a copy of a script in a folder of its own: what lies beside it here is nothing for a box."""
    content = path.read_bytes()
    target = cache.folder("scripts", f"{path.stem}-{key(str(path), content)}") / path.name
    if not target.exists():
        beside = target.with_name(f"{path.name}.{os.getpid()}")
        beside.write_bytes(content)
        beside.replace(target)
    return target


def _compile(path: Path) -> Path:
    """Get the script compiled, which saves a sixth of a run; where the cache cannot be written, as it is."""
    import py_compile

    content = path.read_bytes()
    target = cache.cache_root() / "scripts" / f"{path.stem}-{key(str(path), content)}" / f"{path.stem}.pyc"
    if target.exists():
        return target
    try:
        py_compile.compile(str(path), str(target), doraise=True)
    except py_compile.PyCompileError as error:
        raise UsageError(f"{path}: {error.exc_value}") from None
    except OSError:
        return path
    return target


async def _environment(path: Path, needs: ScriptMetadata, fits: bool, say: Say) -> Path:
    """Get the folder of the script's environment."""
    python = str(base_python()) if fits else str(needs.requires_python)
    lock_file = path.with_name(f"{path.name}.lock")
    pins = lock_file.read_bytes() if lock_file.exists() else b""
    beside_it = str(path.parent) if "[tool.uv.sources" in needs.text else ""  # sources may be relative paths
    name = f"{path.stem}-{key(python, needs.text, pins, beside_it)}"

    async def make(beside: Path, lock: int) -> None:
        wanted = ", ".join(needs.dependencies) or "no packages"
        say(f"preparing the environment of {path.name} with uv, once: {wanted}")
        log = cache.folder("logs") / f"{name}.log"
        log.write_bytes(b"")
        interpreter = str(beside / "bin" / "python")
        uv = Uv(str(path), log, lock, {"VIRTUAL_ENV": str(beside)})
        await uv.run("venv", "--relocatable", "--no-project", "--python", python, str(beside))
        if needs.dependencies:
            options = ["--active", "--compile-bytecode", "--python", interpreter]
            await uv.run("sync", *options, "--script", str(path))
        await uv.call([interpreter, "-I", "-c", "pass"], "its Python")

    return await cache.once(cache.folder("envs") / name, _starts, make, say)


def _starts(environment: Path) -> bool:
    """Whether an environment's interpreter is still there: the Python that it was made from may be gone."""
    return (environment / "bin" / "python").exists()


def _base_of(environment: Path) -> Path:
    """Get the prefix of the Python that an environment was made from."""
    lines = (environment / "pyvenv.cfg").read_text("utf-8").splitlines()
    home = next(line.partition("=")[2].strip() for line in lines if line.partition("=")[0].strip() == "home")
    return Path(home).parent.resolve()


def _interpreter_folders(prefix: Path, python: Path) -> tuple[Path, ...]:
    return (prefix,) if python.is_relative_to(prefix) else (prefix, python.parent)


def _distinct(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(Path(os.path.normpath(folder)) for folder in folders))
