# ruff: noqa: PTH118, PTH208
"""What runs inside a box of bubblewrap as its first process: it starts commands when told to, and ends them.

Run as a program of its own, `python -I -S`, with one socket to the eval (SOCK_SEQPACKET). The eval sends, with
descriptors beside:

    start TOKEN MARK    the order (a memfd with marshalled argv, environment, directory), stdout, stderr[, stdin];
                        code in the order and what it is given are executed in the new process before its program
    end TOKEN MARK      end what came of the start with that mark: TERM, after a grace KILL
    end TOKEN 0         end everything in the box

and hears `up`, `began TOKEN`, `refused TOKEN ERRNO`, `exit TOKEN STATUS`, `ended TOKEN LEFT`. As the first process of
a namespace it inherits every orphan, no process in the box can send it a signal, and its end is the end of them all.
What it knows of a start is its mark (a resource limit that nothing enforces, passed on over fork and exec) and descent.

Standard library only, of that only what is written in C: it must start in a few milliseconds.
"""

from __future__ import annotations

import _ctypes  # `ctypes` itself costs more than the rest of this program's start
import _signal  # type: ignore[import-not-found]
import _socket
import errno
import marshal
import os
import resource
import select
import sys
import time
from _collections_abc import Iterator  # `collections.abc` would load all of `collections`

PR_SET_DUMPABLE = 4
MARKED_LIMITS = ((10, b"Max file locks"), (resource.RLIMIT_RTTIME, b"Max realtime timeout"))
"""The limits that may carry a mark: their numbers, and their names in `/proc/PID/limits`."""
GRACE_S = 0.5
KILL_S = 20.0
"""After this long, what KILL has not ended is given up, and counted."""
MANY = 500
"""So many at once are not waited for: they may multiply."""
QUIET_LOOKS = 3
"""So many looks in a row must find nothing: one may miss a process that a child of its own is just replacing."""
LONGEST_NAP_S = 0.05
LOOKS = 50
MOST_DESCRIPTORS = 4
NOT_EXECUTABLE, NOT_FOUND = 126, 127
RESET = (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGCHLD)


class Ending:
    """Something that is to end."""

    def __init__(self, token: int, mark: int) -> None:
        self.token, self.mark = token, mark
        self.kill_at = time.monotonic() + GRACE_S
        self.give_up_at = self.kill_at + KILL_S
        self.quiet = 0
        ask(mark)

    def step(self) -> int | None:
        """Go on; get how many are left once it is over."""
        if self.mark == 0 and childless():
            return 0
        left = living(self.mark)
        now = time.monotonic()
        self.quiet = 0 if left else self.quiet + 1
        if (self.mark and self.quiet >= QUIET_LOOKS) or now > self.give_up_at:
            return len(left)
        if now > self.kill_at or len(left) > MANY:
            kill(self.mark)
        return None


class Supervisor:
    """The commands that run, and the line to the eval."""

    def __init__(self, control: int) -> None:
        self._control = _socket.socket(fileno=control)
        self._token_by_pid: dict[int, int] = {}
        self._endings: list[Ending] = []
        self._nap_s = 0.001
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        _signal.signal(_signal.SIGCHLD, lambda _number, _frame: None)
        _signal.set_wakeup_fd(wake)

    def serve(self) -> None:
        """Do what the eval says until it hangs up."""
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        self._say("up")
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(self._timeout_ms())]
            if self._wake in ready:
                drain(self._wake)
            self._reap()
            if self._control.fileno() in ready and not self._hear():
                return
            self._go_on()

    def _timeout_ms(self) -> float | None:
        if not self._endings:
            self._nap_s = 0.001
            return None
        self._nap_s = min(2 * self._nap_s, LONGEST_NAP_S)
        return self._nap_s * 1000

    def _hear(self) -> bool:
        """Take one message; False where there will be none any more."""
        said, beside, _, _ = self._control.recvmsg(
            4096, _socket.CMSG_SPACE(4 * MOST_DESCRIPTORS), _socket.MSG_CMSG_CLOEXEC
        )
        if not said:
            return False
        word, token, mark = said.split()
        if word == b"start":
            self._start(int(token), int(mark), list(descriptors(beside)))
        else:
            self._nap_s = 0.001
            self._endings.append(Ending(int(token), int(mark)))
        return True

    def _start(self, token: int, mark: int, given: list[int]) -> None:
        order, *streams = given
        try:
            pid = os.fork()
        except OSError as error:
            self._say(f"refused {token} {error.errno}")
        else:
            if pid == 0:
                become(order, mark, streams)
            self._token_by_pid[pid] = token
            self._say(f"began {token}")
        finally:
            for descriptor in given:
                os.close(descriptor)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            token = self._token_by_pid.pop(pid, None)
            if token is not None:
                self._say(f"exit {token} {os.waitstatus_to_exitcode(status)}")

    def _go_on(self) -> None:
        for ending in list(self._endings):
            left = ending.step()
            self._reap()  # those that have just died are told of before their end
            if left is not None:
                self._endings.remove(ending)
                self._say(f"ended {ending.token} {left}")

    def _say(self, text: str) -> None:
        try:
            self._control.send(text.encode())
        except OSError:
            os._exit(0)  # the eval is gone


def become(order: int, mark: int, streams: list[int]) -> None:
    """Turn this new process into the command. Never returns."""
    code = NOT_EXECUTABLE
    try:
        os.dup2(streams[2] if len(streams) > 2 else os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(streams[0], 1)
        os.dup2(streams[1], 2)
        os.setsid()
        _signal.set_wakeup_fd(-1)
        for number in RESET:
            _signal.signal(number, _signal.SIG_DFL)
        set_mark(mark)
        argv, environment, cwd, *first = marshal.loads(read_all(order))
        if first:
            exec(first[0], {"given": first[1]})
        code = execute(argv, environment, cwd)
    finally:
        os._exit(code)


def execute(argv: list[bytes], environment: dict[bytes, bytes], cwd: bytes) -> int:
    """Become the program; get the code of a shell for one that cannot be executed, which is said on stderr."""
    try:
        os.chdir(cwd)
    except OSError as error:
        return complain(b"cannot enter the folder " + cwd, reason_of(error), NOT_EXECUTABLE)
    program, reason = argv[0], None
    for path in candidates(program, environment):
        try:
            os.execve(path, argv, environment)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                reason = reason_of(error)
            elif b"/" in program and os.path.lexists(path):
                return complain(program, "its interpreter is not there", NOT_FOUND)
        except ValueError as error:
            return complain(program, str(error), NOT_EXECUTABLE)
    if reason is None:
        return complain(program, "not found", NOT_FOUND)
    return complain(program, reason, NOT_EXECUTABLE)


def candidates(program: bytes, environment: dict[bytes, bytes]) -> list[bytes]:
    """Get the paths that a program's name may stand for."""
    if b"/" in program:
        return [program]
    folders = environment.get(b"PATH", b"/usr/bin:/bin").split(b":")
    return [os.path.join(folder or b".", program) for folder in folders] if program else []


def complain(what: bytes, why: str, code: int) -> int:
    os.write(2, what + b": " + why.encode(errors="backslashreplace") + b"\n")
    return code


def reason_of(error: OSError) -> str:
    return error.strerror or str(error)


def set_mark(mark: int) -> None:
    """Carry a mark from here on, on the first limit that takes it."""
    for limit, _ in MARKED_LIMITS:
        try:
            resource.setrlimit(limit, (mark, resource.getrlimit(limit)[1]))
        except (OSError, ValueError):
            continue
        return


def living(mark: int) -> list[int]:
    """Get the processes that came of a start and live; for mark 0 all in the box, those that have just died as well."""
    if mark == 0:
        return [pid for pid, _, _ in processes()]
    parents: dict[int, int] = {}
    found = set()
    for pid, parent, dead in processes():
        if not dead:
            parents[pid] = parent
            if marked(pid, mark):
                found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return list(found)


def processes() -> Iterator[tuple[int, int, bool]]:
    """All processes of the box but this one: id, parent, whether it is dead."""
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            fields = read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if fields:
                yield int(name), int(fields[1]), fields[0] in b"ZX"


def marked(pid: int, mark: int) -> bool:
    limits = read(f"/proc/{pid}/limits")
    return any(limits.partition(name)[2].split(None, 1)[:1] == [b"%d" % mark] for _, name in MARKED_LIMITS)


def childless() -> bool:
    """Whether nothing else is in the box: what lives there comes of this process, or became its child."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def ask(mark: int) -> None:
    """Ask what came of a start, or all in the box, to go."""
    for number in (_signal.SIGTERM, _signal.SIGCONT):  # one that is stopped would not hear the first
        if mark == 0:
            send(-1, number)
        else:
            signal_all(living(mark), number)


def kill(mark: int) -> None:
    """Kill at one stroke all in the box; or what came of one start, stopped first, so that none can multiply."""
    if mark == 0:
        send(-1, _signal.SIGKILL)
        return
    seen: set[int] = set()
    for _ in range(LOOKS):
        found = living(mark)
        signal_all(found, _signal.SIGSTOP)
        if seen.issuperset(found):
            break
        seen.update(found)
    signal_all(found, _signal.SIGKILL)


def signal_all(pids: list[int], number: int) -> None:
    """Send a signal to processes and to their groups, which hold nobody else: every command leads a session."""
    for pid in pids:
        try:
            group = os.getpgid(pid)
        except OSError:
            continue
        if group > 1:
            send(-group, number)
        send(pid, number)


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return  # gone, or not ours to signal


def descriptors(beside: list[tuple[int, int, bytes]]) -> Iterator[int]:
    for _level, _kind, data in beside:
        for at in range(0, len(data), 4):
            yield int.from_bytes(data[at : at + 4], sys.byteorder)


def read(path: str) -> bytes:
    """Get what a small file of /proc says; nothing where its process is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def read_all(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            continue
    except BlockingIOError:
        return


def withdraw() -> None:
    """Keep what runs in the box from looking into this process, or taking it over."""
    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    if _ctypes.call_function(prctl, (PR_SET_DUMPABLE, 0, 0, 0, 0)) != 0:
        sys.exit("the first process of the box could not be closed to the others")


def main() -> None:
    control, *door = sys.argv[1:]
    os.set_inheritable(int(control), False)
    withdraw()
    os.umask(0o022)
    if door:
        program, *sys.argv[1:] = door
        exec(program, {})  # it makes the sockets that the proxy answers at, hands them out, and keeps nothing
    Supervisor(int(control)).serve()
    os._exit(0)  # Python's own farewell takes as long as a command


if __name__ == "__main__":
    main()
