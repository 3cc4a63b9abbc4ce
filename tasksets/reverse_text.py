"""Text to write backwards: generated, seeded, without an end. A task as it is asked:

Write this text backwards, character by character. Answer with the result alone.

amber river stone     ->     enots revir rebma
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import count
from typing import ClassVar

from hotswap.contracts.task import Task
from hotswap.contracts.taskset import Score, Taskset, metric, reward
from hotswap.errors import UsageError
from hotswap.tasksets._scorers import said
from hotswap.trace import Trace

WORDS = """
amber anchor apple arrow autumn bamboo basket beacon bridge button cactus candle canyon carpet cedar
cherry clover copper coral cotton desert dolphin eagle ember fabric falcon feather forest fossil
garden ginger glacier granite harbor hazel honey island ivory jacket jasmine jungle kettle ladder
lantern lemon lizard magnet maple marble meadow mirror nectar needle oasis olive orchid oyster paper
pebble pepper pillow planet pocket prairie puzzle quartz rabbit raven ribbon river rocket saddle
salmon shadow silver spruce stone summer sunset thunder tiger timber tulip tunnel turtle valley
velvet violet walnut whistle willow window winter wizard yellow zebra
""".split()  # noqa: SIM905


class ReverseText(Taskset):
    """Short texts to write backwards, generated from a seed: as many as you ask for."""

    endless: ClassVar[bool] = True

    seed: int = 0
    """Another seed gives other texts."""
    words: int = 3
    """Words in each text."""

    def load(self) -> Iterator[Task]:
        if self.words < 1:
            raise UsageError(f"taskset.words = {self.words}: a text has at least one word")
        return (self._task(index) for index in count())

    def _task(self, index: int) -> Task:
        # random() alone gives the same values in every version of Python; choice() does not promise it
        dice = random.Random(f"{self.seed}-{index}")
        text = " ".join(WORDS[int(dice.random() * len(WORDS))] for _ in range(self.words))
        prompt = f"Write this text backwards, character by character. Answer with the result alone.\n\n{text}"
        return Task(id=f"s{self.seed}-{index}", prompt=prompt, answer=text[::-1])

    @reward
    def correct(self, task: Task, trace: Trace) -> Score:
        """The answer is the reversed text and nothing else."""
        answer = said(trace.answer)
        right = answer == task.answer
        note = None if right else "not the reversed text" if answer else "no answer"
        return Score(right, note, answer[: 2 * len(task.answer)], task.answer)

    @metric
    def similarity(self, task: Task, trace: Trace) -> float:
        """How much of the reversed text stands in the answer in its order, from 0 to 1."""
        answer = said(trace.answer)
        matcher = SequenceMatcher(None, answer, task.answer, autojunk=False)
        matched = sum(block.size for block in matcher.get_matching_blocks())
        return 2 * matched / (len(answer) + len(task.answer))
