"""Where settings come from: files, the environment and flags, each read into values with their origin.

A layer is a list of `Given`: one value under its dotted key, and where a person wrote it. Only the form is
checked here (TOML, text); `settings` decides what the keys mean.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hotswap.errors import UsageError
from hotswap.registry import plain

Key = tuple[str, ...]
LayerName = Literal["user", "project", "env", "file", "flag"]

PROJECT_FILE = "eval.toml"
PREFIX = "HOTSWAP_"
RESERVED = ("CACHE", "CI", "USER_FILE")
"""Variables with our prefix that are no settings; so are those that begin with TEST_."""

SELECTORS = ("taskset", "harness", "model", "runtime")
"""The tables that choose parts: `harness = "loop"` is short for `[harness] name = "loop"`."""

_SEGMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([^."\']+)')
_ASSIGNMENT = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+|\s*\.\s*)+?)\s*=""")


@dataclass(frozen=True)
class Given:
    """One value that somebody gave."""

    key: Key
    value: Any
    where: str
    """For people: `eval.toml:12`, `env HOTSWAP_TASKS`, `flag -n`."""

    @property
    def name(self) -> str:
        return dotted(self.key)


@dataclass(frozen=True)
class Layer:
    """All values of one source. Later layers win."""

    name: LayerName
    given: tuple[Given, ...]


def around(environment: Mapping[str, str], cwd: Path) -> tuple[Layer, ...]:
    """Read what applies without being named: the user's own file, ./eval.toml and the environment."""
    own, project = user_file(environment), cwd / PROJECT_FILE
    layers = [read_file("user", own, str(own))] if own is not None and own.is_file() else []
    if project.is_file():
        layers.append(read_file("project", project, PROJECT_FILE))
    return (*layers, read_environment(environment))


def user_file(environment: Mapping[str, str]) -> Path | None:
    """Get the path of the user's own settings. HOTSWAP_USER_FILE names another; empty, it means none."""
    if "HOTSWAP_USER_FILE" in environment:
        named = environment["HOTSWAP_USER_FILE"]
        return Path(named).expanduser() if named else None
    base = environment.get("XDG_CONFIG_HOME")
    folder = Path(base) if base else Path(environment.get("HOME") or Path.home()) / ".config"
    return folder / "hotswap" / "eval.toml"


def dotted(key: Key) -> str:
    """Write a key as in TOML: segments joined by dots, quoted where they must be."""
    return ".".join(
        segment if re.fullmatch(r"[\w/:@-]+", segment) else json.dumps(segment) for segment in key
    )


def undotted(name: str) -> Key:
    """Read `a.b` and `models."gpt-4.1".url` into segments."""
    parts = list(_SEGMENT.finditer(name))
    if ".".join(match[0] for match in parts) != name:
        raise UsageError(f'{name!r} is no dotted name: write a.b, or a."b.c" where a part holds a dot')
    return tuple(match[1] or match[2] or match[3] for match in parts)


def is_free(key: Key) -> bool:
    """Whether the last segment is somebody else's name (a header, a request's field), kept as written."""
    if key[0] == "models":
        return "headers" in key[2:-1] or "extra" in key[2:-1]
    if key[0] in SELECTORS:
        return len(key) > 2
    return len(key) > 2 and key[:2] == ("sampling", "extra")


def normal(key: Key) -> Key:
    """Get a key as it is compared: hyphen and underscore are the same, except in names that are not ours."""
    done: list[str] = []
    for segment in key:
        done.append(segment if done and is_free((*done, segment)) else plain(segment))
    if len(done) == 1 and done[0] in SELECTORS:
        done.append("name")
    return tuple(done)


def tree(given: Iterable[Given]) -> dict[str, Any]:
    """Nest the values under their keys. Raises UsageError where one key is both a value and a table."""
    root: dict[str, Any] = {}
    for item in given:
        at = root
        for segment in item.key[:-1]:
            at = at.setdefault(segment, {})
            if not isinstance(at, dict):
                raise UsageError(
                    f"{item.where}: {item.name}: {segment!r} has a value already and is no table"
                )
        at[item.key[-1]] = item.value
    return root


def merge(tables: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Lay tables over one another, the last on top, per key and deep."""
    merged: dict[str, Any] = {}
    for table in tables:
        for key, value in table.items():
            below = merged.get(key)
            if isinstance(below, Mapping) and isinstance(value, Mapping):
                value = merge([below, value])
            merged[key] = value
    return merged


def read_file(name: LayerName, path: Path, shown: str) -> Layer:
    """Read a TOML file. Raises UsageError, with the line, where it cannot be read."""
    try:
        text = path.read_bytes().decode()
        table = tomllib.loads(text)
    except FileNotFoundError:
        raise UsageError(f"no settings file {shown!r}") from None
    except OSError as error:
        raise UsageError(f"cannot read {shown!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise UsageError(f"{shown}:{line}: not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{shown}{_toml_problem(str(error), text)}") from error
    lines = _lines(text)
    given = [_place(Given(key, value, shown), lines) for key, value in _leaves((), table)]
    return Layer(name, _once(given))


def _toml_problem(said: str, text: str) -> str:
    """Say what is wrong with a file that is no TOML: its line, and a hint for the likeliest mistake."""
    line = re.search(r"\(at line (\d+), column \d+\)", said)
    reason = re.sub(r" *[(]at .*[)]$", "", said)
    hint = _unquoted(text.splitlines()[int(line[1]) - 1]) if line else ""
    for kind in SELECTORS:
        if re.search(rf"^{kind}\s*=", text, re.M) and re.search(rf"^\[{kind}[.\]]", text, re.M):
            hint = f". Beside a table [{kind}...], write [{kind}] name = ... and not {kind} = ..."
    return f"{f':{line[1]}' if line else ''}: not TOML: {reason}{hint}"


def _unquoted(line: str) -> str:
    """Say so where a line's value is a bare word."""
    found = re.fullmatch(r"\s*([\w.\"-]+)\s*=\s*([A-Za-z./~][^\s\"',\[\]{}#]*)\s*(#.*)?", line)
    return f'; text needs quotes: {found[1]} = "{found[2]}"' if found else ""


def read_environment(environment: Mapping[str, str]) -> Layer:
    """Read HOTSWAP_LIMITS__TURNS=5 and the like. Names are not case-sensitive; `__` stands for the dot."""
    given = []
    for variable, text in sorted(environment.items()):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in RESERVED or name.startswith("TEST_"):
            continue
        key = normal(tuple(name.lower().split("__")))
        given.append(Given(key, text, f"env {variable}"))
    return Layer("env", tuple(given))


def combine(given: Iterable[Given]) -> Layer:
    """Join flags; one that is given more than once has the list of its values, as `Repeated`."""
    found: dict[Key, Given] = {}
    for item in given:
        item = replace(item, key=normal(item.key))
        before = found.get(item.key)
        if before is None:
            found[item.key] = item
        elif isinstance(before.value, Repeated):
            found[item.key] = replace(before, value=Repeated([*before.value, item.value]))
        else:
            found[item.key] = replace(before, value=Repeated([before.value, item.value]))
    return Layer("flag", tuple(found.values()))


class Repeated(list[Any]):
    """The values of a flag that was given more than once."""


def _once(given: list[Given]) -> tuple[Given, ...]:
    """Refuse a key that one file spells in two ways."""
    found: dict[Key, Given] = {}
    problems = []
    for item in given:
        key = normal(item.key)
        if key in found:
            problems.append(f"{item.where}: {item.name} is given twice, first at {found[key].where}")
        found[key] = replace(item, key=key)
    if problems:
        raise UsageError(*problems)
    return tuple(found.values())


def _leaves(at: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves((*at, key), item)
    else:
        yield at, value


def _place(item: Given, lines: Mapping[Key, int]) -> Given:
    """Add the line: the key's own, or that of the inline table which holds it."""
    for length in range(len(item.key), 0, -1):
        if line := lines.get(item.key[:length]):
            return replace(item, where=f"{item.where}:{line}")
    return item


def _lines(text: str) -> dict[Key, int]:
    """Find the line of each key; one inside a value of many lines may be left out."""
    found: dict[Key, int] = {}
    table: Key = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$", line):
            table = _segments(header[1])
            found.setdefault(table, number)
        elif assignment := _ASSIGNMENT.match(line):
            found.setdefault((*table, *_segments(assignment[1])), number)
    return found


def _segments(name: str) -> Key:
    return tuple(
        (match[1] or match[2] or match[3]).strip() for match in _SEGMENT.finditer(name) if match[0].strip()
    )
