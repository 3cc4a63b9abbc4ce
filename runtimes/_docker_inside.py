# ruff: noqa: PTH102, PTH103, PTH105, PTH108, PTH112, PTH118, PTH120, PTH123
"""What is done inside a container by a process of its own, as root: users are looked up, files written and read.

The whole text is executed there, in a child of the first process, with `given`: the name of a function and what it
takes. Standard library only, of that little: the interpreter is bare. Each function but `become` ends the process.
"""

from __future__ import annotations

import errno
import marshal
import os
import stat
from typing import Any

LARGEST_FILE = 1 << 28
OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO)


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Be a user from here on; the program follows."""
    os.setgroups(groups)
    os.setgid(gid)
    os.setuid(uid)


def look_up(wanted: str) -> None:
    """Say who a user is: number, group, further groups, name, home; or nothing where there is none."""
    name, _, group = wanted.partition(":")
    users, groups = table("/etc/passwd", 7), table("/etc/group", 4)
    own = next((line for line in users if name in (line[0], line[2])), None)
    if own is None and not name.isdigit():
        answer(None)
    uid, gid = (int(own[2]), int(own[3])) if own else (int(name), 0)
    if group:
        found = next((line for line in groups if group in (line[0], line[2])), None)
        if found is None and not group.isdigit():
            answer(None)
        gid = int(found[2]) if found else int(group)
    shown = own[0] if own else name
    more = [int(line[2]) for line in groups if shown in line[3].split(",")]
    answer((uid, gid, more, shown, own[5] if own else ""))


def make_folders(wanted: list[tuple[str, int, int, bool]]) -> None:
    """Make folders with those above them, and give them to their user; say which could not be.

    One that is there already is left as it is unless it is marked as its user's own.
    """
    failed = []
    for path, uid, gid, own in wanted:
        try:
            there = os.path.isdir(path)
            os.makedirs(path, exist_ok=True)
            if own or not there:
                os.chown(path, uid, gid)
        except OSError as error:
            failed.append((path, error.strerror))
    answer(failed)


def write(owner: list[int]) -> None:
    """Write files, and say of each what is in the way: the disk, or the path."""
    said: list[tuple[str, str, str]] = []
    for path, shown, mode, content in marshal.loads(read_all(0)):
        try:
            write_one(path, mode, content, owner)
        except (OSError, ValueError) as error:
            said.append((shown, *reason(error)))
            break
    answer(said)


def write_one(path: str, mode: int, content: bytes, owner: list[int]) -> None:
    """Write by renaming: a link that stands there is replaced, and never written through."""
    folder, name = os.path.split(path)
    if name in ("", ".", ".."):
        raise ValueError("names a folder, not a file")
    make_above(folder, owner)
    new = os.path.join(folder, "." + os.urandom(8).hex())
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchown(descriptor, *owner)
            os.fchmod(descriptor, mode)
        os.replace(new, path)
    except BaseException:
        if os.path.lexists(new):
            os.unlink(new)
        raise


def make_above(folder: str, owner: list[int]) -> None:
    if not os.path.isdir(folder):
        make_above(os.path.dirname(folder), owner)
        os.mkdir(folder, 0o755)
        os.chown(folder, *owner)


def read(paths: list[tuple[str, str]]) -> None:
    """Read files: for each its mode and content, or null where there is none, or what is in the way."""
    answer([read_one(path) for path, _shown in paths])


def read_one(path: str) -> Any:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        return reason(error)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            return ("path", "is no regular file")
        if about.st_size > LARGEST_FILE:
            return ("path", f"has {about.st_size} bytes; at most {LARGEST_FILE} are read")
        return (stat.S_IMODE(about.st_mode), read_all(descriptor))
    finally:
        os.close(descriptor)


def reason(error: Exception) -> tuple[str, str]:
    """Say what is in the way: the disk, or the path."""
    if isinstance(error, OSError):
        return "disk" if error.errno in OF_THE_DISK else "path", error.strerror or str(error)
    return "path", str(error)


def table(path: str, columns: int) -> list[list[str]]:
    """Read a list of users or groups; what is no line of it is passed over."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n").split(":") for line in file]
    except OSError:
        return []
    return [line for line in lines if len(line) >= columns and line[2].isdigit()]


def read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as stream:
        return stream.read()


def answer(value: Any) -> None:
    """Say a value, and end."""
    with open(1, "wb", closefd=False) as stream:
        stream.write(marshal.dumps(value))
    os._exit(0)


if "given" in globals():
    name, arguments = globals()["given"]
    globals()[name](*arguments)
