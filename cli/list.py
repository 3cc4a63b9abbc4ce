"""`eval list`: what can be named, and what each takes. A part is imported only to show its settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from hotswap import registry
from hotswap.cli._columns import columns, wrapped
from hotswap.cli._say import count, program, visible
from hotswap.errors import UsageError
from hotswap.registry import Entry, Kind

PARTS: dict[str, Kind] = {"tasksets": "taskset", "harnesses": "harness", "runtimes": "runtime"}
WHAT = (*PARTS, "models", "runs")


def command(
    what: Annotated[str | None, typer.Argument(metavar="|".join(WHAT), help="What to list.")] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One, with its settings.")] = None,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="The folder of the runs.", show_default="runs")
    ] = None,
) -> None:
    """List tasksets, harnesses, runtimes, models or runs; with a name, that part's settings."""
    if what is None:
        for plural in PARTS:
            typer.echo(f"{plural}:\n{_parts(PARTS[plural], indent=2)}\n")
        typer.echo(f"More: {program()} list models, {program()} list runs, {program()} list harnesses loop")
        return
    plural = _plural(what)
    if name is not None:
        typer.echo(_one(plural, name))
    elif plural in PARTS:
        typer.echo(_parts(PARTS[plural]))
    else:
        lists: dict[str, Callable[[], str]] = {"models": _models, "runs": lambda: _runs(runs)}
        typer.echo(lists[plural]())


def _plural(word: str) -> str:
    found = next(
        (plural for plural in WHAT if word in (plural, plural.removesuffix("s"), PARTS.get(plural))), None
    )
    if found is None:
        close = get_close_matches(word, WHAT, n=1)
        suggestion = f" Did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"cannot list {word!r}.{suggestion} One of: {', '.join(WHAT)}")
    return found


def _parts(kind: Kind, indent: int = 0) -> str:
    rows = [(entry.name, entry.origin, entry.summary) for entry in registry.entries(kind).values()]
    return columns(rows, indent) or " " * indent + "none"


def _one(plural: str, name: str) -> str:
    if plural not in PARTS:
        raise UsageError(f"{plural} have no settings to list: {program()} list {plural}")
    entry = registry.find(PARTS[plural], name)
    from hotswap.cli._parts import settings_of

    lines = [f"{entry.kind} {entry.name} ({entry.origin})"]
    lines += [wrapped(entry.summary)] if entry.summary else []
    settings = settings_of(entry)
    if not settings:
        return "\n".join([*lines, "", "It has no settings."])
    rows = [(f"{one.name} = {one.default}", f"{one.doc} ({one.type})") for one in settings]
    return "\n".join([*lines, "", columns(rows, 2), "", _how(entry, settings[0].name)])


def _how(entry: Entry, setting: str) -> str:
    flag = {"taskset": "", "harness": "-H ", "runtime": "-r "}[entry.kind]
    return wrapped(
        f"Set as --{entry.kind}.{entry.name}.{setting} VALUE, beside the name as "
        f"{flag}{entry.name},{setting}=VALUE, or in TOML: [{entry.kind}.{entry.name}] {setting} = ..."
    )


def _models() -> str:
    from hotswap.models.choices import presets

    rows = []
    for name, cls in sorted(presets().items()):
        ref = name if cls.single else f"{name}/MODEL"
        summary = registry.find("preset", name).summary
        rows.append((f"-m {ref}", _key_state(cls.key_variable, cls.key_required), summary))
    rows += [(f"-m {name}", "your own", summary) for name, summary in _tables()]
    rows.append(
        ("-m NAME@http://HOST:PORT/v1", "no key needed", "Any endpoint that speaks chat completions.")
    )
    return columns(rows)


def _key_state(variable: str | None, required: bool) -> str:
    if variable is None:
        return "no key needed"
    if os.environ.get(variable, "").strip():
        return f"{variable} is set"
    return f"{variable} is not set" if required else f"{variable} is not set, and may be missing"


def _tables() -> Iterator[tuple[str, str]]:
    """Read the names in [models] of the files that apply here, without the cost of checking the rest."""
    from hotswap.settings.layers import around

    named: dict[str, dict[str, Any]] = {}
    for layer in around(os.environ, Path.cwd()):
        for given in layer.given:
            if given.key[0] == "models" and len(given.key) > 2:
                named.setdefault(given.key[1], {})[given.key[2]] = given.value
    for name, table in sorted(named.items()):
        yield name, visible(str(table.get("url") or table.get("model") or ""))


def _runs(folder: Path | None) -> str:
    from hotswap.cli._runs import runs_folder
    from hotswap.store import INFO, LATEST, RunDirectory

    folder = runs_folder(folder)
    paths = sorted(path.parent for path in folder.glob(f"*/{INFO}") if path.parent.name != LATEST)
    rows = []
    for path in sorted(paths, key=lambda path: (path / INFO).stat().st_mtime, reverse=True):
        results = list(RunDirectory.open(path).results())
        scored = [result.reward for result in results if result.reward is not None]
        mean = f"mean reward {sum(scored) / len(scored):.3f}" if scored else "nothing scored"
        errors = f", {count(len(results) - len(scored), 'error')}" if len(scored) < len(results) else ""
        cells = ", ".join(sorted({result.cell for result in results})) or "no rollout finished"
        rows.append((path.name, count(len(results), "rollout"), f"{mean}{errors}: {cells}"))
    return columns(rows) or f"no runs in {folder} yet"
