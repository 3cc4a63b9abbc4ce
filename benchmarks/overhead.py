"""CPU of 100 rollouts of the loop on the local runtime against a provider that answers at once, whole tree, as a
multiple of 100 bare `python -c pass` starts taken in the same run. The bound is 2.5.

    uv run --group dev python benchmarks/overhead.py
"""

from __future__ import annotations

import sys

from _measure import measure, provider, run_argv, table

ROLLOUTS = 100
BOUND = 2.5


def main() -> int:
    with provider() as url:
        measure(run_argv(url, 2, 2))  # fills the caches
        bare = measure([sys.executable, "-c", "pass"], repeat=ROLLOUTS // 2)
        ours = measure(run_argv(url, ROLLOUTS, 16))
        more = measure(run_argv(url, 2 * ROLLOUTS, 16))
        again = measure([sys.executable, "-c", "pass"], repeat=ROLLOUTS // 2)
    bare_s = bare.cpu_s + again.cpu_s
    ratio = ours.cpu_s / bare_s
    rows = [
        (f"{ROLLOUTS} bare starts", f"{bare_s:.2f} CPU s"),
        (f"{ROLLOUTS} rollouts", f"{ours.cpu_s:.2f} CPU s"),
        ("one more rollout", f"{1000 * (more.cpu_s - ours.cpu_s) / ROLLOUTS:.1f} CPU ms"),
        ("ratio", f"{ratio:.2f} (at most {BOUND})"),
    ]
    table("overhead of a rollout", rows)
    return 0 if ratio <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
