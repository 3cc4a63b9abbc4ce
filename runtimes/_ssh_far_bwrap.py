"""A closed box on the far machine, by the bubblewrap that is there: what it sees, and how it is started."""

from __future__ import annotations

import ctypes
import marshal
import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from hotswap.runtimes._seccomp import filter_program
from hotswap.runtimes._ssh_far_box import Supervisor

PR_SET_DUMPABLE = 4
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Folders of the machine that are its system: read-only in every box."""
ETC = (
    *(
        "alternatives",
        "ca-certificates",
        "ld.so.cache",
        "localtime",
        "mime.types",
        "os-release",
        "pki/ca-trust",
    ),
    *("pki/tls/certs", "pki/tls/cert.pem", "protocols", "services", "ssl/certs", "ssl/openssl.cnf"),
)
"""What a box sees of /etc. No other: a configuration may name people, hosts, or hold a secret."""
NAMESPACES = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"),
)
HOME, WORKDIR, TMP = "/home/agent", "/workspace", "/tmp"
SUPERVISOR = (
    "hotswap.processes.warden",
    "hotswap.runtimes._ssh_frames",
    "hotswap.runtimes._ssh_far_loop",
    "hotswap.runtimes._ssh_far_ending",
    "hotswap.runtimes._ssh_far_files",
    "hotswap.runtimes._ssh_far_box",
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


def trial() -> dict[str, Any]:
    """Make a box once; say what is in the way."""
    try:
        seen = (*_systems(), "--proc", "/proc", "--dev", "/dev")
        argv = ["bwrap", *NAMESPACES, *hardening(), "--unshare-net", *seen, "--", "/bin/sh", "-c", ":"]
        done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        return {"lacks": "bubblewrap is not installed there; type there: apt-get install bubblewrap"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        return {"lacks": f"bubblewrap cannot make a box there ({last})"}
    return {}


def place(folder: str, asked: dict[str, Any]) -> list[str]:
    """Make the folders of a box; get the arguments of bubblewrap by which it sees them."""
    number, user = str(os.getuid()), asked["user"]
    etc = {
        "passwd": f"{user}:x:{number}:{number}::{HOME}:/bin/sh\n",
        "group": f"{user}:x:{number}:\n",
        "hosts": "127.0.0.1 localhost box\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    for name in ("workdir", "home", "tmp", "etc"):
        Path(folder, name).mkdir()
    for name, text in etc.items():
        Path(folder, "etc", name).write_text(text, "utf-8")
    return [
        *NAMESPACES,
        *hardening(),
        *(() if asked["open"] else ("--unshare-net",)),
        *("--hostname", "box", "--uid", number, "--gid", number),
        *_systems(),
        *(word for name in ETC for word in ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")),
        *(word for name in etc for word in ("--ro-bind", f"{folder}/etc/{name}", f"/etc/{name}")),
        *(("--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf") if asked["open"] else ()),
        # Who is root here owns what stands in /proc/sys, even without rights: a program for crashed ones, say.
        *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--dir", "/run", "--dir", "/var"),
        *("--symlink", "../run", "/var/run", "--symlink", "../tmp", "/var/tmp"),
        *(
            "--bind",
            f"{folder}/workdir",
            WORKDIR,
            "--bind",
            f"{folder}/home",
            HOME,
            "--bind",
            f"{folder}/tmp",
            TMP,
        ),
        *(word for path in (*asked["mounts"], *_python_folders()) for word in ("--ro-bind", path, path)),
        *("--remount-ro", "/", "--chdir", WORKDIR),
    ]


@cache
def hardening() -> tuple[str, ...]:
    """Get what keeps programs inside from namespaces of their own, where this bubblewrap can: 0.8 on."""
    known = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, check=False).stdout
    return ("--disable-userns",) if "--disable-userns" in known else ()


def _systems() -> list[str]:
    return [word for name in SYSTEM for word in _system(Path("/", name))]


def _system(path: Path) -> tuple[str, ...]:
    if path.is_symlink():
        return ("--symlink", str(path.readlink()), str(path))
    return ("--ro-bind", str(path), str(path)) if path.is_dir() else ()


def become(folder: str, arguments: list[str], control: int, about: dict[str, Any]) -> None:
    """Turn this process into the box. What bubblewrap says of its own accord is left beside the box."""
    said = os.open(f"{folder}/said", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(said, 2)
    about = {
        **about,
        "workdir": WORKDIR,
        "folders": [WORKDIR, HOME, TMP],
        "door": "--unshare-net" in arguments,
    }
    sources: dict[str, str] = sys.modules["hotswap"].sources
    modules = [(name, compile(sources[name], name, "exec")) for name in SUPERVISOR]
    given = _in_memory(marshal.dumps({"modules": modules, "about": about}))
    refused = filter_program()
    seccomp = () if refused is None else ("--seccomp", str(_in_memory(refused)))
    os.set_inheritable(control, True)
    words = ["bwrap", *arguments, *seccomp, "--", *_python(), "-c", ENTRY, str(given), str(control)]
    os.execvp("bwrap", words)


def supervise(control: int, about: dict[str, Any]) -> None:
    """Be the first process of the box: hand out the socket that the proxy answers at, and serve."""
    ctypes.CDLL(None).prctl(
        PR_SET_DUMPABLE, 0, 0, 0, 0
    )  # what runs in the box can neither look in here nor take over
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


def _python_folders() -> tuple[str, ...]:
    """What a Python needs to see of itself, where it is none of the system's."""
    prefix = Path(sys.base_prefix).resolve()
    return () if prefix.is_relative_to("/usr") else (str(prefix),)


def _in_memory(content: bytes) -> int:
    descriptor = os.memfd_create("hotswap", 0)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
