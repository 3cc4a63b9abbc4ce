"""Folders of this machine that are carried to the far one: once for each content, whole or not at all."""

from __future__ import annotations

import asyncio
import io
import shlex
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hotswap.contracts.model import Say
from hotswap.errors import Fault
from hotswap.processes import Running
from hotswap.runtimes._ssh_boot import command, program
from hotswap.runtimes._ssh_link import Link
from hotswap.runtimes._ssh_trees import HAVE, SEND, STORED, tree_hash

PIECE = 1 << 18
MIB = 1 << 20

_hashes: dict[Path, str] = {}


async def key_of(path: Path) -> str:
    """Get the hash of a folder's content, read once a process: what is mounted does not change in a run."""
    if path not in _hashes:
        _hashes[path] = await asyncio.to_thread(tree_hash, str(path))
    return _hashes[path]


async def carried(link: Link, path: Path, say: Say) -> str:
    """Get where a folder is found on the far machine, carried there if it is not there, whole."""
    key = await key_of(path)
    folder = f"{link.about['cache']}/{path.name or 'root'}-{key}"
    there = await link.ask(0, "have", folder=folder, key=key)
    if not there.get("whole"):
        say(f"carrying {path.name} to {link.way.host}, once ({_size(path) / MIB:.0f} MiB)")
        await _send(link, path, {"folder": folder, "key": key, "zstd": bool(link.about["zstd"])})
    return f"{folder}/tree"


async def _send(link: Link, path: Path, asked: dict[str, Any]) -> None:
    session = await link.shared(command(), stdin=b"")
    try:
        await session.send(program("hotswap.runtimes._ssh_trees", "receive", asked))
        lines = _lines(session)
        word = await anext(lines, "")
        if word == SEND:
            await pour(session, path, packed=asked["zstd"])
            word = await anext(lines, "")
        if word not in (HAVE, STORED):
            message = f"could not carry {path} to {link.way.host}"
            said = (await session.wait()).stderr.text.strip()
            raise Fault(
                "runtime", "box", "carry", f"{message}: {said.splitlines()[-1] if said else word}", said
            )
    finally:
        await session.end()


async def pour(session: Running, path: Path, *, packed: bool, start: str | None = None) -> None:
    """Send a folder as tar, and then the end of the input."""
    loop = asyncio.get_running_loop()

    def write(data: bytes) -> None:
        asyncio.run_coroutine_threadsafe(session.send(data), loop).result()

    await asyncio.to_thread(_tar, path, write, packed, start)
    await session.send(None)


def _tar(path: Path, write: Callable[[bytes], None], packed: bool, start: str | None) -> None:
    sink: Any = _Sink(write)
    if packed:
        import zstandard

        sink = zstandard.ZstdCompressor(level=3).stream_writer(sink, closefd=True)
    with tarfile.open(fileobj=sink, mode="w|", bufsize=PIECE) as archive:
        archive.add(path, "tree", filter=_nobodys)
        if start is not None:
            about = tarfile.TarInfo("start")
            about.mode, about.size = 0o755, len(start)
            archive.addfile(about, io.BytesIO(start.encode()))
    sink.close()


def _nobodys(about: tarfile.TarInfo) -> tarfile.TarInfo:
    about.uid = about.gid = 0
    about.uname = about.gname = ""
    return about


class _Sink(io.RawIOBase):
    """Hands on what is written to it."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        super().__init__()
        self._write = write

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._write(bytes(data))
        return len(data)


async def _lines(session: Running) -> Any:
    """What a session says, line by line; what a login shell printed before is among it and is skipped."""
    heard = b""
    async for data in session.output():
        heard += data
        *whole, heard = heard.split(b"\n")
        for line in whole:
            if (word := line.decode("utf-8", "replace").strip()) in (HAVE, SEND, STORED, "broken"):
                yield word


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(each.lstat().st_size for each in path.rglob("*") if not each.is_dir())


def starter(loader: str | None, python: str) -> str:
    """Get the script that starts a carried Python, whatever the folder that it lies in is called."""
    rest = f'"$d/{python}" "$@"'
    words = rest if loader is None else f'"$d/libs/{shlex.quote(loader)}" --library-path "$d/libs" {rest}'
    return f'#!/bin/sh\nd=$(cd "${{0%/*}}" && pwd)/tree\nexec {words}\n'
