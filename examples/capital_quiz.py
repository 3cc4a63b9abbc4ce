"""A taskset in ten lines. Run it with: uv run eval ./examples/capital_quiz.py -m smollm2"""

from collections.abc import Iterator

from hotswap import Task, Taskset, Trace, reward


class CapitalQuiz(Taskset):
    """Two capitals, scored by whether the answer has the name in it."""

    def load(self) -> Iterator[Task]:
        yield Task(id="fr", prompt="What is the capital of France?", answer="Paris")
        yield Task(id="jp", prompt="What is the capital of Japan?", answer="Tokyo")

    @reward
    def right(self, task: Task, trace: Trace) -> float:
        return float(task.answer in (trace.answer or ""))
