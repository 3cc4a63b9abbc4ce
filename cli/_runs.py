"""Where the runs are: the setting `runs`, read alone, so that a look at a run needs no valid settings.

And what each look at a run says of it, beside its results.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hotswap.columns import misbehaviour

if TYPE_CHECKING:
    from hotswap.result import Result
    from hotswap.store import RunDirectory

DEFAULT = "runs"


def runs_folder(given: Path | None) -> Path:
    """Get the folder of the runs: as given, else from the environment, ./eval.toml or the user's own file."""
    from hotswap.settings.layers import read_environment, read_file, user_file

    if given is not None:
        return given
    own, project = user_file(os.environ), Path("eval.toml")
    layers = [read_file("user", own, str(own))] if own and own.is_file() else []
    if project.is_file():
        layers.append(read_file("project", project, str(project)))
    layers.append(read_environment(os.environ))
    found = [item.value for layer in layers for item in layer.given if item.key == ("runs",)]
    return Path(str(found[-1] if found else DEFAULT)).expanduser()


def misbehaviour_in(run: RunDirectory, results: Sequence[Result]) -> str | None:
    """Say how calls were spoilt on purpose, and how many; null of a clean run."""
    chaos = run.info.get("chaos")
    if not chaos:
        return None
    return misbehaviour(
        str(chaos), sum(result.faults for result in results), sum(result.calls for result in results)
    )
