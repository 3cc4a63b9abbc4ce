"""Reading a taskset's tasks in the worker: lazily, in order, each one checked before it leaves.

All that is wrong with the tasks that were asked for is collected and reported at once.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from hotswap.contracts.task import Task
from hotswap.contracts.taskset import Taskset
from hotswap.errors import DETAIL_LIMIT, UsageError

BATCH_BYTES = 1 << 18
BATCH_S = 0.2
"""A batch ends early when it is this large, or took this long to load."""
END: Any = object()


class Reading:
    """One pass over a taskset's tasks."""

    def __init__(self, name: str, taskset: Taskset) -> None:
        self._name = name
        self._taskset = taskset
        self._tasks: Iterator[Task] | None = None
        self._position_by_id: dict[str, int] = {}
        self._position = 0

    def batch(self, start: int, count: int) -> dict[str, Any]:
        """Get up to `count` tasks from position `start` on, what is wrong with others, and whether that was
        all.

        No more are built than are asked for. A new pass (after a restart) reads past those that came before.
        """
        self._skip(start)
        tasks: list[Any] = []
        problems: list[str] = []
        size, began = 0, time.monotonic()
        for _ in range(count):
            task = self._next()
            if task is END:
                return {"tasks": tasks, "problems": problems, "next": self._position, "done": True}
            problem, record = self._check(task)
            if problem is not None:
                problems.append(f"{self._name}: {problem}")
            else:
                tasks.append(record)
                size += len(task.prompt) + len(task.context or "") + sum(map(len, task.files.values()))
            if size > BATCH_BYTES or time.monotonic() - began > BATCH_S:
                break
        return {"tasks": tasks, "problems": problems, "next": self._position, "done": False}

    def _skip(self, start: int) -> None:
        while self._position < start:
            task = self._next()
            if task is END:
                raise UsageError(
                    f"{self._name}: load() gave {self._position} tasks, and at least {start} the time before"
                )
            self._check(task)

    def _next(self) -> Any:
        """Get what load() yields next; END at its end. Raises UsageError for whatever it raises."""
        try:
            if self._tasks is None:
                self._tasks = iter(self._taskset.load())
            task = next(self._tasks, END)
        except UsageError:
            raise
        except (Exception, SystemExit) as error:
            where = "before its first task" if not self._position else f"after {self._position} tasks"
            raise explained(f"{self._name}: load() failed {where}", error) from error
        self._position += task is not END
        return task

    def _check(self, task: Any) -> tuple[str | None, Any]:
        """Get the first thing that is wrong with a task, or the task as JSON values."""
        at = f"task {self._position - 1} (counted from 0)"
        if not isinstance(task, Task):
            return (
                f"{at}: load() yielded no Task but a {type(task).__name__}: yield Task(id=..., prompt=...)",
                None,
            )
        if not isinstance(task.id, str) or not task.id:
            return f"{at}: its id is {task.id!r}; an id is text that is not empty", None
        first = self._position_by_id.setdefault(task.id, self._position - 1)
        if first != self._position - 1:
            return f"{at}: its id {task.id!r} is also that of task {first}", None
        try:
            record = task.to_json()
            problem = _fields(task) or unsaid(record, "")
        except Exception as error:  # noqa: BLE001  (an author may have put anything in a field)
            return f"task {task.id!r}: {type(error).__name__}: {error}", None
        return (f"task {task.id!r}: {problem}" if problem else None), record


def _fields(task: Task) -> str | None:
    if not isinstance(task.prompt, str):
        return f"prompt is {type(task.prompt).__name__}, not text"
    for name in ("system", "context"):
        value = getattr(task, name)
        if not (value is None or isinstance(value, str)):
            return f"{name} is {type(value).__name__}, not text"
    for path, content in task.files.items():
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            return f"files: {path!r} is not a path inside the working directory"
        if not isinstance(content, str | bytes):
            return f"files: {path!r} is {type(content).__name__}, not text or bytes"
    return None if all(isinstance(tag, str) for tag in task.tags) else f"tags are {task.tags!r}, not all text"


def unsaid(value: Any, path: str) -> str | None:
    """Find the first value that JSON cannot say; null where there is none."""
    if value is None or isinstance(value, str | bool | int):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{path} is {value}, which JSON cannot say"
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                return f"{path} has the key {key!r}, and the keys of JSON are text"
            if (problem := unsaid(item, f"{path}.{key}" if path else key)) is not None:
                return problem
        return None
    if isinstance(value, list | tuple):
        problems = (unsaid(item, f"{path}[{index}]") for index, item in enumerate(value))
        return next((problem for problem in problems if problem is not None), None)
    return f"{path} is {type(value).__name__}, which JSON cannot say"


def explained(what: str, error: BaseException) -> UsageError:
    """Get one line that says what failed, how and at which line; the traceback's tail is its detail."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    cause = f"{type(error).__name__}: {error}".removesuffix(": ")
    explanation = UsageError(f"{what}: {cause}{place}")
    explanation.detail = told(error)
    return explanation


def told(error: BaseException | None) -> str | None:
    """Get the end of an error's traceback; null for what is no error of somebody's code."""
    if error is None or isinstance(error, UsageError):
        return None
    return "".join(traceback.format_exception(error))[-DETAIL_LIMIT:]
