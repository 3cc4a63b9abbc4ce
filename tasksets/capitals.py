"""Capitals: our own plain questions, easy and hard in turn, so that a tiny model gets some right. A task:

    What is the capital of France? Answer with the name of the city only.     ->     Paris

It exists for demonstration, and so names a model of its own: `uv run eval capitals` needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import ClassVar

from hotswap.contracts.task import Task
from hotswap.contracts.taskset import Score, Taskset, reward
from hotswap.tasksets._naming import read
from hotswap.tasksets._places import Country, countries
from hotswap.tasksets._scorers import said
from hotswap.trace import Trace

ASKED = """
france turkey japan united-states canada iceland egypt mongolia germany myanmar peru madagascar italy
kazakhstan kenya serbia brazil jamaica spain ecuador greece croatia new-zealand slovakia cuba iran
thailand georgia norway fiji ethiopia panama australia ghana argentina jordan mexico portugal south-korea
honduras ukraine bhutan vietnam papua-new-guinea nigeria namibia senegal algeria united-kingdom montenegro
czech-republic trinidad-and-tobago
""".split()  # noqa: SIM905
"""Ids, in the order in which they are asked: the first twenty are as mixed as all."""

WITH_ARTICLE = {"united-states", "united-kingdom", "czech-republic"}


class Capitals(Taskset):
    """Capitals of 52 countries, easy and hard: our own questions, scored as a person would."""

    demo_model: ClassVar[str | None] = "smollm2"

    def load(self) -> Iterator[Task]:
        country_by_id = _country_by_id()
        for id_ in ASKED:
            country = country_by_id[id_]
            name = f"the {country.names[0]}" if id_ in WITH_ARTICLE else country.names[0]
            prompt = f"What is the capital of {name}? Answer with the name of the city only."
            yield Task(id=id_, prompt=prompt, answer=country.capitals[0], tags=(country.region,))

    @reward
    def correct(self, task: Task, trace: Trace) -> Score:
        """The answer names the capital, by any of its usual names, and no other city as well."""
        answer = said(trace.answer)
        if not answer:
            return Score(0.0, "no answer", None, task.answer)
        reading = read(answer, _country_by_id()[task.id])
        return Score(float(reading.right), reading.note, reading.named or answer[:80], task.answer)


@cache
def _country_by_id() -> dict[str, Country]:
    return {country.id: country for country in countries()}
