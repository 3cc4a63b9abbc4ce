"""What a run does: cells x tasks x attempts.

Which tasks are taken, and in which order, depends on their ids and the settings alone: every machine and each
later run takes the same ones, and `-n 200` takes a superset of `-n 100`, shuffled or not.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import AsyncIterable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol

from hotswap.contracts.harness import Harness
from hotswap.contracts.task import Task
from hotswap.errors import UsageError
from hotswap.registry import Entry
from hotswap.settings.layers import SELECTORS

if TYPE_CHECKING:
    from hotswap.settings import Choice

SHOWN = 50
"""Tasks that cannot be scored which are listed one by one."""
NO, MAYBE, YES = range(3)
REMEMBERED = 10_000
"""Ids that are kept to suggest one for a pattern that matches none."""


@dataclass(frozen=True)
class Cell:
    """One combination of taskset, harness, model and runtime, settings included."""

    name: str
    """Unique in its run, and says what differs: `gsm8k/loop,tools=bash/openai:gpt-5-mini/local`."""
    taskset: Choice
    harness: Choice
    model: Choice
    runtime: Choice

    @property
    def choices(self) -> tuple[Choice, Choice, Choice, Choice]:
        return (self.taskset, self.harness, self.model, self.runtime)

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """The settings of its parts by kind, as they stand in a trace; a part without any is left out."""
        return {choice.kind: dict(choice.settings) for choice in self.choices if choice.settings}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Cell:
        """Build the cell that `to_json` wrote."""
        return cls(
            record["name"], *(_choice(record[kind]) for kind in ("taskset", "harness", "model", "runtime"))
        )


def cells(chosen: Mapping[str, Sequence[Choice]]) -> tuple[Cell, ...]:
    """Get every combination of the chosen parts, by kind. Raises UsageError for one that is chosen twice."""
    labels = {kind: _labels(kind, choices) for kind, choices in chosen.items()}
    combinations = product(*(zip(chosen[kind], labels[kind], strict=True) for kind in SELECTORS))
    return tuple(
        Cell("/".join(label for _, label in combination), *(choice for choice, _ in combination))
        for combination in combinations
    )


def rollouts(
    plan: Sequence[Cell], tasks: Mapping[str, Sequence[Task]], attempts: int
) -> Iterator[tuple[Cell, Task, int]]:
    """Yield every rollout, interleaved: all cells' first attempts at all tasks come before the second ones.

    `tasks` are those that were selected, by the text of the taskset's choice.
    """
    longest = max((len(tasks[cell.taskset.text]) for cell in plan), default=0)
    for attempt in range(attempts):
        for index in range(longest):
            for cell in plan:
                if index < len(tasks[cell.taskset.text]):
                    yield cell, tasks[cell.taskset.text][index], attempt


def pairing_problems(
    cell: Cell, harness: type[Harness], dialects: Sequence[str], tasks: Collection[Task]
) -> list[str]:
    """List why a cell's harness cannot work on these tasks with a model that speaks `dialects`."""
    problems = []
    if not _meet(harness.dialects, dialects):
        spoken, wanted = " or ".join(harness.dialects), " or ".join(dialects)
        problems.append(f"{cell.name}: the harness speaks {spoken}, which cannot be translated into {wanted}")
    if harness.system_prompt == "none" and (system := [task.id for task in tasks if task.system is not None]):
        problems.append(f"{cell.name}: the harness takes no system prompt, which task {system[0]!r} brings")
    return problems


def _meet(spoken: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether program and endpoint speak one dialect, or one that can be translated."""
    if set(spoken) & set(wanted):
        return True
    from hotswap.translation import between  # loaded only when used

    return any(between(program, endpoint) for program in spoken for endpoint in wanted)


class Selection(Protocol):
    """The settings that say which tasks are taken."""

    @property
    def tasks(self) -> int | None: ...
    @property
    def select(self) -> Sequence[str]: ...
    @property
    def exclude(self) -> Sequence[str]: ...
    @property
    def shuffle(self) -> bool: ...
    @property
    def seed(self) -> int: ...


async def select(
    tasks: AsyncIterable[Task] | Iterable[Task], settings: Selection, *, endless: bool = False
) -> list[Task]:
    """Get the tasks that a run uses, in its order. Pulls no more of `tasks` than it must.

    Raises UsageError for a pattern that matches nothing, for an id that stands for two tasks, and for tasks that
    say themselves that they cannot be scored.
    """
    if endless:
        _refuse_endless(settings)
    chooser = _Chooser(settings, endless)
    if isinstance(tasks, AsyncIterable):
        async for task in tasks:
            if not chooser.take(task):
                break
    else:
        for task in tasks:
            if not chooser.take(task):
                break
    return chooser.chosen()


class _Pattern:
    """One `--select` or `--exclude`: an id, a glob, an index from 0, or a slice `a:b`.

    A number is an id where a task has it, which is known once all tasks were looked at, and else an index.
    """

    def __init__(self, flag: str, text: str) -> None:
        self.flag, self.text = flag, text
        self.is_index = text.isdigit()
        slice_of = re.fullmatch(r"(\d*):(\d*)", text)
        self.range = (int(slice_of[1] or 0), int(slice_of[2]) if slice_of[2] else None) if slice_of else None
        self.matched = False
        self._index = int(text) if self.is_index else None
        """Where it matches by position, if it does."""

    @property
    def end(self) -> int | None:
        """The position after the last one that can match; null where every task must be looked at."""
        return self.range[1] if self.range else int(self.text) + 1 if self.is_index else None

    def look(self, position: int, task: Task) -> int:
        """Get YES, NO, or MAYBE for what may turn out to be an index."""
        if self._names(position, task):
            self.matched = True
            return YES
        return MAYBE if position == self._index else NO

    def settle(self, count: int) -> None:
        """Decide, after so many tasks, whether a number is an index."""
        if self.matched or self._index is None or self._index >= count:
            self._index = None
        else:
            self.matched = True

    def holds(self, position: int, task: Task) -> bool:
        """Whether it matches, once it is settled."""
        return position == self._index or self._names(position, task)

    def _names(self, position: int, task: Task) -> bool:
        if self.range:
            start, end = self.range
            return start <= position and (end is None or position < end)
        return task.id == self.text or (not self.is_index and fnmatchcase(task.id, self.text))


class _Chooser:
    """Looks at tasks one by one and keeps those that may be chosen: no more than the run uses, and a few more."""

    def __init__(self, settings: Selection, endless: bool) -> None:
        self._settings = settings
        self._select = [_Pattern("--select", text) for text in settings.select]
        self._exclude = [_Pattern("--exclude", text) for text in settings.exclude]
        self._kept: list[tuple[int, Task]] = []
        self._unsure: list[tuple[int, Task]] = []
        """What is chosen or not by whether a number is an index."""
        self._ids: list[str] = []
        self._count = 0
        self._end = self._last_position(endless)

    def _last_position(self, endless: bool) -> int | None:
        """Where to stop pulling: beyond it, no task can be chosen and no pattern can match."""
        patterns = [*self._select, *self._exclude]
        if patterns:
            ends = [pattern.end for pattern in patterns if endless or not pattern.is_index]
            known = [end for end in ends if end is not None]
            if endless and not self._select:
                return max(known) + (self._settings.tasks or 0)
            return max(known) if self._select and len(known) == len(patterns) else None
        return None if self._settings.shuffle else self._settings.tasks

    def take(self, task: Task) -> bool:
        """Look at the next task. False: no more are needed."""
        position = self._count
        self._count += 1
        wanted = max([pattern.look(position, task) for pattern in self._select], default=YES)
        unwanted = max([pattern.look(position, task) for pattern in self._exclude], default=NO)
        if wanted == YES and unwanted == NO:
            self._keep(position, task)
        elif wanted != NO and unwanted != YES:
            self._unsure.append((position, task))
        if (self._select or self._exclude) and len(self._ids) < REMEMBERED:
            self._ids.append(task.id)
        return self._end is None or self._count < self._end

    def _keep(self, position: int, task: Task) -> None:
        """Keep a task, unless so many that come before it are kept that it is not among those that are used."""
        most = self._settings.tasks
        if most is None or self._settings.shuffle or len(self._kept) < most:
            self._kept.append((position, task))
        if most is not None and self._settings.shuffle and len(self._kept) > 2 * most + 100:
            self._kept = self._ordered(self._kept)[:most]

    def chosen(self) -> list[Task]:
        for pattern in (*self._select, *self._exclude):
            pattern.settle(self._count)
        if problems := [self._nothing(each) for each in (*self._select, *self._exclude) if not each.matched]:
            raise UsageError(*problems)
        kept = sorted([*self._kept, *filter(self._is_chosen, self._unsure)], key=lambda item: item[0])
        if not kept:
            why = "--select and --exclude leave none" if self._exclude else "it has none"
            raise UsageError(f"the taskset has no task to run: {why}")
        tasks = [task for _, task in self._ordered(kept)][: self._settings.tasks]
        _refuse_doubles(tasks)
        _refuse_unscorable(tasks)
        return tasks

    def _is_chosen(self, item: tuple[int, Task]) -> bool:
        wanted = not self._select or any(pattern.holds(*item) for pattern in self._select)
        return wanted and not any(pattern.holds(*item) for pattern in self._exclude)

    def _ordered(self, kept: list[tuple[int, Task]]) -> list[tuple[int, Task]]:
        if not self._settings.shuffle:
            return kept
        return sorted(kept, key=lambda item: shuffle_key(self._settings.seed, item[1].id))

    def _nothing(self, pattern: _Pattern) -> str:
        close = ", ".join(get_close_matches(pattern.text, self._ids, n=3, cutoff=0.5) or self._ids[:3])
        hint = f" Ids are like: {close}." if close else ""
        return f"{pattern.flag} {pattern.text!r} matches none of {self._count} tasks.{hint}"


def shuffle_key(seed: int, id: str) -> str:  # noqa: A002
    """Get a task's place in the shuffled order, which depends on no machine and on no other task."""
    return sha256(f"{seed}:{id}".encode("utf-8", "surrogatepass")).hexdigest()


def _refuse_endless(settings: Selection) -> None:
    problems = []
    if settings.tasks is None:
        problems.append("the taskset generates tasks without an end: say how many, with -n")
    if settings.shuffle:
        problems.append("the taskset generates tasks without an end: they cannot be shuffled")
    for pattern in (_Pattern("", text) for text in (*settings.select, *settings.exclude)):
        if pattern.end is None:
            hint = "name an index, or a slice a:b"
            problems.append(f"the taskset has no end: {pattern.text!r} cannot be looked for; {hint}")
    if problems:
        raise UsageError(*problems)


def _refuse_doubles(tasks: Sequence[Task]) -> None:
    counts = Counter(task.id for task in tasks)
    if doubles := [f"{id_!r} ({count} times)" for id_, count in counts.items() if count > 1]:
        raise UsageError(f"the taskset gives one id to several tasks: {', '.join(doubles)}")


def _refuse_unscorable(tasks: Sequence[Task]) -> None:
    """Refuse them before a model is paid for answers that nobody can score."""
    wrong = [task for task in tasks if task.problem is not None]
    if not wrong:
        return
    more = [f"and {len(wrong) - SHOWN:,} more tasks"] if len(wrong) > SHOWN else []
    without = f"to run without such a task, leave it out: --exclude {shlex.quote(wrong[0].id)}"
    raise UsageError(*(task.problem or "" for task in wrong[:SHOWN]), *more, without)


def _labels(kind: str, choices: Sequence[Choice]) -> list[str]:
    """Get a name for each choice; where two would have one name, the reference tells them apart."""
    labels = [choice.label for choice in choices]
    if len(set(labels)) < len(labels):
        labels = [choice.text.removeprefix("./").replace("/", ":") for choice in choices]
    counts = Counter(labels)
    doubles = [choice.text for choice, label in zip(choices, labels, strict=True) if counts[label] > 1]
    if doubles:
        raise UsageError(f"{kind} {doubles[0]!r} is chosen twice, and nothing differs")
    return labels


def _choice(record: Mapping[str, Any]) -> Choice:
    from hotswap.settings import Choice  # brings pydantic

    entry = record["entry"]
    return Choice(**{**record, "entry": Entry(**entry) if entry else None})
