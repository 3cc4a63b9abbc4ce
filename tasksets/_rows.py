"""Rows of a JSONL or CSV file, and the tasks made of them.

A file is read as a stream: `-n 5` reads five rows of a huge one. Reading goes on until the run has its tasks;
once one row is bad the run cannot start, so the rest is read too, and all that is wrong is raised at once.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

from hotswap.contracts.task import Task
from hotswap.errors import UsageError

SHOWN = 50
"""Problems that are listed one by one; of the others only the number is given."""
CELL_LIMIT = 64 * 1024 * 1024
"""Characters that one cell of a CSV file may have; the csv module's own limit is 131,072."""


class RowError(ValueError):
    """One row cannot become a task. Each argument is a problem of it."""


@dataclass(frozen=True)
class Row:
    """One row of a file; `error` says why it could not be read, and then it has no values."""

    line: int
    """Where it begins; the first line is 1."""
    values: Mapping[str, Any]
    error: str | None = None

    def column(self, name: str) -> Any:
        """Get a column's value; `a.b.0` reaches into one that holds tables and lists. Raises RowError."""
        if name in self.values:
            return self.values[name]
        value: Any = self.values
        for step in name.split("."):
            if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
            elif isinstance(value, Mapping) and step in value:
                value = value[step]
            else:
                raise RowError(
                    f"no column {name!r} (this row has {', '.join(map(repr, self.values)) or 'none'})"
                )
        return value


def tasks(rows: Iterable[Row], source: object, build: Callable[[Row], Task]) -> Iterator[Task]:
    """Yield the task that `build` makes of each row. Raises UsageError with every bad row and its line."""
    problems: dict[str, list[int]] = {}
    count = 0
    for row in rows:
        count += 1
        try:
            task = build(_sound(row))
        except RowError as error:
            for problem in error.args:
                problems.setdefault(problem, []).append(row.line)
        else:
            if not problems:
                yield task
    if problems:
        raise UsageError(*_listed(source, problems))
    if not count:
        raise UsageError(f"{source}: no rows")


def read(path: Path) -> Iterator[Row]:
    """Yield the rows of a file: `.csv` and `.tsv` as tables, all else as JSON lines; `.gz` is unpacked."""
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    try:
        with _open(path) as file:
            yield from _read_table(file) if kind.lower() in (".csv", ".tsv") else _read_lines(file)
    except (OSError, EOFError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _sound(row: Row) -> Row:
    if row.error:
        raise RowError(row.error)
    return row


def _listed(source: object, problems: Mapping[str, list[int]]) -> Iterator[str]:
    for number, (message, lines) in enumerate(problems.items()):
        if number == SHOWN:
            yield f"{source}: and {len(problems) - SHOWN:,} more problems"
            return
        more = f" (and {len(lines) - 1:,} more lines like it)" if len(lines) > 1 else ""
        yield f"{source}:{lines[0]}: {message}{more}"


# JSON lines


def _read_lines(file: Iterable[bytes]) -> Iterator[Row]:
    """Lines end at a newline alone, so that U+2028 and its like stay inside their row."""
    started = False
    for line, raw in enumerate(file, 1):
        text = raw.removeprefix(b"\xef\xbb\xbf") if line == 1 else raw
        if not text.strip():
            continue
        if not started and text.lstrip().startswith(b"["):
            yield Row(line, {}, "this is one JSON array; write one object a line (`jq -c '.[]' FILE`)")
            return
        started = True
        try:
            yield Row(line, _object(text))
        except RowError as error:
            yield Row(line, {}, str(error))


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = parse_json(raw.decode())
    except UnicodeDecodeError as error:
        raise RowError(f"not UTF-8: byte 0x{raw[error.start]:02x} at column {error.start + 1}") from None
    if not isinstance(value, dict):
        raise RowError(f"expected an object, got {json.dumps(value)[:40]}")
    return value


def parse_json(text: str) -> Any:
    """Get the value of strict JSON: no NaN, no infinity, no key twice. Raises RowError."""
    try:
        return _strict().decode(text)
    except json.JSONDecodeError as error:
        raise RowError(f"not JSON: {error.msg} at column {error.pos + 1}") from None
    except RecursionError:
        raise RowError("JSON that is nested too deeply") from None
    except RowError:
        raise
    except ValueError as error:
        raise RowError(f"not JSON that can be read: {error}") from None


@cache
def _strict() -> json.JSONDecoder:
    return json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_once)


def _refuse(constant: str) -> NoReturn:
    raise RowError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise RowError(f"number {text} is out of range")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise RowError(f"key {twice!r} stands in one object twice")
    return found


# Tables


def _read_table(file: Iterable[bytes]) -> Iterator[Row]:
    """The first row names the columns; what divides it most (comma, semicolon, tab) divides all rows."""
    csv.field_size_limit(CELL_LIMIT)
    lines = _decoded(file)
    line = 0
    try:
        first = next((text for text in lines if text.strip()), "")
        delimiter = max(",;\t", key=first.count)
        table = csv.reader(_chain(first, lines), delimiter=delimiter, strict=True)
        names = next(table, [])
        if len(set(names)) < len(names) or "" in names:
            yield Row(
                1, {}, f"the first row names the columns, each once; it has {', '.join(map(repr, names))}"
            )
            return
        line = table.line_num
        for cells in table:
            if len(cells) == len(names):
                yield Row(line + 1, dict(zip(names, cells, strict=True)))
            elif cells:
                yield Row(line + 1, {}, f"{len(cells)} cells where the first row names {len(names)} columns")
            line = table.line_num
    except csv.Error as error:
        yield Row(line + 1, {}, f"not CSV: {error}")
    except UnicodeDecodeError as error:
        yield Row(line + 1, {}, f"not UTF-8: byte 0x{error.object[error.start]:02x}")


def _decoded(file: Iterable[bytes]) -> Iterator[str]:
    for number, raw in enumerate(file):
        yield (raw.removeprefix(b"\xef\xbb\xbf") if number == 0 else raw).decode()


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest
