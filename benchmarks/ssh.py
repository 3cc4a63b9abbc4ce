"""What the ssh runtime costs beside the local one: rollouts of one command each, over a real sshd on loopback.

Both ends are on this machine, and the CPU of both is counted, with sshd and the program that is evaluated. The first
connection, which carries that program over, is not; a later one is.

    uv run --group dev python benchmarks/ssh.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import psutil
from _measure import ROOT, measure, provider, run_argv, table

ROLLOUTS, CONCURRENCY = 20, 4
CPU_BOUND_S = 0.15
"""CPU seconds, of both ends, that a rollout over ssh may take beyond one here."""

sys.path.insert(0, str(ROOT / "tests"))
from _kit.sshd import Sshd  # noqa: E402


def main() -> int:
    with provider() as url, tempfile.TemporaryDirectory() as folder, Sshd(Path(folder, "far")) as sshd:
        here = run_argv(url, ROLLOUTS, CONCURRENCY, "-r", "local")
        there = run_argv(url, ROLLOUTS, CONCURRENCY, *sshd.flags)
        measure(there)
        rows, figures = [], []
        for name, argv in (("local", here), ("ssh", there)):
            far, began = far_cpu_s(sshd), time.monotonic()
            used = measure(argv).cpu_s + far_cpu_s(sshd) - far
            wall_s = time.monotonic() - began
            figures.append(used / ROLLOUTS)
            rows.append(
                (name, f"{1000 * used / ROLLOUTS:.0f} CPU ms and {1000 * wall_s / ROLLOUTS:.0f} ms a rollout")
            )
        more_s = figures[1] - figures[0]
        rows.append(
            ("more by ssh", f"{1000 * more_s:.0f} CPU ms a rollout (at most {1000 * CPU_BOUND_S:.0f})")
        )
        table(f"{ROLLOUTS} rollouts of one command, {CONCURRENCY} at once", rows)
    return 0 if more_s <= CPU_BOUND_S else 1


def far_cpu_s(sshd: Sshd) -> float:
    """CPU seconds of sshd and of all connections that have ended."""
    used = psutil.Process(sshd.pid).cpu_times()
    return used.user + used.system + used.children_user + used.children_system


if __name__ == "__main__":
    sys.exit(main())
