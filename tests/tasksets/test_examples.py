"""The taskset that people copy from loads and scores as it stands."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from _kit.answers import score

from hotswap.contracts.taskset import Taskset

FILE = Path(__file__).parents[2] / "examples" / "capital_quiz.py"


def quiz() -> Taskset:
    spec = importlib.util.spec_from_file_location("capital_quiz", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.CapitalQuiz()
    assert isinstance(made, Taskset)
    return made


def test_the_quiz_scores_the_right_city_and_no_other() -> None:
    france, japan = quiz().load()
    assert score(quiz(), france, "It is Paris.", "right").value == 1
    assert score(quiz(), japan, "Kyoto", "right").value == 0
    assert score(quiz(), japan, None, "right").value == 0


def test_the_quiz_is_still_short() -> None:
    code = [
        line for line in FILE.read_text().splitlines() if line.strip() and not line.lstrip().startswith('"""')
    ]
    assert len(code) <= 12
