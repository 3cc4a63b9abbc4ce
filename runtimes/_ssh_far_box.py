# ruff: noqa: PTH118
"""What runs on the far machine for one box: it starts commands when told to, moves their streams, and ends them.

It inherits every orphan of the box (it is their subreaper). It ends with the far program that started it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import termios
from typing import Any

from hotswap.runtimes._ssh_far_ending import Ending, set_mark
from hotswap.runtimes._ssh_far_files import DiskFault, Files, Refused
from hotswap.runtimes._ssh_far_loop import READ, WRITE, Loop
from hotswap.runtimes._ssh_frames import (
    CHUNK,
    EXIT,
    GOT,
    PUT,
    REPLY,
    REQUEST,
    STDERR,
    STDIN,
    STDOUT,
    TAKEN,
    WINDOW,
    Frame,
    Frames,
    said,
)

NOT_EXECUTABLE, NOT_FOUND = 126, 127
RESET = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGCHLD,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGQUIT,
)
LONGEST_NAP_S = 0.05


class Started:
    """One process, and our ends of its pipes."""

    def __init__(self, number: int, pid: int, mark: int) -> None:
        self.number, self.pid, self.mark = number, pid, mark
        self.outputs: dict[bytes, int] = {}
        self.room = {STDOUT: WINDOW, STDERR: WINDOW}
        self.stdin: int | None = None
        self.pending = bytearray()
        self.closing = False
        self.over = False


class Supervisor:
    """The commands of one box, and the line to the far program."""

    def __init__(self, control: int, about: dict[str, Any]) -> None:
        self._control, self._box, self._mark = control, about["box"], about["mark"]
        self._last = about["last"]
        self._files = Files(about["workdir"], about["folders"])
        self._loop, self._frames = Loop(), Frames()
        self._by_number: dict[int, Started] = {}
        self._by_pid: dict[int, Started] = {}
        self._endings: dict[int, Ending] = {}
        self._put: dict[int, bytearray] = {}
        self._nap_s = 0.001
        self._marks = self._mark

    def serve(self) -> None:
        """Do what the eval says until it hangs up."""
        wake_from, wake = os.pipe()
        for descriptor in (wake_from, wake):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake)
        self._loop.watch(wake_from, READ, lambda: self._woken(wake_from))
        self._loop.watch(self._control, READ, self._hear)
        while True:
            self._loop.turn(self._timeout_ms())
            self._go_on()

    def _timeout_ms(self) -> float | None:
        if not self._endings:
            return None
        self._nap_s = min(2 * self._nap_s, LONGEST_NAP_S)
        return max(1.0, self._nap_s * 1000)

    def _hear(self) -> None:
        try:
            data = os.read(self._control, 1 << 18)
        except OSError:
            data = b""
        if not data:
            os._exit(0)
        for frame in self._frames.feed(data):
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        if frame.kind == REQUEST:
            asked = frame.json
            getattr(self, f"do_{asked['do']}")(frame.number, asked)
        elif frame.kind == PUT:
            self._put.setdefault(frame.number, bytearray()).extend(frame.payload)
        else:
            started = self._by_number.get(frame.number)
            if started is not None and frame.kind == STDIN:
                self._feed(started, frame.payload)
            elif started is not None and frame.kind == TAKEN:
                kind, count = frame.payload[:1], int(frame.payload[1:])
                started.room[kind] += count
                self._attend(started, kind)

    # what is asked for

    def do_start(self, number: int, asked: dict[str, Any]) -> None:
        """Start a process."""
        self._marks += 1
        theirs, ours = [], []
        try:
            for outwards in (False, False, *([True] if asked["stdin"] else [])):
                reading, writing = os.pipe()
                theirs.append(reading if outwards else writing)
                ours.append(writing if outwards else reading)
            pid = os.fork()
        except OSError as error:
            for descriptor in (*theirs, *ours):
                os.close(descriptor)
            self._reply(number, fault=["no_room", f"could not start {asked['argv'][:1]}: {error.strerror}"])
            return
        if pid == 0:
            become(asked, self._marks, theirs)
        for descriptor in theirs:
            os.close(descriptor)
        self._attended(Started(number, pid, self._marks), ours)
        self._reply(number)

    def do_end(self, number: int, asked: dict[str, Any]) -> None:
        """End what came of one start, or of all."""
        started = self._by_number.get(asked.get("process", 0))
        self._reap()
        if childless() or (started is None and "process" in asked):
            self._reply(number, left=0)
            return
        first, last = (self._mark + 1, self._last) if started is None else (started.mark, started.mark)
        self._nap_s = 0.001
        self._endings[number] = Ending(first, last)

    def do_put(self, number: int, asked: dict[str, Any]) -> None:
        """Write files, whose content came before."""
        content, at = bytes(self._put.pop(number, b"")), 0
        try:
            for path, mode, size in asked["files"]:
                self._files.write(path, mode, content[at : at + size])
                at += size
            self._reply(number)
        except (Refused, DiskFault) as error:
            self._reply_refused(number, error)

    def do_get(self, number: int, asked: dict[str, Any]) -> None:
        """Read files; their content goes before the answer."""
        found: list[Any] = []
        try:
            for path in asked["paths"]:
                file = self._files.read(path)
                if file is not None:
                    mode, content = file
                    found.append([path, mode, len(content)])
                    for at in range(0, len(content), CHUNK):
                        self._say(Frame(GOT, self._box, number, content[at : at + CHUNK]).packed())
            self._reply(number, files=found)
        except (Refused, DiskFault) as error:
            self._reply_refused(number, error)

    def _reply_refused(self, number: int, error: Exception) -> None:
        if isinstance(error, Refused):
            self._reply(number, path=str(error))
        else:
            self._reply(number, fault=["disk", str(error)])

    # streams

    def _attended(self, started: Started, ours: list[int]) -> None:
        self._by_number[started.number] = self._by_pid[started.pid] = started
        for descriptor in ours:
            os.set_blocking(descriptor, False)
        started.outputs = {STDOUT: ours[0], STDERR: ours[1]}
        for kind in (STDOUT, STDERR):
            self._attend(started, kind)
        started.stdin = ours[2] if len(ours) > 2 else None

    def _attend(self, started: Started, kind: bytes) -> None:
        """Read an output as long as there is room for it on the way; once its process has ended, always."""
        descriptor = started.outputs.get(kind)
        if descriptor is None:
            return
        if started.room[kind] > 0 or started.over:
            self._loop.watch(descriptor, READ, lambda: self._pass_on(started, kind))
        else:
            self._loop.drop(descriptor)

    def _pass_on(self, started: Started, kind: bytes) -> None:
        self._readable(started, kind)

    def _readable(self, started: Started, kind: bytes, most: int = CHUNK) -> int:
        """Pass on what was written. What a child writes after its parent's end is thrown away."""
        descriptor = started.outputs[kind]
        try:
            data = os.read(descriptor, most)
        except BlockingIOError:
            return 0
        if not data:
            self._loop.drop(descriptor)
            os.close(descriptor)
            del started.outputs[kind]
            self._forget(started)
        elif not started.over:
            started.room[kind] -= len(data)
            self._say(Frame(kind, self._box, started.number, data).packed())
            self._attend(started, kind)
        return len(data)

    def _feed(self, started: Started, data: bytes) -> None:
        started.closing = started.closing or not data
        started.pending += data
        self._push(started)

    def _push(self, started: Started) -> None:
        taken = 0
        try:
            while started.stdin is not None and started.pending:
                count = os.write(started.stdin, bytes(started.pending[:CHUNK]))
                del started.pending[:count]
                taken += count
        except BlockingIOError:
            self._loop.watch(int(started.stdin or 0), WRITE, lambda: self._push(started))
        except OSError:
            self._close_stdin(started)
        else:
            if started.stdin is not None:
                self._loop.drop(started.stdin)
            if started.closing:
                self._close_stdin(started)
        if started.stdin is None:
            taken += len(started.pending)
            started.pending.clear()
        if taken:
            self._say(Frame(TAKEN, self._box, started.number, b"%d" % taken).packed())

    def _close_stdin(self, started: Started) -> None:
        if started.stdin is not None:
            self._loop.drop(started.stdin)
            os.close(started.stdin)
            started.stdin = None

    # ends

    def _woken(self, descriptor: int) -> None:
        try:
            os.read(descriptor, 4096)
        except BlockingIOError:
            return

    def _go_on(self) -> None:
        self._reap()
        for number, ending in list(self._endings.items()):
            left = ending.step()
            self._reap()  # those that have just died are told of before their end
            if left is not None:
                del self._endings[number]
                self._reply(number, left=left)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            started = self._by_pid.pop(pid, None)
            if started is not None:
                self._settle(started, os.waitstatus_to_exitcode(status))

    def _settle(self, started: Started, code: int) -> None:
        """It has ended: pass on what it wrote, and no more. A child of it may still hold the other end."""
        for kind in list(started.outputs):
            left = waiting(started.outputs[kind])
            while left > 0 and kind in started.outputs:
                count = self._readable(started, kind, left)
                left -= count
                if not count:
                    break
        self._close_stdin(started)
        started.over = True
        self._say(said(EXIT, self._box, started.number, code))
        for kind in list(started.outputs):
            self._attend(started, kind)
        self._forget(started)

    def _forget(self, started: Started) -> None:
        """Know no more of a process that is over and whose outputs nobody holds."""
        if started.over and not started.outputs:
            self._by_number.pop(started.number, None)

    def _reply(self, number: int, **value: Any) -> None:
        self._say(said(REPLY, self._box, number, value))

    def _say(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._control, left) :]
        except OSError:
            os._exit(0)  # the far program is gone


def childless() -> bool:
    """Whether nothing lives in the box: what does is a child of this process, or came of one."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def waiting(descriptor: int) -> int:
    """Count the bytes that a pipe holds."""
    counted: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0"))[0]
    return counted


def become(asked: dict[str, Any], mark: int, streams: list[int]) -> None:
    """Turn this new process into the command. Never returns."""
    code = NOT_EXECUTABLE
    try:
        os.dup2(streams[2] if len(streams) > 2 else os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(streams[0], 1)
        os.dup2(streams[1], 2)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in RESET:
            signal.signal(number, signal.SIG_DFL)
        set_mark(mark)
        argv = [_bytes(word) for word in asked["argv"]]
        env = {_bytes(name): _bytes(value) for name, value in asked["env"].items()}
        code = execute(argv, env, _bytes(asked["cwd"]))
    finally:
        os._exit(code)


def execute(argv: list[bytes], env: dict[bytes, bytes], cwd: bytes) -> int:
    """Become the program; get the code of a shell for one that cannot be executed, which is said on stderr."""
    try:
        os.chdir(cwd)
    except (OSError, ValueError) as error:
        return complain(b"cannot enter the folder " + cwd, error, NOT_EXECUTABLE)
    if not argv:
        return complain(b"", ValueError("no program was named"), NOT_EXECUTABLE)
    reason = OSError(errno.ENOENT, "not found")
    for path in candidates(argv[0], env.get(b"PATH", b"/usr/bin:/bin")):
        try:
            os.execve(path, argv, env)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                reason = error
            elif b"/" in argv[0] and os.path.lexists(path):
                reason.strerror = "its interpreter is not there"
        except ValueError as error:
            return complain(argv[0], error, NOT_EXECUTABLE)
    return complain(argv[0], reason, NOT_FOUND if reason.errno == errno.ENOENT else NOT_EXECUTABLE)


def candidates(program: bytes, path: bytes) -> list[bytes]:
    """Get the paths that a program's name may stand for."""
    if b"/" in program:
        return [program]
    return [os.path.join(folder or b".", program) for folder in path.split(b":")] if program else []


def complain(what: bytes, error: Exception, code: int) -> int:
    """Say why a program cannot be executed; get the code."""
    why = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
    os.write(2, what + b": " + why.encode(errors="backslashreplace") + b"\n")
    return code


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
