"""The folders that boxes are made in: entrusted while they are there, marked with whose they are."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hotswap.errors import Fault
from hotswap.processes import entrust, lives, mark, release, remove_folder

DISK = Path("/var/tmp")
PREFIX, OWNER = "hotswap-", ".owner"
"""What the folder of a box is called, and the file in it that says whose it is."""
REMOVAL_S = 60.0
DAY_S = 86_400


def folder_of_boxes(root: str | None) -> Path:
    """Get the folder that boxes are made in. Some programs distrust what lies below /tmp."""
    chosen = root or (DISK if usable(DISK) else tempfile.gettempdir())
    return Path(os.path.realpath(Path(chosen).expanduser()))


def usable(folder: Path) -> bool:
    """Whether boxes can be made in a folder."""
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def make_folder(above: Path) -> Path:
    """Make the folder of a box. It is entrusted before it is there: no kill comes between."""
    folder = above / f"{PREFIX}{os.urandom(5).hex()}"
    entrust(folder)
    try:
        folder.mkdir(mode=0o700)  # fails where someone else has made it
    except OSError:
        release(folder)
        raise
    (folder / OWNER).write_text(mark(), "ascii")
    return folder


def remove_for_certain(folder: Path) -> None:
    """Remove the folder of a box. Raises Fault (runtime) where something is left."""
    if not remove_folder(str(folder), REMOVAL_S):
        raise Fault("runtime", "box", "not_removed", f"could not remove all of {folder}")
    release(folder)


def clean_folders(above: Path) -> Sequence[str]:
    """Remove the folders of boxes whose eval is gone: kept ones, and those that a power failure left."""
    found = [folder for folder in sorted(above.glob(f"{PREFIX}*")) if _is_left(folder)]
    left = [str(folder) for folder in found if not remove_folder(str(folder), REMOVAL_S)]
    if left:
        raise Fault("runtime", "box", "not_removed", f"could not remove all of {', '.join(left)}")
    return [str(folder) for folder in found]


def _is_left(folder: Path) -> bool:
    """Whether a folder is a box of ours, and the eval that made it is gone; of another boot, untouched for a day."""
    try:
        about = folder.stat(follow_symlinks=False)
        alive = lives((folder / OWNER).read_text("ascii"))
    except (OSError, ValueError):
        return False
    old = time.time() - about.st_mtime > DAY_S
    return about.st_uid == os.getuid() and (alive is False or (alive is None and old))
