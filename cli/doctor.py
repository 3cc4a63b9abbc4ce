"""`eval doctor`: what this machine can do, and what mends what it cannot."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from hotswap.cli._columns import columns
from hotswap.cli._runs import runs_folder
from hotswap.cli._say import visible

MARKS = {"ok": "ok", "missing": "MISSING", "note": "-"}
TITLES = {
    "program": "Programs",
    "runtime": "Runtimes",
    "key": "Keys",
    "login": "Logins",
    "disk": "Disk",
    "process": "Limits",
}


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the findings as JSON, and nothing else.")
    ] = False,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="The folder of the runs.", show_default="runs")
    ] = None,
) -> None:
    """Say what this machine can do: programs, runtimes, keys, disk; and what mends what is missing."""
    from hotswap.doctor import examine
    from hotswap.settings.layers import around

    found = list(examine(around(os.environ, Path.cwd()), os.environ, runs_folder(runs)))
    if as_json:
        print(json.dumps([finding.to_json() for finding in found], indent=2))
        return
    for about, title in TITLES.items():
        rows = [
            (MARKS[one.state], one.name, visible(f"{one.said}. {one.remedy}" if one.remedy else one.said))
            for one in found
            if one.about == about
        ]
        if rows:
            print(f"{title}:\n{columns(rows, 2)}\n")
    missing = [one for one in found if one.state == "missing"]
    print(f"{len(missing)} missing" if missing else "nothing that every run needs is missing")
