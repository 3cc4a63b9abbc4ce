"""What a run says of its rollouts once, and not for each of them. Standard library only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hotswap.trace import Trace

SHOWN = 5
"""Hosts that are named at the end of a run."""
KEPT = 1000
"""Hosts that are told apart in a run."""


class Remarks:
    """What was remarked by now."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._refused: Counter[str] = Counter()
        """Rollouts by the host that each was refused."""

    def of(self, trace: Trace) -> Iterator[str]:
        """Get what is new in a rollout that has ended: what its calls left out, limits that do not hold."""
        for host in refused(trace):
            if host in self._refused or len(self._refused) < KEPT:
                self._refused[host] += 1
        for line in dict.fromkeys(_lines(trace)):
            if line not in self._said:
                self._said.add(line)
                yield line

    def at_the_end(self) -> Iterator[str]:
        """Get the hosts that boxes were refused."""
        if not self._refused:
            return
        named = [f"{host} ({count})" for host, count in self._refused.most_common(SHOWN)]
        more = len(self._refused) - len(named)
        rest = f", and {more} more" if more else ""
        yield f"hosts that boxes were refused, by rollouts: {', '.join(named)}{rest}"


def refused(trace: Trace) -> list[str]:
    """Get the hosts that a rollout was refused, each once."""
    tried = trace.box.egress if trace.box else []
    return list(dict.fromkeys(each.host for each in tried if not each.allowed))


def _lines(trace: Trace) -> Iterator[str]:
    for name in (name for call in trace.calls for name in call.dropped):
        yield f"left out on the way to the model of {trace.cell.name}: {name}"
    if trace.box is not None:
        runtime = trace.box.runtime or trace.cell.runtime
        yield from (f"{name} is not enforced by runtime {runtime}" for name in trace.box.not_enforced)
