"""A small terminal that wraps its lines anew when its width changes, as most do.

screen = Terminal(80)
screen.feed(b"what a program wrote")
screen.resize(20)
assert screen.rows == ["what a program wrote"]
"""

from __future__ import annotations

import re

TOKEN = re.compile(r"\x1b\[(?P<given>[?0-9;]*)(?P<control>[A-Za-z])|(?P<char>.)", re.DOTALL)


class Terminal:
    """Knows what the command's live view uses: text, newlines, moving up, and erasing a row."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._cells: list[list[str]] = [[]]
        """Characters by row."""
        self._joined: set[int] = set()
        """Rows that go on with the row above."""
        self._row = self._column = 0

    @property
    def rows(self) -> list[str]:
        """What is on the screen, from the top; rows without a character are left out."""
        return [text for row in self._cells if (text := "".join(row).rstrip())]

    def feed(self, data: bytes) -> None:
        """Take what a program wrote."""
        for token in TOKEN.finditer(data.decode()):
            if token["control"] == "A":
                self._row = max(0, self._row - int(token["given"] or 1))
            elif token["control"] == "K":
                self._cells[self._row] = []
                self._joined.discard(self._row + 1)  # an erased row no longer goes on in the next one
            elif token["char"] == "\r":
                self._column = 0
            elif token["char"] == "\n":
                self._down()
            elif token["char"]:
                self._put(token["char"])

    def resize(self, width: int) -> None:
        """Wrap every line anew; the cursor stays at the end of the last one."""
        lines: list[list[str]] = []
        for number, row in enumerate(self._cells[: self._row + 1]):  # below it there is nothing
            if number in self._joined:
                lines[-1] += row
            else:
                lines.append([*row])
        self.width, self._cells, self._joined = width, [], set()
        for line in lines:
            for start in range(0, max(1, len(line)), width):
                if start:
                    self._joined.add(len(self._cells))
                self._cells.append(line[start : start + width])
        self._row, self._column = len(self._cells) - 1, len(self._cells[-1])

    def _put(self, char: str) -> None:
        if self._column == self.width:
            self._down()
            self._column = 0
            self._joined.add(self._row)
        row = self._cells[self._row]
        row += " " * (self._column + 1 - len(row))
        row[self._column] = char
        self._column += 1

    def _down(self) -> None:
        self._row += 1
        self._joined.discard(self._row)
        if self._row == len(self._cells):
            self._cells.append([])
