"""What the benchmarks share: a scripted provider in a process of its own, and what a whole tree of processes uses."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
EVAL = str(Path(sys.executable).parent / "hotswap")

PROVIDER = """
import sys
sys.path.insert(0, sys.argv[1])
from _kit.provider import Provider, replace, say
answer = replace(say("42"), wait_s=float(sys.argv[2]))
with Provider(lambda request: answer) as provider:
    print(provider.url, flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Usage:
    """What a command cost: CPU seconds (user and system, of all its processes that ended), wall seconds, and the
    largest memory of its whole tree and of its first process (PSS, MiB; zero where it was not asked for)."""

    cpu_s: float
    tree_mib: float = 0.0
    own_mib: float = 0.0


@contextmanager
def provider(delay_s: float = 0.0) -> Iterator[str]:
    """Start the scripted provider, so that its CPU is not counted as ours; get its URL."""
    argv = [sys.executable, "-c", PROVIDER, str(ROOT / "tests"), str(delay_s)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def measure(argv: Sequence[str], *, memory: bool = False, repeat: int = 1) -> Usage:
    """Run a command to its end, `repeat` times. Raises CalledProcessError where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    tree = own = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeat):
            process = subprocess.Popen(
                argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            peaks = _watch_memory(process) if memory else [0.0, 0.0]
            output, _ = process.communicate()
            tree, own = max(tree, peaks[0]), max(own, peaks[1])
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, argv, output)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Usage(cpu_s, tree, own)


def run_argv(url: str, rollouts: int, concurrency: int, *more: str) -> list[str]:
    """The command of a run against the scripted provider: `rollouts` generated tasks, the loop, the local runtime."""
    model = f"scripted@{url}"
    return [
        EVAL,
        "run",
        "reverse_text",
        "-m",
        model,
        "-n",
        str(rollouts),
        "--concurrency",
        str(concurrency),
        *more,
    ]


def _watch_memory(process: subprocess.Popen[str]) -> list[float]:
    """Sample the memory of a process and all that it started, until it ends, in a thread."""
    peaks = [0.0, 0.0]

    def sample() -> None:
        while process.poll() is None:
            sizes = _pss(process.pid)
            peaks[0], peaks[1] = max(peaks[0], sum(sizes)), max(peaks[1], sizes[0] if sizes else 0.0)

    threading.Thread(target=sample, daemon=True).start()
    return peaks


def _pss(pid: int) -> list[float]:
    """PSS in MiB of a process, and then of each of its descendants."""
    sizes = []
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []
    for member in family:
        try:
            sizes.append(member.memory_full_info().pss / 2**20)
        except (psutil.Error, OSError):
            continue
    return sizes


def table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print a small table of names and figures."""
    width = max(len(name) for name, _ in rows)
    print(title, f"({os.cpu_count()} cores, Python {sys.version.split()[0]})")
    for name, figure in rows:
        print(f"  {name:<{width}}  {figure}")
