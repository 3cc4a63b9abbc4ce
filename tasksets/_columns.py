"""What a row's columns become: text by a template, the id of a task, its files and tags."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from hotswap.errors import UsageError
from hotswap.tasksets._rows import Row, RowError, parse_json

USUAL = {
    "prompt": ("question", "query", "instruction", "input", "problem", "text"),
    "answer": ("label", "target", "expected", "solution", "output", "gold", "reference"),
    "system": ("system_prompt", "role", "persona"),
}
"""What else the column of a setting is often called."""


@dataclass(frozen=True)
class Template:
    """Text with `{column}` in it; a literal brace is written twice. Raises UsageError for a lone one."""

    text: str
    setting: str
    """The setting that it is the value of, to be named in errors."""

    def __post_init__(self) -> None:
        lone = next((part for part in self._parts if part in ("{", "}")), None)
        if lone:
            right = f"write {{column}}, or {lone * 2!r} for the sign"
            raise UsageError(f"taskset.{self.setting} = {self.text!r}: a lone {lone!r}; {right}")

    @cached_property
    def _parts(self) -> list[str]:
        return re.findall(r"\{\{|\}\}|\{[^{}]+\}|[{}]|[^{}]+", self.text)

    @cached_property
    def names_a_column(self) -> bool:
        return any(len(part) > 2 and part[0] == "{" for part in self._parts)

    def is_name(self, row: Row) -> bool:
        """Whether the text is a column's bare name: its braces were forgotten."""
        return self.text.strip() in row.values

    def no_column(self, row: Row) -> UsageError:
        """Get the error of a template that would be the same text for every row."""
        said = f"taskset.{self.setting} is {self.text!r} and names no column"
        if self.is_name(row):
            said += f"; did you mean {'{' + self.text.strip() + '}'!r}?"
        else:
            said += ": a template names columns in braces, as {NAME}."
        return UsageError(f"{said} Columns: {', '.join(row.values) or 'none'}")

    def fill(self, row: Row) -> str:
        """Get the text with each column's value in its place. Raises RowError for an unknown or null one."""
        return "".join(self._fill(part, row) for part in self._parts)

    def value(self, row: Row) -> Any:
        """Get the column's own value where the template is one column and nothing else, and else the text."""
        name = self._only_column
        return self._column(name, row) if name else self.fill(row)

    @cached_property
    def _only_column(self) -> str | None:
        parts = self._parts
        return parts[0][1:-1] if len(parts) == 1 and len(parts[0]) > 2 and parts[0][0] == "{" else None

    def _fill(self, part: str, row: Row) -> str:
        if part in ("{{", "}}"):
            return part[0]
        if part[0] != "{":
            return part
        value = self._column(part[1:-1], row)
        if value is None:
            raise RowError(f"column {part[1:-1]!r} is null, and taskset.{self.setting} needs it")
        return as_text(value)

    def _column(self, name: str, row: Row) -> Any:
        try:
            return row.column(name)
        except RowError as error:
            right = self.text.replace(f"{{{name}}}", f"{{{likely(name, self.setting, row)}}}")
            typed = f"--taskset.{self.setting} {shlex.quote(right)}"
            raise RowError(
                f"{error}; taskset.{self.setting} is {self.text!r}. To name another: {typed}"
            ) from None


def likely(name: str, setting: str, row: Row) -> str:
    """Get the column that was probably meant: one that is spelt nearly so, or what is often called so.

    `COLUMN`, which is none, where nothing suggests itself.
    """
    close = get_close_matches(name, row.values, n=1)
    usual = (column for column in row.values if column.lower() in USUAL.get(setting, ()))
    return next(iter((*close, *usual)), "COLUMN")


def as_text(value: Any) -> str:
    """Get text as it is, and any other JSON value as its JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# Ids


class Ids:
    """Gives each row the id of its task, and refuses one that is taken.

    Ids are text. A number becomes its JSON text; where a number and a text are spelled alike (0 and "0"), the
    later of the two gets `-number` or `-text` added. A row without an id (no such column, null or empty) gets
    `row-` and 16 hex digits of the SHA-256 of its values, and a repeated one `-2`, `-3`, ...
    """

    def __init__(self, column: str | None, *, required: bool) -> None:
        self._column = column
        self._required = required
        self._taken: dict[
            int, tuple[int, str]
        ] = {}  # 64 bits of the id's hash, so that a million ids fit anywhere
        self._repeats: dict[str, int] = {}

    def of(self, row: Row) -> str:
        """Get the row's id. Raises RowError for a duplicate, naming both lines."""
        given = row.values.get(self._column) if self._column is not None else None
        if self._required and self._column not in row.values:
            row.column(self._column or "")
        if given is None or given == "":
            return self._by_content(row)
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise RowError(f"id {json.dumps(given)[:40]} is neither text nor a number")
        kind = "text" if isinstance(given, str) else "number"
        name = as_text(given)
        place = _short_hash(name)
        if self._taken.get(place, (0, kind))[1] != kind:
            name = f"{name}-{kind}"
            place = _short_hash(name)
        self._take(name, place, kind, row.line)
        return name

    def _by_content(self, row: Row) -> str:
        content = json.dumps(row.values, sort_keys=True, separators=(",", ":"))
        name = "row-" + hashlib.sha256(content.encode()).hexdigest()[:16]
        if _short_hash(name) in self._taken:
            self._repeats[name] = self._repeats.get(name, 1) + 1
            name = f"{name}-{self._repeats[name]}"
        self._take(name, _short_hash(name), "content", row.line)
        return name

    def _take(self, name: str, place: int, kind: str, line: int) -> None:
        first, _ = self._taken.setdefault(place, (line, kind))
        if first != line:
            raise RowError(f"duplicate id {name!r} (first at line {first})")


def _short_hash(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


# Files and tags


def read_files(value: Any) -> dict[str, str]:
    """Get files from a cell: a table of contents by relative path, or that as JSON text. Raises RowError."""
    value = parse_json(value) if isinstance(value, str) and value else value or {}
    if not isinstance(value, dict) or not all(isinstance(content, str) for content in value.values()):
        raise RowError("files are a table of relative paths and their contents, as text")
    for name in value:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            raise RowError(f"file {name!r} would stand outside the working directory; paths are relative")
    return value


def read_tags(value: Any) -> tuple[str, ...]:
    """Get tags from a cell: a list of texts, or one text with commas. Raises RowError."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise RowError("tags are a list of texts, or one text with commas")
    return tuple(value)
