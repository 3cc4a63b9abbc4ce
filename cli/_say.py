"""How the command speaks: results to stdout, progress to stderr, plain lines where there is no terminal.

It speaks of itself by the name that it was called by.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def program(argv0: str | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Get what the user has to type to call us again: `uv run eval` or `hotswap`, and never bare `eval`.

    In a bare shell, `eval` is the shell's own. uv tells the programs that it runs where it is, in UV.
    """
    name = Path(sys.argv[0] if argv0 is None else argv0).stem
    environment = os.environ if environment is None else environment
    if name not in ("eval", "hotswap"):
        name = "eval" if environment.get("UV") else "hotswap"
    if environment.get("UV"):
        return f"uv run {name}"
    return "hotswap"


def called() -> str:
    """Get the word that was typed, with which each problem's line begins."""
    return "eval" if Path(sys.argv[0]).stem == "eval" else "hotswap"


def result_console() -> Console:
    """Get the console for results: stdout."""
    return console(sys.stdout)


def progress_console() -> Console:
    """Get the console for progress and problems: stderr."""
    return console(sys.stderr)


def console(file: TextIO | None) -> Console:
    """Get a console that writes what it is given: no markup, no guessed highlights.

    Colours and control codes are for terminals alone, whatever FORCE_COLOR and its like say, and not for NO_COLOR or
    TERM=dumb. A character that the encoding does not have becomes `?`, and boxes are drawn in ASCII where it is not
    UTF-8.
    """
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            """Go on in silence where the reader has left, as of `... | head`: that is no failure of what is told."""
            self.quiet = True
            if file is not None:
                discard(file)

    reconfigure = getattr(file, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    terminal = file is not None and file.isatty()  # it is null where the stream was closed
    return Plain(file=file, force_terminal=terminal, markup=False, emoji=False, highlight=False)


def tell(text: str) -> None:
    """Print a result. Where the reader has left, as `... | head` does, that is no failure of what is told."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        discard(sys.stdout)


def discard(file: TextIO) -> None:
    """Let go what was not written, so that Python does not try again, and complain, at its exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)


def visible(text: str) -> str:
    """Get foreign text that is safe to print: characters that could steer a terminal are written out."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text.replace("\r\n", "\n"))


def count(number: int, noun: str) -> str:
    """Get `1 rollout`, `2 rollouts`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
