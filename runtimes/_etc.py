"""What boxes see as /etc: a few files of this machine and a few that are made, in a folder kept for all of them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hotswap.provision.cache import folder as cache_folder

COPIED_ETC = (
    "debian_version",
    "inputrc",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "pki/tls/cert.pem",
    "protocols",
    "services",
    "shells",
    "ssl/openssl.cnf",
    "timezone",
)
"""Small files of /etc that boxes have. No other: a configuration may name people, hosts, or hold a secret."""
SHARED_ETC = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "java-*",
    "ld.so.cache",
    "pki/ca-trust",
    "pki/tls/certs",
    "ssl/certs",
)
"""What is larger, and seen in its place. Each is a mount, which costs as much as all the copies together."""
NAME = "box"
"""The name of the machine, seen from inside."""


@dataclass(frozen=True)
class User:
    """Who commands run as, seen from inside."""

    name: str
    number: int


def etc_folder(user: User, home: str, *, open_network: bool) -> Path:
    """Get the folder that a box for such a user sees as /etc. One for each box would cost as much as bwrap itself."""
    return _made(user, home, _read(("resolv.conf",)).get("resolv.conf", b"") if open_network else None)


def kept_folder() -> Path:
    """Get the folder that those are kept in. Raises UsageError where it cannot be made."""
    return cache_folder("etc")


@cache
def shared_etc() -> tuple[Path, ...]:
    """Get what is mounted in its place."""
    return tuple(path for name in SHARED_ETC for path in sorted(Path("/etc").glob(name)))


@cache
def _made(user: User, home: str, resolvers: bytes | None) -> Path:
    places = {str(path.relative_to("/etc")): path.is_dir() for path in shared_etc()}
    files = {**_read(COPIED_ETC), **_own_files(user, home, resolvers)}
    digest = hashlib.sha256(repr((sorted(places.items()), sorted(files.items()))).encode()).hexdigest()
    found = kept_folder() / digest[:32]
    if not found.is_dir():
        _fill(found, places, files)
    return found


def _fill(target: Path, places: Mapping[str, bool], files: Mapping[str, bytes]) -> None:
    """Make it beside its place, and move it there when it is whole; whoever was faster has made the same."""
    beside = target.with_name(f"{target.name}.{os.urandom(4).hex()}")
    for name, is_folder in places.items():
        (beside / name if is_folder else (beside / name).parent).mkdir(parents=True, exist_ok=True)
    for name, content in {**{name: b"" for name, folder in places.items() if not folder}, **files}.items():
        (beside / name).parent.mkdir(parents=True, exist_ok=True)
        (beside / name).write_bytes(content)
    with suppress(OSError):
        beside.rename(target)
    shutil.rmtree(beside, ignore_errors=True)


def _own_files(user: User, home: str, resolvers: bytes | None) -> dict[str, bytes]:
    root = () if user.number == 0 else (("root", 0),)
    people = [(user.name, user.number), *root, ("nobody", 65534)]
    folders = {user.number: home}
    lines = {
        "passwd": [f"{name}:x:{uid}:{uid}::{folders.get(uid, '/')}:/bin/sh" for name, uid in people],
        "group": [f"{name}:x:{gid}:" for name, gid in people],
        "hosts": [f"127.0.0.1 localhost {NAME}", "::1 localhost"],
        "nsswitch.conf": [
            "passwd: files",
            "group: files",
            f"hosts: files{'' if resolvers is None else ' dns'}",
        ],
    }
    made = {name: "".join(f"{line}\n" for line in each).encode() for name, each in lines.items()}
    return made if resolvers is None else {**made, "resolv.conf": resolvers}


def _read(names: Iterable[str]) -> dict[str, bytes]:
    """Get those files of /etc that are there."""
    return {name: path.read_bytes() for name in names if (path := Path("/etc", name)).is_file()}
