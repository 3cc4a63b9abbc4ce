"""Memory (PSS) of a wide run, and that the eval process stays flat.

128 rollouts against a provider that takes 15 s, so that their calls overlap, and 500 at concurrency 128 against one
that takes 200 ms, where fewer do, since programs take turns to start: the whole tree may use 1.6 GiB. The eval process
itself may use 120 MiB, and as much after 2,000 rollouts as after 100 (within a tenth).

    uv run --group dev python benchmarks/memory.py
"""

from __future__ import annotations

import sys

from _measure import measure, provider, run_argv, table

TREE_MIB, OWN_MIB, GROWTH = 1.6 * 1024, 120, 1.1


def main() -> int:
    with provider(15.0) as url:
        full = measure(run_argv(url, 128, 128), memory=True)
    with provider(0.2) as url:
        wide = measure(run_argv(url, 500, 128), memory=True)
    with provider() as url:
        short = measure(run_argv(url, 100, 16), memory=True)
        long = measure(run_argv(url, 2000, 16), memory=True)
    growth = long.own_mib / short.own_mib
    rows = [
        ("128 rollouts, a provider of 15 s, whole tree", f"{full.tree_mib:.0f} MiB (at most {TREE_MIB:.0f})"),
        ("the eval process in it", f"{full.own_mib:.0f} MiB (at most {OWN_MIB})"),
        ("500 rollouts, 128 at once, whole tree", f"{wide.tree_mib:.0f} MiB (at most {TREE_MIB:.0f})"),
        ("the eval process in it", f"{wide.own_mib:.0f} MiB (at most {OWN_MIB})"),
        ("the eval process, 100 rollouts", f"{short.own_mib:.0f} MiB"),
        ("the eval process, 2,000 rollouts", f"{long.own_mib:.0f} MiB"),
        ("ratio", f"{growth:.2f} (at most {GROWTH})"),
    ]
    table("memory of a run", rows)
    tree, own = max(full.tree_mib, wide.tree_mib), max(full.own_mib, wide.own_mib, long.own_mib)
    return 0 if tree <= TREE_MIB and own <= OWN_MIB and growth <= GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
