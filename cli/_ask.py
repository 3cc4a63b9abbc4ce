"""A question to the person at the terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


async def ask(question: str, console: Console) -> str:
    """Get the line that is typed; empty where the input has ended. No thread waits for it, so that it can be cancelled.

    Standard input is a terminal, which has something to read when a line is complete.
    """
    console.print(question, end="")
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    typed: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        loop.remove_reader(terminal)
        typed.set_result(_line(terminal))

    loop.add_reader(terminal, read)
    try:
        return await typed
    finally:
        loop.remove_reader(terminal)


def _line(terminal: int) -> str:
    try:
        return os.read(terminal, 4096).decode(errors="replace")
    except OSError:  # the terminal was closed
        return ""
