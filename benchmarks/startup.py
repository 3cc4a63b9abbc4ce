"""CPU and memory of the commands that run no rollout.

`eval --help` and `eval list` may take 0.25 CPU seconds and 60 MiB, a usage error 0.5. A CPU second differs from machine
to machine: what is compared is the ratio to a bare `python -c pass` (27 ms on the machine that the bounds were set on).

    uv run --group dev python benchmarks/startup.py
"""

from __future__ import annotations

import subprocess
import sys

from _measure import EVAL, measure, table

BARE_S = 0.027
BOUNDS = {("--help",): 0.25, ("list", "tasksets"): 0.25, ("list", "harnesses", "loop"): 0.25, ("gsm9k",): 0.5}
MIB = 60


def main() -> int:
    bare_s = measure([sys.executable, "-c", "pass"], repeat=20).cpu_s / 20
    rows, held = [("python -c pass", f"{1000 * bare_s:.0f} CPU ms")], True
    for words, bound in BOUNDS.items():
        argv = [EVAL, *words] if bound < 0.5 else ["sh", "-c", f"{EVAL} {' '.join(words)}; test $? = 2"]
        used = measure(argv, repeat=10)
        mib = _peak_mib(words)
        ratio, limit = used.cpu_s / 10 / bare_s, bound / BARE_S
        held = held and ratio <= limit and (mib <= MIB or bound == 0.5)
        rows.append(
            (
                " ".join(words),
                f"{100 * used.cpu_s:.0f} CPU ms, {ratio:.1f} bare starts (at most {limit:.1f}), {mib:.0f} MiB",
            )
        )
    table("commands that run nothing", rows)
    return 0 if held else 1


def _peak_mib(words: tuple[str, ...]) -> float:
    """The largest resident set of one command."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], capture_output=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, EVAL, *words], capture_output=True, text=True, check=True
    )
    return int(done.stdout) / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    sys.exit(main())
