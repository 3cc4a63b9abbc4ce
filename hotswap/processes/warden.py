# ruff: noqa: PTH101, PTH104, PTH106, PTH108, PTH208
"""What outlives a killed eval: it ends the processes that were left running, and removes the boxes.

Run as a program of its own, `python -I -S warden.py FIRST LAST`, with a pipe from the eval as standard input.
The pipe carries entries, each ended by a NUL: `+PATH` and `-PATH` for a folder, `>GROUP` and `<GROUP` for a
process group where processes cannot be marked. Its end says that the eval is gone, in whatever way. FIRST and
LAST bound the marks that the eval gave.

Standard library only, and nothing of ours: started with `-I`, it finds no package. It must start in 10 ms, of
which pathlib would cost 5.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

MARK_BASE = 1 << 62
"""Marks are soft resource limits at and above this: larger than any that a person sets."""
MARKED_LIMITS = (b"Max file locks", b"Max realtime timeout")
"""The resource limits that may carry a mark, as `/proc/PID/limits` names them."""
PATIENCE_S = 30.0
LOOKS = 50
"""So often at most those that are to be killed are looked for before the first of them is."""


def read(path: str) -> bytes:
    """Get what a small file of /proc says; nothing where its process is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def mark_of(pid: int) -> int | None:
    """Get the mark that a process was born with; a zombie still has it. Readable whoever owns the process."""
    limits = read(f"/proc/{pid}/limits")
    for name in MARKED_LIMITS:
        at = limits.find(name)
        soft = limits[at + len(name) :].split(None, 1)[0] if at >= 0 else b""
        if soft.isdigit() and int(soft) >= MARK_BASE:
            return int(soft)
    return None


def status_of(pid: int) -> list[bytes]:
    """Get the fields of `/proc/PID/stat` after the name (state, parent, group, session), or none."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def end_marked(first: int, last: int) -> None:
    """Kill every process with a mark in the range, and what those start meanwhile, until none is left."""
    deadline = time.monotonic() + PATIENCE_S
    while (left := _frozen(first, last)) and time.monotonic() < deadline:
        for pid in left:
            _send(pid, signal.SIGKILL)
        time.sleep(0.005)


def _frozen(first: int, last: int) -> set[int]:
    """Stop all those processes and get them: when no new one turns up, none can multiply."""
    seen: set[int] = set()
    for _ in range(LOOKS):
        living = {pid for pid in _pids() if first <= (mark_of(pid) or 0) <= last and _stop(pid)}
        if living <= seen:
            break
        seen |= living
    return living


def _pids() -> list[int]:
    """All process ids, the newest first as a rule."""
    try:
        return sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True)
    except OSError:
        return []


def _stop(pid: int) -> bool:
    """Stop a process; False where it has died already."""
    _send(pid, signal.SIGSTOP)
    return status_of(pid)[:1] not in ([b"Z"], [b"X"], [])


def _send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process and all of its group at one stroke: none slips away by a fork meanwhile."""
    with contextlib.suppress(OSError):
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, number)
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def remove_folder(root: str, within_s: float) -> bool:
    """Remove a folder with all that is in it, whatever its modes; say whether it is gone.

    Folders deep inside are moved to the top first: no path is too long, no recursion too deep. What cannot be
    removed stays. It may be called again to go on.
    """
    deadline = time.monotonic() + within_s
    pending, moved = [root], 0
    while pending and time.monotonic() < deadline:
        folder = pending.pop()
        for entry in _entries(folder):
            if not entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
            elif folder == root:
                pending.append(entry.path)
            else:
                moved += 1
                pending.append(_move(entry.path, f"{root}/.{os.getpid():x}-{time.monotonic_ns():x}-{moved}"))
        if folder != root:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    with contextlib.suppress(OSError):
        os.rmdir(root)
    return not os.path.lexists(root)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    _make_writable(folder)
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _move(path: str, to: str) -> str:
    _make_writable(path)  # moving a folder changes its `..`
    try:
        os.rename(path, to)
    except OSError:
        return path
    return to


def _make_writable(folder: str) -> None:
    with contextlib.suppress(OSError):
        if os.lstat(folder).st_mode & 0o700 != 0o700:
            os.chmod(folder, 0o700)


def watch(pipe: int) -> tuple[set[str], set[int]]:
    """Read entries until the pipe ends; get the folders and process groups that are then still there."""
    folders: set[str] = set()
    groups: set[int] = set()
    rest = b""
    while data := os.read(pipe, 1 << 16):
        *entries, rest = (rest + data).split(b"\0")
        for entry in entries:
            kind, value = entry[:1], os.fsdecode(entry[1:])
            if kind in b"+-":
                (folders.add if kind == b"+" else folders.discard)(value)
            elif kind in b"<>":
                (groups.add if kind == b">" else groups.discard)(int(value))
    return folders, groups


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    folders, groups = watch(sys.stdin.fileno())
    end_marked(int(sys.argv[1]), int(sys.argv[2]))
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    for folder in folders:
        remove_folder(folder, PATIENCE_S)


if __name__ == "__main__":
    main()
