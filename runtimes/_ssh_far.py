# ruff: noqa: PTH102, PTH110, PTH111, PTH112, PTH123, PTH207
"""The program on the far machine: one for each connection. It makes boxes, and removes them when the connection ends.

It is two processes. The first only waits for the second, in whatever way that ends, and then ends all that came of its
boxes and removes their folders. The second hears the eval on standard input and hands frames on to the boxes' own
supervisors and back. What a killed pair leaves is told by the mark in each folder, and removed by `clean`.

Standard library only, for Python 3.10 and later: it is sent over the connection and not installed.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import platform
import pwd
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from hotswap.processes.owner import lives, mark
from hotswap.processes.warden import MARK_BASE, end_marked, remove_folder
from hotswap.runtimes._ssh_far_box import Supervisor
from hotswap.runtimes._ssh_far_bwrap import become as become_closed
from hotswap.runtimes._ssh_far_bwrap import place, trial
from hotswap.runtimes._ssh_far_door import Door
from hotswap.runtimes._ssh_far_ending import set_mark
from hotswap.runtimes._ssh_far_loop import READ, Loop, Outbox
from hotswap.runtimes._ssh_frames import GREETING, REPLY, REQUEST, Frame, Frames, said
from hotswap.runtimes._ssh_trees import is_whole

PR_SET_CHILD_SUBREAPER = 36
PREFIX, OWNER, KEPT = "hotswap.ssh-", ".owner", ".kept"
"""What the folder of a box is called; the file in it that says whose it is; the one that says that it was kept."""
PASSED = (
    "LANG",
    "LANGUAGE",
    "TZ",
    "PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
)
"""Variables that a box has from the far machine, beside LC_*."""
MARKS_OF_ALL, MARKS_OF_BOX = 1 << 33, 1 << 16
REMOVAL_S, DAY_S = 60.0, 86_400
BACKLOG = 1 << 22
"""Bytes that wait for a box before no more is heard."""
IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


class FarBox:
    """A box, as the far program knows it."""

    def __init__(self, folder: str, marks: tuple[int, int]) -> None:
        self.folder, self.marks = folder, marks
        self.frames = Frames()
        self.door: Door | None = None
        self.answer = 0
        """The number of the request for this box, as long as it is not up."""
        self.port = 0
        """That of this machine's loopback that leads to the proxy."""
        self.line: socket.socket | None = None
        self.outbox: Outbox | None = None


class Far:
    """What hears the eval."""

    def __init__(self, root: str, owner: str, first_mark: int) -> None:
        self._root, self._owner, self._first_mark = root, owner, first_mark
        self._boxes: dict[int, FarBox] = {}
        self._loop, self._frames = Loop(), Frames()
        self._count = 0
        self._hears = True

    def serve(self) -> None:
        """Do what the eval says until it hangs up."""
        self._loop.watch(0, READ, self._hear)
        greeting = json.dumps(_about(self._root)).encode("ascii")
        self._say(b"\n" + GREETING + greeting + b"\n")
        while True:
            self._loop.turn()
            reap()
            backlog = any(len(box.outbox or b"") > BACKLOG for box in self._boxes.values())
            if backlog and self._hears:
                self._loop.drop(0)
            elif not backlog and not self._hears:
                self._loop.watch(0, READ, self._hear)
            self._hears = not backlog

    def _hear(self) -> None:
        data = os.read(0, 1 << 18)
        if not data:
            os._exit(0)
        for frame in self._frames.feed(data):
            if frame.box == 0:
                asked = frame.json
                getattr(self, f"do_{asked['do']}")(frame.number, asked)
            else:
                self._hand_on(frame)

    def _hand_on(self, frame: Frame) -> None:
        box = self._boxes.get(frame.box)
        if box is not None and box.outbox is not None:
            box.outbox.add(frame.packed())
        elif frame.kind == REQUEST:
            self._say(said(REPLY, frame.box, frame.number, {"fault": ["box_died", "the box is no more"]}))

    # what is asked for

    def do_open(self, number: int, asked: dict[str, Any]) -> None:
        """Make a box: its folders, and its supervisor."""
        first = self._first_mark + (number % (MARKS_OF_ALL // MARKS_OF_BOX)) * MARKS_OF_BOX
        folder = f"{self._root}/{PREFIX}{os.urandom(6).hex()}"
        try:
            os.mkdir(folder, 0o700)
            with open(f"{folder}/{OWNER}", "w", encoding="ascii") as file:
                file.write(f"{self._owner}\n{first} {first + MARKS_OF_BOX - 1}\n")
            self._boxes[number] = box = FarBox(folder, (first, first + MARKS_OF_BOX - 1))
            if asked["inside"] == "bwrap":
                box.answer, box.port = number, asked["port"]
                made = place(folder, asked)
                self._begin(number, box, lambda line, about: become_closed(folder, made, line, about))
                return
            names = [f"{folder}/{name}" for name in ("workdir", "home", "tmp")]
            for name in names:
                os.mkdir(name)
            given = {"workdir": names[0], "folders": names}
            self._begin(number, box, lambda line, about: Supervisor(line, {**about, **given}).serve())
        except OSError as error:
            self._reply(number, fault=["box", f"cannot make a box in {self._root}: {error.strerror}"])
        else:
            self._reply(number, folder=folder)

    def do_close(self, number: int, asked: dict[str, Any]) -> None:
        """End a box and all that is in it, and remove its folder unless it is to be kept."""
        box = self._boxes.pop(asked["box"], None)
        if box is None:
            self._reply(number, removed=True)
            return
        self._hang_up(box)
        if asked["keep"]:
            open(f"{box.folder}/{KEPT}", "w").close()

        def finish() -> dict[str, Any]:
            end_marked(*box.marks)
            return {"removed": asked["keep"] or remove_folder(box.folder, REMOVAL_S)}

        self._aside(number, finish)

    def do_have(self, number: int, asked: dict[str, Any]) -> None:
        """Say whether a folder that was carried is there, whole."""
        self._aside(number, lambda: {"whole": is_whole(asked["folder"], asked["key"])})

    def do_clean(self, number: int, asked: dict[str, Any]) -> None:  # noqa: ARG002
        """End and remove what connections that are no more left here."""
        self._aside(number, lambda: clean(self._root))

    def do_trial(self, number: int, asked: dict[str, Any]) -> None:  # noqa: ARG002
        """Say what is in the way of closed boxes here."""
        self._aside(number, trial)

    def _begin(self, number: int, box: FarBox, become: Callable[[int, dict[str, Any]], None]) -> None:
        """Start the supervisor of a box, from a copy of this process."""
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            for descriptor in (ours, *(each.line for each in self._boxes.values() if each.line)):
                descriptor.close()
            try:
                apart()
                set_mark(box.marks[0])
                adopt_orphans()
                become(theirs.fileno(), {"box": number, "mark": box.marks[0], "last": box.marks[1]})
            finally:
                os._exit(1)
        theirs.close()
        box.line = ours
        box.outbox = Outbox(self._loop, ours.fileno(), lambda: self._from_box(number, box))

    def _from_box(self, number: int, box: FarBox) -> None:
        """Hand on what a box says, in whole frames. One that is closed may lie: it speaks for itself alone."""
        if box.answer:
            self._arrived(box)
            return
        try:
            data = os.read(box.line.fileno(), 1 << 18) if box.line else b""
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._hang_up(box)
            self._say(said(REPLY, number, 0, {"fault": ["box_died", "the box ended while it was in use"]}))
        for frame in box.frames.feed(data):
            if frame.box == number:
                self._say(frame.packed())

    def _arrived(self, box: FarBox) -> None:
        """Take the socket that a closed box hands out: it is up."""
        number, box.answer = box.answer, 0
        assert box.line is not None
        heard, descriptors, _, _ = socket.recv_fds(box.line, 1, 1)
        if not heard:
            self._hang_up(box)
            with open(f"{box.folder}/said", encoding="utf-8", errors="replace") as file:
                last = (file.read().strip().splitlines() or ["it said nothing"])[-1]
            self._reply(number, fault=["bwrap", f"bubblewrap could not make a box: {last}"])
            return
        if descriptors:
            box.door = Door(self._loop, socket.socket(fileno=descriptors[0]), box.port)
        self._reply(number, folder=box.folder, port=box.door.inside if box.door else box.port)

    def _hang_up(self, box: FarBox) -> None:
        if box.door is not None:
            box.door.close()
            box.door = None
        if box.line is not None:
            self._loop.drop(box.line.fileno())
            box.line.close()
            box.line = box.outbox = None

    def _aside(self, number: int, act: Callable[[], dict[str, Any]]) -> None:
        """Do something that takes time in a process of its own, and answer with what comes of it."""
        reading, writing = os.pipe()
        if os.fork() == 0:
            apart()
            try:
                os.write(writing, json.dumps(act()).encode("ascii"))
            finally:
                os._exit(0)
        os.close(writing)
        said_by_it = bytearray()

        def hear() -> None:
            data = os.read(reading, 1 << 16)
            said_by_it.extend(data)
            if not data:
                self._loop.drop(reading)
                os.close(reading)
                self._say(Frame(REPLY, 0, number, bytes(said_by_it) or b"{}").packed())

        self._loop.watch(reading, READ, hear)

    def _reply(self, number: int, **value: Any) -> None:
        self._say(said(REPLY, 0, number, value))

    def _say(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(1, left) :]
        except OSError:
            os._exit(0)  # the connection is gone


def apart() -> None:
    """Let go of the connection, in a copy of this process: it must be able to end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def reap() -> None:
    """Let all children go that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return


def adopt_orphans() -> None:
    """Become the parent of what loses its own."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def clean(root: str) -> dict[str, Any]:
    """End and remove boxes whose far program is gone. Only ours, only those that are known to be dead."""
    removed: list[str] = []
    left: list[str] = []
    for folder in sorted(glob.glob(f"{glob.escape(root)}/{PREFIX}*")):
        try:
            if os.lstat(folder).st_uid != os.getuid():
                continue
            with open(f"{folder}/{OWNER}", encoding="ascii") as file:
                owner, marks = file.read().split("\n")[:2]
            alive = lives(owner)
            if alive or (alive is None and time.time() - os.lstat(folder).st_mtime < DAY_S):
                continue  # of another boot, or of another machine that shares the folder
            first, last = map(int, marks.split())
        except (OSError, ValueError):
            continue
        end_marked(first, last)
        (removed if remove_folder(folder, REMOVAL_S) else left).append(folder)
    return {"removed": removed, "left": left}


def _about(root: str) -> dict[str, Any]:
    """Say what the eval must know of this machine."""
    passed = {name: value for name, value in os.environ.items() if name in PASSED or name.startswith("LC_")}
    home = os.path.expanduser("~")
    cache = os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache"
    return {
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "root": root,
        "writable": os.path.isdir(root) and os.access(root, os.W_OK | os.X_OK),
        "cache": f"{cache}/hotswap/carried",
        "env": passed,
        "machine": platform.machine(),
        "zstd": shutil.which("zstd") is not None,
    }


def main(asked: dict[str, Any]) -> None:
    """Serve one connection, and leave nothing behind."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    root = os.path.realpath(os.path.expanduser(asked["root"] or "/var/tmp"))
    first_mark = MARK_BASE | int.from_bytes(os.urandom(3), "big") << 33
    owner = mark()
    adopt_orphans()
    pid = os.fork()
    if pid == 0:
        try:
            Far(root, owner, first_mark).serve()
        finally:
            sys.stderr.flush()
            os._exit(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # the eval hears at once that the second has ended; the rest takes its time
        os.dup2(nothing, descriptor)
    os.waitpid(pid, 0)
    sweep(root, owner, (first_mark, first_mark + MARKS_OF_ALL - 1))


def sweep(root: str, owner: str, marks: tuple[int, int]) -> None:
    """End all that came of the boxes of one owner, and remove their folders, but for those that were kept."""
    end_marked(*marks)
    reap()
    for folder in glob.glob(f"{glob.escape(root)}/{PREFIX}*"):
        try:
            with open(f"{folder}/{OWNER}", encoding="ascii") as file:
                ours = file.readline().strip() == owner
        except OSError:
            continue
        if ours and not os.path.exists(f"{folder}/{KEPT}"):
            remove_folder(folder, REMOVAL_S)
