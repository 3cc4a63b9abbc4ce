"""Lines at the bottom of a terminal that are drawn anew in their place, below whatever else is printed.

A terminal that is made narrower wraps the lines that stand on it, so that they take more rows than were drawn: how
many must be erased is told from their lengths and the width that the terminal has now.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.control import Control
from rich.segment import ControlType, Segment


class Picture(RenderHook):
    """What `look` shows at a width, on the screen for as long as the block runs; a context manager."""

    def __init__(self, look: Callable[[int], RenderableType], console: Console) -> None:
        self._look = look
        self._console = console
        self._drawn: list[int] = []
        """The lengths of the lines that are on the screen."""
        self._wraps = wraps(os.environ)

    def __enter__(self) -> Picture:
        self._console.show_cursor(False)
        self._console.push_render_hook(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._console.pop_render_hook()
        self._console.print(self._erased(), end="")
        self._console.show_cursor(True)

    def draw(self) -> None:
        """Draw it as it looks now."""
        self._console.print(Control())

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Put what is printed in its place."""
        return [self._erased(), *renderables, self]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, console.width - 1)  # a full row may have wrapped, or not
        lines = console.render_lines(self._look(width), options.update(width=width), pad=False)
        self._drawn = [Segment.get_line_length(line) for line in lines]
        for number, line in enumerate(lines):
            yield from line if number == 0 else (Segment.line(), *line)

    def _erased(self) -> Control:
        """Erase the rows from the last one up; the cursor is at the end of the last."""
        rows, self._drawn = self._rows(), []
        line: tuple[ControlType, int] = (ControlType.ERASE_IN_LINE, 2)
        up: tuple[ControlType, int] = (ControlType.CURSOR_UP, 1)
        return Control(ControlType.CARRIAGE_RETURN, line, *(up, line) * (rows - 1)) if rows else Control()

    def _rows(self) -> int:
        width = self._console.width if self._wraps else max(self._drawn, default=1)
        return sum(max(1, -(-length // max(1, width))) for length in self._drawn)


def wraps(environment: Mapping[str, str]) -> bool:
    """Whether a terminal that is made narrower wraps its lines. Most do; xterm and the Linux console cut them off."""
    return "XTERM_VERSION" not in environment and environment.get("TERM") != "linux"
