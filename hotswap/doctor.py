"""What this machine can do, and for each thing that is missing the one command or setting that mends it.

Nothing is changed, no model is called, and no key is read beyond whether it is there.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import hotswap
from hotswap import registry
from hotswap.contracts.runtime import Runtime
from hotswap.errors import UsageError
from hotswap.models.choices import presets
from hotswap.provision import cache_root, uv_binary
from hotswap.settings.choices import choose
from hotswap.settings.layers import Layer

State = Literal["ok", "missing", "note"]

LITTLE_DISK = 2 * 2**30
"""Free bytes below which a run of any size may not end well."""
FEW_FILES = 1024
"""Open files that about 96 rollouts at one time need."""
PROGRAMS = {
    "git": ("tasks that are repositories", "git"),
    "node": ("agents from npm; else a Node of ours is fetched", "nodejs"),
    "npm": ("agents from npm; else a Node of ours is fetched", "npm"),
    "ssh": ("-r ssh", "openssh-client"),
}
"""Programs that parts look for: what for, and the package that has them."""
LOGINS = {
    "codex": "~/.codex/auth.json",
    "claude": "~/.claude/.credentials.json",
    "gemini": "~/.gemini/oauth_creds.json",
    "qwen": "~/.qwen/oauth_creds.json",
}
"""Where agent programs keep the login of a person's subscription."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    about: str
    """`runtime`, `program`, `key`, `login`, `disk` or `process`."""
    name: str
    state: State
    """`note`: neither good nor bad, or missing and not needed by most."""
    said: str
    remedy: str | None = None
    """What to type, or what to set."""

    def to_json(self) -> dict[str, Any]:
        """Get it as JSON values."""
        return asdict(self)


def examine(layers: Sequence[Layer], environment: Mapping[str, str], runs: Path) -> Iterator[Finding]:
    """Look at everything, one thing after the other; `runs` is the folder of the runs."""
    yield Finding("program", "hotswap", "ok", f"{hotswap.__version__}, Python {platform.python_version()}")
    yield _uv()
    for name, (purpose, package) in PROGRAMS.items():
        yield _program(name, purpose, package)
    for name in sorted(registry.names("runtime")):
        yield _runtime(name, layers)
    yield from _keys(environment)
    yield from _logins()
    for name, folder in {"cache": cache_root(environment), "runs": runs, "boxes": Path("/var/tmp")}.items():
        yield _disk(name, folder.expanduser().absolute())
    yield _files()


def runtimes(layers: Sequence[Layer], names: Sequence[str] = ()) -> Iterator[tuple[str, Runtime]]:
    """Iterate over the runtimes that this machine has, or over those named, with the settings of the layers.

    Raises UsageError where one that was named cannot be had.
    """
    for name in names or sorted(registry.names("runtime")):
        try:
            runtime = cast(Runtime, choose("runtime", (name,), layers)[0].build())
            runtime.check()
        except UsageError:
            if names:
                raise
            continue
        yield name, runtime


def _uv() -> Finding:
    try:
        path = uv_binary()
    except UsageError as error:
        return Finding("program", "uv", "missing", str(error), "python3 -m pip install uv")
    return Finding("program", "uv", "ok", f"{_version(path)} ({path})")


def _program(name: str, purpose: str, package: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding("program", name, "note", f"not found; for {purpose}", _install(package))
    return Finding("program", name, "ok", f"{_version(path)} ({path})")


def _install(package: str) -> str:
    """Get the command that installs a package here."""
    managers = {"apt-get": "apt-get install", "dnf": "dnf install", "apk": "apk add", "brew": "brew install"}
    how = next((command for name, command in managers.items() if shutil.which(name)), "install the package")
    return f"{how} {package}"


def _version(path: str) -> str:
    """Get the first line of what a program says of its version."""
    try:
        flag = "-V" if Path(path).name == "ssh" else "--version"
        done = subprocess.run([path, flag], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not say its version: {error}"
    return (done.stdout.strip() or done.stderr.strip() or "of unknown version").splitlines()[0]


def _runtime(name: str, layers: Sequence[Layer]) -> Finding:
    try:
        ((_, runtime),) = runtimes(layers, (name,))
    except UsageError as error:
        return Finding("runtime", name, "note", error.problems[0])
    except Exception as error:  # noqa: BLE001 (a part from outside: the others are looked at all the same)
        return Finding("runtime", name, "missing", f"its check failed: {type(error).__name__}: {error}")
    closed = "its boxes can be closed" if runtime.closed else "no boundary: agent code runs with your rights"
    return Finding("runtime", name, "ok", f"{closed}; network {runtime.network or runtime.default_network}")


def _keys(environment: Mapping[str, str]) -> Iterator[Finding]:
    for name, preset in sorted(presets().items()):
        variable = preset.key_variable
        if variable is None:
            continue
        if environment.get(variable, "").strip():
            yield Finding("key", name, "ok", f"{variable} is set")
        elif preset.key_required:
            yield Finding("key", name, "note", f"{variable} is not set", f"export {variable}=...")


def _logins() -> Iterator[Finding]:
    for program, path in LOGINS.items():
        if Path(path).expanduser().exists():
            said = (
                f"{program} is logged in here ({path}); a run never uses a login, it takes the key of a model"
            )
            yield Finding("login", program, "note", said)


def _disk(name: str, folder: Path) -> Finding:
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(there).free
    said = f"{free / 2**30:.1f} GiB free ({folder})"
    if not os.access(there, os.W_OK):
        variable = {"cache": "HOTSWAP_CACHE", "runs": "--runs", "boxes": "--runtime.local.root"}[name]
        return Finding("disk", name, "missing", f"{there} cannot be written", f"{variable}: another folder")
    if free < LITTLE_DISK:
        return Finding(
            "disk", name, "missing", said, "hotswap clean" if name == "boxes" else f"make room on {there}"
        )
    return Finding("disk", name, "ok", said)


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    said = f"{soft} open files" + (
        "" if hard == soft else f", which a run may raise to {'any' if most == sys.maxsize else hard}"
    )
    if most < FEW_FILES:
        return Finding("process", "open files", "missing", said, f"ulimit -n {FEW_FILES * 4}")
    return Finding("process", "open files", "ok", said)
