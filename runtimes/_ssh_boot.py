"""How a program of ours is started on the far machine: it is sent over the connection, and nothing is installed."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGES = ("hotswap", "hotswap.processes", "hotswap.runtimes")
MODULES = (
    "hotswap.processes.owner",
    "hotswap.processes.warden",
    "hotswap.runtimes._ssh_frames",
    "hotswap.runtimes._ssh_trees",
    "hotswap.runtimes._ssh_far_loop",
    "hotswap.runtimes._ssh_far_ending",
    "hotswap.runtimes._ssh_far_files",
    "hotswap.runtimes._ssh_far_box",
    "hotswap.runtimes._ssh_far_door",
    "hotswap.runtimes._seccomp",
    "hotswap.runtimes._ssh_far_bwrap",
    "hotswap.runtimes._ssh_far",
)
"""What is sent, each after what it imports."""
LOADER = """
import sys, types
for name in {packages!r}:
    sys.modules[name] = types.ModuleType(name)
sys.modules["hotswap"].sources = dict({sources!r})
for name, source in sys.modules["hotswap"].sources.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
sys.modules[{place!r}].{function}({asked!r})
"""
READS = "import sys; s = sys.stdin.buffer; exec(s.read(int(s.read(8))))"
"""The first program: it reads the second. No quote is in it, nor a backslash: it passes any login shell."""
FITS = "import sys, _ctypes, fcntl, json, tarfile; sys.exit(sys.version_info < (3, 10))"
CACHE = "${XDG_CACHE_HOME:-$HOME/.cache}/hotswap/carried"
"""The cache folder on the far machine, as its shell reads it between double quotes."""
NONE = "hotswap-no-python"
"""What is printed, with the system and the processor, where no Python will do."""
TRIES = f"""
    try() {{ if "$@" -I -S -c "{FITS}" </dev/null 2>/dev/null; then exec "$@" -I -S -X utf8 -c "{READS}"; fi; }}
    if test "$(uname -s)" = Linux
    then for p in /usr/bin/python3 /usr/local/bin/python3 python3 "{CACHE}"/python-*/start; do try "$p"; done
    fi
    echo "{NONE} $(uname -s) $(uname -m)"
"""
UNPACK = f"""
    set -e; umask 077; mkdir -p "{CACHE}"; cd "{CACHE}"
    rm -rf "$$.part"; mkdir "$$.part"; trap "rm -rf $$.part" EXIT
    tar -x -f - -C "$$.part"; test -e NAME/start || mv "$$.part" NAME
"""
"""Puts a Python there where there is none, given as tar on standard input."""


def command() -> str:
    """Get the command that starts the first Python there that will do."""
    return _shell(TRIES)


def unpack(name: str) -> str:
    """Get the command that unpacks a Python there, under this name."""
    return _shell(UNPACK.replace("NAME", name))


def _shell(script: str) -> str:
    """Get a script as one line that any login shell hands on as it is: no single quote is in it."""
    lines = [" ".join(line.split()) for line in script.strip().splitlines()]
    return f"exec /bin/sh -c '{'; '.join(lines)}'"


def program(place: str, function: str, asked: dict[str, Any]) -> bytes:
    """Get the second program: `function` of the module `place`, with its length before it."""
    source = LOADER.format(packages=PACKAGES, sources=_sources(), place=place, function=function, asked=asked)
    encoded = source.encode()
    return b"%8d" % len(encoded) + encoded


@cache
def _sources() -> tuple[tuple[str, str], ...]:
    return tuple((name, _path(name).read_text("utf-8")) for name in MODULES)


def _path(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)
