"""GSM8K, grade-school maths (Cobbe et al., 2021). A row as it is on the hub and in a local copy:

{"question": "A robe takes 2 bolts of blue fiber and half that much white fiber.  How many ...",
 "answer": "It takes 2/2=<<2/2=1>>1 bolt of white fiber\\nSo the total ... 3 bolts of fabric\\n#### 3"}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Literal

from hotswap.contracts.task import Task
from hotswap.contracts.taskset import Score, Taskset, reward
from hotswap.errors import UsageError
from hotswap.tasksets._columns import Template
from hotswap.tasksets._numbers import number_of
from hotswap.tasksets._rows import Row, RowError, read, tasks
from hotswap.tasksets._scorers import score
from hotswap.trace import Trace

HUB = "openai/gsm8k"
MARK = "####"
"""Stands before the number in a reference answer."""


class Gsm8k(Taskset):
    """Grade-school maths: 1,319 word problems, each with one number as its answer."""

    path: Path | None = None
    """A local JSONL copy (columns question and answer), in place of the hub."""
    split: Literal["test", "train"] = "test"
    """Which part of the data; it is also the beginning of each task's id."""
    revision: str = "e53f048856ff4f594e959d75785d2c2d37b678ee"
    """The commit of the data on the hub, so that the same tasks are asked next year."""
    prompt: str = "{question}\n\nThink step by step, and end with the final number alone on the last line."
    """What is asked; {question} is the problem."""

    def load(self) -> Iterator[Task]:
        template = Template(self.prompt, "prompt")
        rows = self._from_hub() if self.path is None else read(self.path)
        index = count()
        yield from tasks(rows, self.path or HUB, lambda row: self._task(row, next(index), template))

    def _task(self, row: Row, index: int, template: Template) -> Task:
        reference = str(row.column("answer"))
        _, mark, number = reference.rpartition(MARK)
        answer = number.strip().replace(",", "")
        if not mark or number_of(answer) is None:
            raise RowError(f"the reference answer does not end with '{MARK} NUMBER': {reference[-60:]!r}")
        if not template.names_a_column:
            raise template.no_column(row)
        return Task(id=f"{self.split}-{index}", prompt=template.fill(row), answer=answer, tags=(self.split,))

    def _from_hub(self) -> Iterator[Row]:
        """Rows of the data set, which is fetched once and then mapped from the hub's cache on this disk."""
        if not re.fullmatch(r"[0-9a-f]{40}", self.revision):
            raise UsageError(
                f"taskset.revision = {self.revision!r}: the commit itself is wanted, 40 hex digits"
            )
        instead = "with a local copy: --taskset.path FILE.jsonl"
        try:
            from datasets import load_dataset  # type: ignore[import-untyped]

            rows = load_dataset(HUB, "main", split=self.split, revision=self.revision)
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise UsageError(f"gsm8k: {HUB} could not be had from its hub ({reason}); {instead}") from error
        # without a connection, `datasets` takes whatever commit its cache has
        commit = Path(rows.cache_files[0]["filename"]).parent.name
        if commit != self.revision:
            asked = f"taskset.revision is {self.revision}"
            raise UsageError(f"gsm8k: the hub's cache holds commit {commit}, and {asked}; {instead}")
        for index, values in enumerate(rows):
            yield Row(index + 1, values)

    @reward
    def correct(self, task: Task, trace: Trace) -> Score:
        """The last number of the answer is the reference's."""
        return score("last_number", trace.answer, task.answer)
