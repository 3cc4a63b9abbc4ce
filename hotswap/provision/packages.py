"""Packages for one purpose, apart from any environment: a model's server, its weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from hotswap.contracts.model import Say
from hotswap.provision import cache
from hotswap.provision.keys import base_python, key
from hotswap.provision.uv import Uv


async def wheels(name: str, requirements: Sequence[str], say: Say, note: str) -> Path:
    """Get a folder with these packages in it, to be put on a Python path. Fetched by uv the first time.

    Each requirement is a line of a requirements file, pinned, with its `--hash=sha256:...`; nothing else is
    installed, and nothing is built. `note` says what is fetched and how large it is.
    """
    lines = "\n".join(requirements) + "\n"
    full = f"{name}-{key(lines)}"

    async def make(beside: Path, lock: int) -> None:
        began = time.monotonic()
        say(f"fetching {note}, once, into {cache.cache_root()}")
        log = cache.folder("logs") / f"{full}.log"
        log.write_bytes(b"")
        listed = log.with_suffix(".txt")
        listed.write_text(lines, "utf-8")
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--compile-bytecode"]
        where = ["--python", str(base_python()), "--target", str(beside)]
        await Uv(name, log, lock).run("pip", "install", *options, *where, "-r", str(listed))
        say(f"fetched {name} in {time.monotonic() - began:.1f} s")

    return await cache.once(cache.folder("wheels") / full, Path.is_dir, make, say)
