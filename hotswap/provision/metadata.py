"""What a script says about itself: the block of PEP 723, and its first line."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotswap.errors import UsageError

BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
"""The pattern that PEP 723 gives."""
OPENING = "# /// script"
CLAUSE = re.compile(
    r"(?P<operator>~=|==|!=|<=|>=|<|>)\s*(?P<release>\d+(\.\d+)*)(?P<wildcard>\.\*)?((a|b|rc)\d+)?"
)


@dataclass(frozen=True)
class ScriptMetadata:
    """What a script needs."""

    text: str = ""
    """The block's TOML, as written; empty where there is no block."""
    requires_python: str | None = None
    dependencies: tuple[str, ...] = ()
    bare: bool = False
    """Its first line asks for a Python without site packages: `#!/usr/bin/env -S python3 -I -S`."""


def read(path: Path) -> ScriptMetadata:
    """Read a script's metadata. Raises UsageError with file and line."""
    try:
        source = path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot read this script: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: this script is no UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
        ) from None
    return _Block(path, source).read()


def satisfies(specifier: str, version: tuple[int, ...]) -> bool:
    """Whether a `requires-python` allows this version of Python. Raises ValueError where it is malformed."""
    clauses = [_allows(clause.strip(), version) for clause in specifier.split(",") if clause.strip()]
    return all(clauses)


def _allows(clause: str, version: tuple[int, ...]) -> bool:
    match = CLAUSE.fullmatch(clause)
    if match is None or (match["wildcard"] and match["operator"] not in ("==", "!=")):
        raise ValueError(f"{clause!r} is no version specifier; one is '>=3.11'")
    release = tuple(map(int, match["release"].split(".")))
    have, want = _pad(version, len(release)), _pad(release, len(version))
    begins = version[: len(release)] == release
    same = begins if match["wildcard"] else have == want
    answers = {
        "==": same,
        "!=": not same,
        "<=": have <= want,
        ">=": have >= want,
        "<": have < want,
        ">": have > want,
        "~=": have >= want and version[: len(release) - 1] == release[:-1],
    }
    return answers[match["operator"]]


def _pad(version: tuple[int, ...], length: int) -> tuple[int, ...]:
    return version + (0,) * (length - len(version))


@dataclass(frozen=True)
class _Block:
    path: Path
    source: str

    def read(self) -> ScriptMetadata:
        first = self.source.partition("\n")[0]
        bare = first.startswith("#!") and "python" in first and "-S" in first.partition("python")[2].split()
        found = [match for match in BLOCK.finditer(self.source) if match["type"] == "script"]
        lines = self.source.splitlines()
        if not found and OPENING in lines:
            raise self.wrong(
                lines.index(OPENING) + 1, f"the block {OPENING!r} is not closed by a line '# ///'"
            )
        if not found:
            return ScriptMetadata(bare=bare)
        if len(found) > 1:
            raise self.wrong(
                self.line(found[1].start()), f"there is a second block {OPENING!r}; one is allowed"
            )
        content = "\n".join(line[2:] for line in found[0]["content"].splitlines())
        table = self.parse(content, self.line(found[0].start()))
        return ScriptMetadata(content, self.requires_python(table), self.dependencies(table), bare)

    def parse(self, content: str, opening: int) -> dict[str, Any]:
        try:
            return tomllib.loads(content)
        except tomllib.TOMLDecodeError as error:
            message, _, place = str(error).partition(" (at line ")
            number = int(place.partition(",")[0]) if place else content.count("\n") + 1
            raise self.wrong(opening + number, f"{message}, in the script's metadata (PEP 723)") from None

    def requires_python(self, table: dict[str, Any]) -> str | None:
        value = table.get("requires-python")
        try:
            if isinstance(value, str):
                satisfies(value, (3, 11))
            elif value is not None:
                raise ValueError(f"{value!r} is no text; '>=3.11' is one")
        except ValueError as error:
            raise self.wrong(self.key_line("requires-python"), f"requires-python: {error}") from None
        return value

    def dependencies(self, table: dict[str, Any]) -> tuple[str, ...]:
        value = table.get("dependencies", [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            message = f'dependencies = {value!r}: expected a list of texts, such as ["httpx>=0.27"]'
            raise self.wrong(self.key_line("dependencies"), message)
        return tuple(value)

    def wrong(self, line: int, message: str) -> UsageError:
        return UsageError(f"{self.path}:{line}: {message}")

    def line(self, offset: int) -> int:
        return self.source.count("\n", 0, offset) + 1

    def key_line(self, key: str) -> int:
        match = re.search(rf"(?m)^# *[\"']?{re.escape(key)}[\"']?\s*=", self.source)
        return self.line(match.start()) if match else 1
