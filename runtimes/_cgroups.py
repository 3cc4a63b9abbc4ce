"""Limits for all processes of a box together, by control groups: where this process may make one.

With version 2, a group is made below the nearest group above ours that hands its controllers on and that we may write;
with version 1, below our own group of each controller.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hotswap.contracts.environment import Environment

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
PREFIX = "hotswap-"
PERIOD_US = 100_000
CONTROLLERS = {"cpus": "cpu", "memory_mb": "memory", "pids": "pids"}
"""What each limit is held by."""
YOUNG_S = 60.0
"""A group that is younger may be that of a box that is just being made."""
REMOVE_S = 2.0
"""The kernel lets go of a group a moment after its last process."""


@dataclass(frozen=True)
class Group:
    """Control groups of one box."""

    folders: tuple[Path, ...]
    held: frozenset[str]
    """The limits that they hold."""

    def add(self, *pids: int | None) -> None:
        """Move processes in; what they start from then on is in it too."""
        for folder in self.folders:
            for pid in pids:
                if pid is not None:
                    (folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove it, its processes ended."""
        deadline = time.monotonic() + REMOVE_S
        for folder in self.folders:
            while folder.exists() and time.monotonic() < deadline and not removed(folder):
                time.sleep(0.001)


def make_group(name: str, asked: Environment, root: Path = ROOT, own: Path = OWN) -> Group:
    """Make a group that holds what it can of what is asked; it may hold nothing."""
    wanted = {limit: value for limit in CONTROLLERS if (value := getattr(asked, limit)) is not None}
    folders: list[Path] = []
    held = set()
    for limit, value in wanted.items():
        controller = CONTROLLERS[limit]
        for above, version in _places(controller, root, own):
            folder = above / f"{PREFIX}{name}"
            with suppress(OSError):
                folder.mkdir(exist_ok=True)
                if folder not in folders:
                    folders.append(folder)
                for file, text in _files(limit, value, version).items():
                    (folder / file).write_text(text)
                held.add(limit)
                break
    return Group(tuple(folders), frozenset(held))


def groups_left(root: Path = ROOT) -> Iterator[Path]:
    """Find groups of boxes that hold no process any more, and did not come to be just now."""
    for folder, below, _ in os.walk(root):
        for name in below:
            found = Path(folder, name)
            if name.startswith(PREFIX) and not _words(found / "cgroup.procs") and _age_s(found) > YOUNG_S:
                yield found


def _places(controller: str, root: Path, own: Path) -> Iterator[tuple[Path, int]]:
    """Where a group for a controller may be made, the best first, each with the version."""
    paths = dict(_own_groups(own))
    if controller in paths:
        yield root / controller / paths[controller].lstrip("/"), 1
        yield root / controller, 1
    if "" in paths:
        below = root if (root / "cgroup.controllers").exists() else root / "unified"
        here = below / paths[""].lstrip("/")
        for above in (here, *here.parents):
            if above.is_relative_to(below) and controller in _words(above / "cgroup.subtree_control"):
                yield above, 2


def _own_groups(own: Path) -> Iterator[tuple[str, str]]:
    """Our own group by controller; under the empty name that of version 2."""
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in controllers.split(","):
                yield controller, path


def _files(limit: str, value: float, version: int) -> Mapping[str, str]:
    """What is written, by file."""
    if limit == "cpus":
        quota = str(max(1000, round(value * PERIOD_US)))
        both = {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": quota}
        return {"cpu.max": f"{quota} {PERIOD_US}"} if version == 2 else both
    if limit == "memory_mb":
        return {"memory.max" if version == 2 else "memory.limit_in_bytes": str(round(value) << 20)}
    return {"pids.max": str(round(value))}


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _age_s(folder: Path) -> float:
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0


def removed(folder: Path) -> bool:
    """Remove a group, and say whether it is gone."""
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()
