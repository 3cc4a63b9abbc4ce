"""A closed box on the far machine, by the bubblewrap that is there: what it sees, and how it is started."""

from __future__ import annotations

import marshal
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from hotswap.runtimes._place import NAMESPACES, Place, User, hardening
from hotswap.runtimes._seccomp import filter_program
from hotswap.runtimes._ssh_far_box import Supervisor
from hotswap.runtimes._supervisor import withdraw

HOME, WORKDIR, TMP = "/home/agent", "/workspace", "/tmp"
SUPERVISOR = (
    "hotswap.processes.warden",
    "hotswap.runtimes._supervisor",
    "hotswap.runtimes._ssh_frames",
    "hotswap.runtimes._ssh_far_loop",
    "hotswap.runtimes._ssh_far_ending",
    "hotswap.runtimes._ssh_far_files",
    "hotswap.runtimes._ssh_far_box",
    "hotswap.runtimes._place",
    "hotswap.runtimes._seccomp",
    "hotswap.runtimes._ssh_far_bwrap",
)
"""What runs in the box, each after what it imports."""
ENTRY = """
import marshal, os, sys, types
for name in ("hotswap", "hotswap.processes", "hotswap.runtimes"):
    sys.modules[name] = types.ModuleType(name)
given = marshal.loads(os.pread(int(sys.argv[1]), 1 << 24, 0))
for name, code in given["modules"]:
    module = sys.modules[name] = types.ModuleType(name)
    exec(code, module.__dict__)
sys.modules["hotswap.runtimes._ssh_far_bwrap"].supervise(int(sys.argv[2]), given["about"])
"""
TRIAL = (
    "--unshare-net",
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--",
    "/bin/sh",
    "-c",
    ":",
)


def trial() -> dict[str, Any]:
    """Make a box once; say what is in the way."""
    try:
        argv = ["bwrap", *NAMESPACES, *hardening(), *TRIAL]
        done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        return {"lacks": "bubblewrap is not installed there; type there: apt-get install bubblewrap"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        return {"lacks": f"bubblewrap cannot make a box there ({last})"}
    return {}


def place(folder: str, asked: dict[str, Any]) -> Place:
    """Make the folders of a box; get how it looks."""
    user = asked["user"]
    made = Place(
        folder=Path(folder),
        own=(HOME, TMP, WORKDIR),
        workdir=WORKDIR,
        home=HOME,
        user=User(user, os.getuid()),
        mounts=(*map(Path, asked["mounts"]), *_python_folders()),
        open_network=asked["open"],
    )
    made.make()
    return made


def become(made: Place, control: int, about: dict[str, Any]) -> None:
    """Turn this process into the box. What bubblewrap says of its own accord is left beside the box."""
    said = os.open(f"{made.folder}/said", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(said, 2)
    about = {**about, "workdir": WORKDIR, "folders": [WORKDIR, HOME, TMP], "door": not made.open_network}
    sources: dict[str, str] = sys.modules["hotswap"].sources
    modules = [(name, compile(sources[name], name, "exec")) for name in SUPERVISOR]
    given = _in_memory(marshal.dumps({"modules": modules, "about": about}))
    refused = filter_program()
    seccomp = () if refused is None else ("--seccomp", str(_in_memory(refused)))
    os.set_inheritable(control, True)
    words = ["bwrap", *made.arguments(*seccomp), "--", *_python(), "-c", ENTRY, str(given), str(control)]
    os.execvp("bwrap", words)


def supervise(control: int, about: dict[str, Any]) -> None:
    """Be the first process of the box: hand out the socket that the proxy answers at, and serve."""
    withdraw()
    os.umask(0o022)
    os.set_inheritable(control, False)
    line = socket.socket(fileno=control)
    listeners = []
    if about["door"]:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        listeners.append(listener)
    socket.send_fds(line, [b"u"], [each.fileno() for each in listeners])
    for listener in listeners:
        listener.close()
    Supervisor(line.detach(), about).serve()


def _python() -> list[str]:
    """Get the beginning of the argv that started this Python, which may be a loader's."""
    words = Path("/proc/self/cmdline").read_bytes().split(b"\0")
    return [os.fsdecode(word) for word in words[: words.index(b"-I")]] + ["-I", "-S", "-X", "utf8"]


def _python_folders() -> tuple[Path, ...]:
    """What a Python needs to see of itself, where it is none of the system's."""
    prefix = Path(sys.base_prefix).resolve()
    return () if prefix.is_relative_to("/usr") else (prefix,)


def _in_memory(content: bytes) -> int:
    descriptor = os.memfd_create("hotswap", 0)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
