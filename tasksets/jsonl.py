"""Tasks from a JSONL or CSV file of your own, without Python. One row, and how it is run:

{"id": "fr", "prompt": "What is the capital of France?", "answer": "Paris", "tags": ["europe"]}

uv run eval jsonl --taskset.path questions.jsonl --taskset.scorer contains -m ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from hotswap.contracts.task import Task
from hotswap.contracts.taskset import Score, Taskset, reward
from hotswap.errors import Fault, UsageError
from hotswap.tasksets._columns import Ids, Template, read_files, read_tags
from hotswap.tasksets._rows import Row, RowError, read, tasks
from hotswap.tasksets._scorers import SCORERS, Options, check_options, score
from hotswap.trace import Trace


class Jsonl(Taskset):
    """Tasks from any JSONL or CSV file: templates over its columns, and a scorer by name."""

    path: Path
    """The file: JSON lines, or .csv or .tsv with a first row of column names; .gz is unpacked."""
    prompt: str = "{prompt}"
    """What is asked: text with {column} in it; a literal brace is written twice."""
    answer: str | None = "{answer}"
    """The right answer, likewise; a column alone keeps its JSON value. "none": there is none."""
    system: str | None = None
    """A system prompt, likewise."""
    id: str | None = "id"
    """The column of the tasks' ids; a row without one gets an id by its content."""
    tags: str | None = "tags"
    """The column of the tags, where rows have it: a list, or text with commas."""
    files: str | None = "files"
    """The column of files for the working directory, where rows have it: a table of path and text."""
    scorer: Literal["exact", "contains", "last_number", "choice", "regex", "json"] = "exact"
    """How an answer is compared with the right one."""
    pattern: str | None = None
    """For `regex`: what is looked for; its first group is compared with the right answer, if there is one."""
    ignore_case: bool = False
    """For `exact`, `contains` and `regex`: upper and lower case are the same."""

    def load(self) -> Iterator[Task]:
        problems: list[str] = []
        with _noted(problems):
            check_options(self.scorer, self._options, has_answer=self.answer is not None)
        columns = _Columns(self, problems)
        if problems:
            raise UsageError(*problems)
        yield from tasks(read(self.path), self.path, columns.task)

    @property
    def _options(self) -> Options:
        return Options(self.pattern, self.ignore_case)

    @reward
    def correct(self, task: Task, trace: Trace) -> Score:
        """The answer is right by the chosen scorer. Where the right answer is null: an error, and not a 0.

        A run is refused before it comes to that; an author's own program may still ask.
        """
        if task.answer is None and self.answer is not None:
            message = (
                f"task {task.id!r} has null for its right answer, so scorer {self.scorer!r} cannot score it"
            )
            raise Fault("taskset", "scoring", "no_right_answer", message)
        return score(self.scorer, trace.answer, task.answer, self._options)


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """Add what is wrong to a list, and go on behind the block."""
    try:
        yield
    except (UsageError, RowError) as error:
        problems += error.problems if isinstance(error, UsageError) else error.args


class _Columns:
    """Makes a task of each row, as the settings say."""

    def __init__(self, settings: Jsonl, problems: list[str]) -> None:
        """`problems` gets what is wrong with the templates; where it is not empty, this cannot be used."""
        self._settings = settings
        with _noted(problems):
            self._prompt = Template(settings.prompt, "prompt")
        with _noted(problems):
            self._answer = Template(settings.answer, "answer") if settings.answer is not None else None
        with _noted(problems):
            self._system = Template(settings.system, "system") if settings.system is not None else None
        self._ids = Ids(settings.id, required=settings.id not in (None, "id"))
        self._count = 0

    def task(self, row: Row) -> Task:
        self._count += 1
        try:
            self._refuse_constants(row)
            return self._task(row)
        except UsageError as error:
            others = (f"{self._settings.path}:{row.line}: {problem}" for problem in self._problems(row))
            raise UsageError(*error.problems, *others) from None
        except RowError:
            raise RowError(*self._problems(row)) from None

    def _task(self, row: Row) -> Task:
        name, prompt, answer = self._ids.of(row), self._text(self._prompt, row), self._right(row)
        return Task(
            id=name,
            prompt=prompt,
            answer=answer,
            problem=self._unscorable(row) if answer is None and self._answer else None,
            system=self._text(self._system, row) if self._system else None,
            tags=self._optional("tags", read_tags, row),
            files=self._optional("files", read_files, row),
        )

    def _problems(self, row: Row) -> list[str]:
        """List all that keeps a row from becoming a task: each part of it is tried by itself."""
        system = self._system
        problems: list[str] = []
        for part in (
            lambda: self._ids.of(row),
            lambda: self._text(self._prompt, row),
            lambda: self._right(row),
            lambda: self._text(system, row) if system else None,
            lambda: self._optional("tags", read_tags, row),
            lambda: self._optional("files", read_files, row),
        ):
            with _noted(problems):
                part()
        return problems

    def _refuse_constants(self, row: Row) -> None:
        """Refuse what is the same for every row: the scores would look like a model's, and mean nothing.

        One prompt for all is sound where the rows differ in something else that the model is given.
        """
        answer = self._answer
        if self._prompt.names_a_column and (answer is None or answer.names_a_column):
            return
        differs = bool(self._system and self._system.names_a_column) or bool(
            self._settings.files is not None and row.values.get(self._settings.files)
        )
        constants = []
        if not self._prompt.names_a_column and (self._prompt.is_name(row) or not differs):
            constants.append(self._prompt.no_column(row))
        if answer and not answer.names_a_column and (answer.is_name(row) or self._count > 1):
            constants.append(answer.no_column(row))
        if constants:
            raise UsageError(*map(str, constants))

    def _text(self, template: Template, row: Row) -> str:
        value = template.value(row)
        if isinstance(value, list | dict):
            kind = "list" if isinstance(value, list) else "table"
            raise RowError(
                f"taskset.{template.setting} is {template.text!r}, a {kind} in this row; text is wanted"
            )
        text = template.fill(row)
        if not text.strip():
            raise RowError(f"taskset.{template.setting} is {template.text!r}, which is empty in this row")
        return text

    def _right(self, row: Row) -> Any:
        expected = self._answer.value(row) if self._answer else None
        if expected is None and self._answer:
            return None
        problem = SCORERS[self._settings.scorer].check(expected, self._settings._options)
        if problem:
            raise RowError(f"{problem} (scorer {self._settings.scorer!r})")
        return expected

    def _unscorable(self, row: Row) -> str:
        settings = self._settings
        null = f"taskset.answer is {settings.answer!r}, which is null in this row"
        return f"{settings.path}:{row.line}: {null}: scorer {settings.scorer!r} cannot score it"

    def _optional(self, name: Literal["tags", "files"], read_cell: Callable[[Any], Any], row: Row) -> Any:
        """A column that is taken where the row has it; one that was named on purpose must be there."""
        column = getattr(self._settings, name)
        if column is None or (column == name and column not in row.values):
            return read_cell(None)
        try:
            return read_cell(row.column(column))
        except RowError as error:
            raise RowError(f"{error}; taskset.{name} is {column!r} (none: leave it)") from None
