"""Running uv: where it is, what it is given, and what it said when it failed."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hotswap.errors import UsageError
from hotswap.provision import cache

SECRET_WORDS = {
    "KEY",
    "KEYS",
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "CREDENTIALS",
    "APIKEY",
}
"""A variable with one of these in its name is kept from uv, and so from the build scripts that it runs."""
OURS = {
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONPATH",
    "PYTHONHOME",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "UV_PROJECT_ENVIRONMENT",
}
"""They would turn uv away from the environment that it is told to fill."""
LAST_LINES = 15


def uv_binary() -> str:
    """Get the path of uv: the one that was installed with us, else the first on PATH."""
    import shutil

    try:
        import uv

        return os.fsdecode(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise UsageError(
            "uv is not installed, and prepares what a run needs; type: python3 -m pip install uv"
        )
    return found


def environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Get the user's environment without keys (but for uv's own, which private indexes need)."""
    return {name: value for name, value in given.items() if name not in OURS and not _secret(name)}


def _secret(name: str) -> bool:
    return not name.startswith("UV_") and not SECRET_WORDS.isdisjoint(name.upper().split("_"))


@dataclass(frozen=True)
class Uv:
    """uv, at work on one thing."""

    what: str
    """What it prepares, for messages."""
    log: Path
    lock: int
    """uv inherits it: should we be killed, what we were making stays locked until uv has ended too."""
    env: Mapping[str, str] = field(default_factory=dict)

    async def run(self, *arguments: str) -> None:
        """Run one uv command. Raises UsageError with its last words."""
        await self.call([uv_binary(), *arguments], f"uv {arguments[0]}")

    async def call(self, argv: Sequence[str], name: str) -> None:
        """Run any program as a step of the same work."""
        import asyncio

        with self.log.open("ab") as log:
            log.write(f"$ {' '.join(argv)}\n".encode())
            log.flush()
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=cache.folder(),
                env={**environment(), **self.env},
                pass_fds=(self.lock,),
                start_new_session=True,
            )
            try:
                code = await process.wait()
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
                raise
        if code:
            raise UsageError(
                f"cannot prepare {self.what}: {name} ended with exit code {code}\n{self.last_words()}"
            )

    def last_words(self) -> str:
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        shown = "\n".join(f"    {line}" for line in lines[-LAST_LINES:])
        return f"{shown}\n    (all of it is in {self.log})"
