"""`eval list`: what can be named, and what each takes. A part is imported only to show its settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hotswap import registry
from hotswap.cli._columns import columns, wrapped
from hotswap.cli._complete import Item
from hotswap.cli._say import count, program, visible
from hotswap.errors import UsageError
from hotswap.masking import masked_url
from hotswap.registry import Entry, Kind

PARTS: dict[str, Kind] = {"tasksets": "taskset", "harnesses": "harness", "runtimes": "runtime"}
WHAT = (*PARTS, "models", "runs")


USAGE = """\
List tasksets, harnesses, runtimes, models or runs; with a name, that part's settings.

  {eval} list [tasksets|harnesses|runtimes|models|runs]
  {eval} list harnesses loop

  --runs FOLDER  The folder of the runs. [runs]
"""


def main(words: Sequence[str]) -> int:
    """List tasksets, harnesses, runtimes, models or runs; with a name, that part's settings."""
    if "--help" in words or "-h" in words:
        print(USAGE.format(eval=program()), end="")
        return 0
    asked, runs = _read(words)
    if not asked:
        for plural, kind in PARTS.items():
            print(f"{plural}:\n{_parts(kind, indent=2)}\n")
        print(f"More: {program()} list models, {program()} list runs, {program()} list harnesses loop")
        return 0
    plural = _plural(asked[0])
    if len(asked) > 1:
        print(_one(plural, asked[1]))
    elif plural in PARTS:
        print(_parts(PARTS[plural]))
    else:
        print(_models() if plural == "models" else _runs(runs))
    return 0


def complete(words: Sequence[str], incomplete: str) -> list[Item]:
    """Get what could stand in the place of the incomplete word."""
    if words and words[0] in PARTS:
        return [
            Item(entry.name, entry.summary)
            for entry in registry.entries(PARTS[words[0]]).values()
            if entry.name.startswith(incomplete)
        ]
    return [Item(plural) for plural in WHAT if plural.startswith(incomplete)]


def _read(words: Sequence[str]) -> tuple[list[str], Path | None]:
    """Read what is asked for, and the folder of the runs."""
    asked: list[str] = []
    runs = None
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option == "--runs":
            value = value if equals else next(rest, "")
            if not value:
                raise UsageError("--runs needs a value: --runs FOLDER")
            runs = Path(value)
        elif word.startswith("-"):
            raise UsageError(f"no option {word!r}: {program()} list WHAT [NAME] [--runs FOLDER]")
        else:
            asked.append(word)
    if len(asked) > 2:
        raise UsageError(f"one word too many, {asked[2]!r}: {program()} list WHAT [NAME]")
    return asked, runs


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
    rows += [
        (
            f"-m {name}",
            _table_state(name, table),
            visible(masked_url(str(table.get("url") or table.get("model") or ""))),
        )
        for name, table in _tables()
    ]
    rows.append(
        ("-m NAME@http://HOST:PORT/v1", "no key needed", "Any endpoint that speaks chat completions.")
    )
    rows.append(("-m replay:RUN", "no key needed", "What a run recorded, or a file that was made of it."))
    return columns(rows)


def _key_state(variable: str | None, required: bool) -> str:
    if variable is None:
        return "no key needed"
    if os.environ.get(variable, "").strip():
        return f"{variable} is set"
    return f"{variable} is not set" if required else f"{variable} is not set, and may be missing"


def _table_state(name: str, table: Mapping[str, Any]) -> str:
    """Say whether the key of a model of one's own is there: the table's variable, or that of its preset."""
    from hotswap.models.choices import presets
    from hotswap.models.keys import NAME

    if key := table.get("key"):
        known = isinstance(key, str) and NAME.fullmatch(key)
        return (
            f"your own, {_key_state(key, True)}" if known else "your own, and its key is no variable's name"
        )
    preset = presets().get(str(table.get("model") or name).partition("/")[0])
    if table.get("url") or preset is None or preset.key_variable is None:
        return "your own"
    return f"your own, {_key_state(preset.key_variable, preset.key_required)}"


def _tables() -> Iterator[tuple[str, dict[str, Any]]]:
    """Read the names in [models] of the files that apply here, without the cost of checking the rest."""
    from hotswap.settings.layers import around

    named: dict[str, dict[str, Any]] = {}
    for layer in around(os.environ, Path.cwd()):
        for given in layer.given:
            if given.key[0] == "models" and len(given.key) > 2:
                named.setdefault(given.key[1], {})[given.key[2]] = given.value
    yield from sorted(named.items())


def _runs(folder: Path | None) -> str:
    from hotswap import elsewhere
    from hotswap.cli._runs import misbehaviour_in, runs_folder
    from hotswap.columns import number
    from hotswap.intervals import mean_of
    from hotswap.store import INFO, LATEST, RunDirectory

    folder = runs_folder(folder)
    inside = [path.parent for path in folder.glob(f"*/{INFO}") if path.parent.name != LATEST]
    outside = [path for path in elsewhere.noted(folder) if (path / INFO).is_file()]
    paths = sorted({*inside, *outside})
    rows = []
    for path in sorted(paths, key=lambda path: (path / INFO).stat().st_mtime, reverse=True):
        run = RunDirectory.open(path)
        results = list(run.results())
        scored = [result.reward for result in results if result.reward is not None]
        mean = f"mean reward {number(mean_of(scored, len(scored)))}" if scored else "nothing scored"
        errors = f", {count(len(results) - len(scored), 'error')}" if len(scored) < len(results) else ""
        cells = ", ".join(sorted({result.cell for result in results})) or "no rollout finished"
        name = _from_here(path) if path in outside else path.name
        chaos = f". {spoilt}" if (spoilt := misbehaviour_in(run, results)) else ""
        rows.append((name, count(len(results), "rollout"), f"{mean}{errors}: {cells}{chaos}"))
    return columns(rows) or f"no runs in {folder} yet"


def _from_here(path: Path) -> str:
    """Get a path as it would be typed here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
