# ruff: noqa: PTH103, PTH104, PTH112, PTH114, PTH115, PTH118, PTH120, PTH123, PTH208
"""Folders that are carried to the far machine: what they are called there, how they arrive. Both sides have it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from typing import Any

HAVE, SEND, STORED, BROKEN = "have", "send", "stored", "broken"


def tree_hash(path: str) -> str:
    """Get the hash of a folder or file: of the names, kinds, modes and contents of all that is in it."""
    total = hashlib.sha256()
    for name, place in _entries(path):
        about = os.lstat(place)
        total.update(f"{name}\0{stat.S_IFMT(about.st_mode):o}\0".encode("utf-8", "surrogateescape"))
        if stat.S_ISLNK(about.st_mode):
            total.update(os.fsencode(os.readlink(place)))
        elif stat.S_ISREG(about.st_mode):
            total.update(b"x" if about.st_mode & 0o100 else b"-")
            with open(place, "rb") as stream:
                total.update(hashlib.sha256(stream.read()).digest())
    return total.hexdigest()[:32]


def _entries(path: str) -> Iterator[tuple[str, str]]:
    """All that is in a folder, by its name below it, in one order everywhere."""
    yield "", path
    if os.path.islink(path) or not os.path.isdir(path):
        return
    for name in sorted(os.listdir(path)):
        for below, place in _entries(os.path.join(path, name)):
            yield os.path.join(name, below) if below else name, place


def is_whole(folder: str, key: str) -> bool:
    """Whether what was carried is there, as it was sent."""
    try:
        return tree_hash(os.path.join(folder, "tree")) == key
    except OSError:
        return False


def receive(asked: dict[str, Any]) -> None:
    """Take a folder from standard input, as tar, unless it is there by now. Holds a lock meanwhile.

    It says `have`, or `send` and later `stored` or `broken`, each on a line.
    """
    folder, key = asked["folder"], asked["key"]
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if is_whole(folder, key):
        print(HAVE, flush=True)
        return
    print(SEND, flush=True)
    part = f"{folder}.part"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    try:
        _unpack(part, packed=asked["zstd"])
        if not is_whole(part, key):
            print(BROKEN, flush=True)
            return
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    print(STORED, flush=True)


def _unpack(folder: str, packed: bool) -> None:
    os.umask(0o022)
    stream: Any = sys.stdin.buffer
    if packed:
        unpacking = subprocess.Popen(["zstd", "-dcq"], stdin=stream, stdout=subprocess.PIPE)
        stream = unpacking.stdout
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        archive.extractall(folder)
