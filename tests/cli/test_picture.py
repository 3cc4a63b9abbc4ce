"""The live view in a terminal whose width changes."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import termios
import threading
from pathlib import Path

from _kit.evals import PROGRAM, environment
from _kit.provider import Provider, replace, say
from _kit.terminal import Terminal

from hotswap.cli._picture import wraps

WIDE, NARROW = 100, 24


def test_a_resized_terminal_shows_one_bar_and_at_the_end_none(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(json.dumps({"prompt": "Well?", "answer": "42"}))
    held = threading.Event()
    with Provider(lambda request: replace(say("42"), hold=held)) as provider:
        words = ["jsonl", "--taskset.path", "q.jsonl", "-m", f"scripted@{provider.url}"]
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(tmp_path)
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDE, 0, 0))
            os.execve(PROGRAM, [str(PROGRAM), *words], environment(tmp_path, TERM="xterm-256color"))
        screen = Terminal(WIDE)
        try:
            shown(terminal, screen, 3)
            for width in (NARROW, WIDE, NARROW + 9):
                resize(pid, terminal, screen, width)
                shown(terminal, screen, 3)
                assert sum("\N{BOX DRAWINGS HEAVY HORIZONTAL}" in row for row in screen.rows) == 1, (
                    screen.rows
                )
                assert sum("0 errors" in row for row in screen.rows) == 1, screen.rows
        finally:
            held.set()
        shown(terminal, screen, None)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not any("0/1" in row or "running" in row for row in screen.rows)
    assert any(row.startswith("jsonl: model scripted@") for row in screen.rows)


def resize(pid: int, terminal: int, screen: Terminal, width: int) -> None:
    """Give the terminal another width between two drawings."""
    os.kill(pid, signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    while select.select([terminal], [], [], 0)[0]:
        screen.feed(os.read(terminal, 65536))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    screen.resize(width)
    os.kill(pid, signal.SIGCONT)


def shown(terminal: int, screen: Terminal, times: int | None) -> None:
    """Show what is written until the bar was drawn so many times, or to the program's end."""
    seen = b""
    while times is None or seen.count(b"0/1") < times:
        assert select.select([terminal], [], [], 60)[0], "nothing was written"
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            return
        seen += data
        screen.feed(data)


def test_only_terminals_that_wrap_again_are_taken_for_such() -> None:
    assert wraps({"TERM": "xterm-256color"})
    assert not wraps({"TERM": "xterm-256color", "XTERM_VERSION": "XTerm(390)"})
    assert not wraps({"TERM": "linux"})
