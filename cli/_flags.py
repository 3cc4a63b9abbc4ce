"""Read a command line: tasksets, settings as flags, and what to do with them.

A setting's flag is its dotted name (`--limits.turns 5`, `--harness.loop.tools bash`), so that only the short
forms are listed here. Whether a setting exists, and what its value means, is for `hotswap.settings` to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from hotswap.errors import UsageError
from hotswap.settings.layers import Given, undotted

SHORT = {"-m": "model", "-H": "harness", "-r": "runtime", "-n": "tasks", "-k": "attempts", "-o": "output"}
SWITCHES = ("shuffle",)
"""Settings that are true where the flag stands alone; `--no-shuffle` is false."""
LONG = ("dry-run", "file", "help", "json", "pilot", "shuffle", "yes")
"""Options that are no settings with a value; suggested where one is nearly written."""
WORDS = ("true", "false", "yes", "no", "on", "off")


@dataclass
class Line:
    """What a command line asks for."""

    given: list[Given] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    help: bool = False
    dry_run: bool = False
    json: bool = False
    pilot: int | None = None
    yes: bool = False


ACTIONS = {
    "-f, --file FILE": "Read settings from a TOML file; may be repeated, the later file wins.",
    "--dry-run": "Show each setting and its origin, the cells, the number of rollouts; call no model.",
    "--pilot N": "Run N tasks, project time and cost, and ask before the rest; without a terminal, stop.",
    "--yes": "Answer yes to what would be asked.",
    "--json": "Print the result as JSON, alone on stdout.",
    "-h, --help": "Show this; beside a taskset or -H, its settings too.",
}


def parse(arguments: Sequence[str]) -> Line:
    """Read the words of a command line. Raises UsageError for one that is no option, or lacks its value."""
    line = Line()
    words = _Words(arguments)
    for word in words:
        if word == "--":
            line.given += [_taskset(rest) for rest in words]
        elif word.startswith("--"):
            _long(word, words, line)
        elif word.startswith("-") and len(word) > 1:
            _short(word, words, line)
        else:
            line.given.append(_taskset(word))
    return line


class _Words(Iterator[str]):
    """The words that are left."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._at = 0

    def __next__(self) -> str:
        if self._at == len(self._words):
            raise StopIteration
        self._at += 1
        return self._words[self._at - 1]

    @property
    def next(self) -> str | None:
        return self._words[self._at] if self._at < len(self._words) else None

    def value_of(self, option: str, what: str) -> str:
        """Take the next word as an option's value, whatever it looks like."""
        if self.next is None:
            raise UsageError(f"{option} needs a value: {option} {what}")
        return next(self)


def _taskset(word: str) -> Given:
    return Given(("taskset",), word, "command line")


def _short(word: str, words: _Words, line: Line) -> None:
    option, rest = word[:2], word[2:].removeprefix("=")
    name = word[1:].partition("=")[0]
    if name in ("taskset", *SHORT.values(), *LONG):
        raise UsageError(f"no option -{name}. Did you mean --{name}?")
    if word == "-h":
        line.help = True
    elif option == "-f":
        line.files.append(Path(rest or words.value_of("-f", "FILE")))
    elif option in SHORT:
        value = rest or words.value_of(option, SHORT[option].upper())
        line.given.append(Given((SHORT[option],), value, f"flag {option}"))
    else:
        raise UsageError(
            f"no option {word!r}. Short ones: {', '.join((*SHORT, '-f', '-h'))}; others: --NAME VALUE"
        )


def _long(word: str, words: _Words, line: Line) -> None:
    name, equals, value = word[2:].partition("=")
    if name in ("help", "dry-run", "dry_run", "json", "yes"):
        if equals:
            raise UsageError(f"--{name} takes no value")
        setattr(line, name.replace("-", "_"), True)
    elif name == "file":
        line.files.append(Path(value if equals else words.value_of("--file", "FILE")))
    elif name == "pilot":
        line.pilot = _count(value if equals else words.value_of("--pilot", "N"))
    elif name.startswith("no-") and name[3:] in SWITCHES and not equals:
        line.given.append(Given((name[3:],), False, f"flag --{name}"))
    else:
        flag = f"flag --{name}"
        line.given.append(Given(undotted(name), value if equals else _value(name, words), flag))


def _value(name: str, words: _Words) -> str | bool:
    """Take a flag's value; one that is followed by none, or by another option, is a switch that is on."""
    following = words.next
    if name in SWITCHES:
        return next(words) if following in WORDS else True
    if following is None or following.startswith("--") or following in SHORT or following == "-f":
        if "." not in name:
            close = get_close_matches(name, LONG, n=1)
            meant = f". Did you mean --{close[0]}?" if close else f": --{name} VALUE"
            raise UsageError(f"--{name} needs a value{meant}")
        return True
    return next(words)


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"--pilot {text}: must be a number of tasks, at least 1")
    return int(text)
