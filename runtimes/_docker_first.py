# ruff: noqa: PTH110, PTH123
"""The first process of a container: the supervisor of closed boxes, on a line that the eval hands in.

Given by `-c`, with the program that makes the doors after it. It connects to the socket that is mounted, takes from
there one end of the line, and serves it. When the eval hangs up, in whatever way it ended, this process ends, and with
it the container. One that is kept stays: a file says so.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import marshal
import os
import sys

FOLDER = "/run/hotswap"


def stay() -> None:
    """Bury the dead for as long as the container is looked at."""
    _signal.signal(_signal.SIGTERM, lambda _number, _frame: os._exit(0))
    while True:
        try:
            os.wait()
        except ChildProcessError:
            _signal.sigtimedwait([_signal.SIGCHLD], 1)


def taken() -> int | None:
    """Take our end of the line; null where nobody hands one in, as in a container that is started once more."""
    way = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        way.connect(FOLDER + "/line")
        _, beside, _, _ = way.recvmsg(1, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
        return int.from_bytes(beside[0][2][:4], sys.byteorder)
    except (OSError, IndexError):
        return None
    finally:
        way.close()


def main() -> None:
    control = taken()
    if control is not None:
        with open(FOLDER + "/supervisor", "rb") as file:
            space: dict[str, object] = {"__name__": "supervisor"}
            exec(marshal.load(file), space)
        space["withdraw"]()  # type: ignore[operator]
        os.umask(0o022)
        program, *sys.argv[1:] = sys.argv[1:]
        exec(program, {})
        space["Supervisor"](control).serve()  # type: ignore[operator]
    if os.path.exists(FOLDER + "/keep"):
        stay()
    os._exit(0)


if __name__ == "__main__":
    main()
