"""What a harness's author writes: how an agent program is installed, launched and read.

A harness does no I/O. It turns a job into a launch (argv, environment, files, standard input) and what the program
left into a finish; the framework provisions, runs, limits, records and cleans up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from hotswap.contracts.options import Part
from hotswap.contracts.runtime import Result, check_start

SystemPrompt = Literal["replace", "append", "none"]


@dataclass(frozen=True)
class Endpoint:
    """Where a harness sends its model calls: our proxy, under a secret that is good for one rollout."""

    url: str
    """As reached from inside the box, without a path; each dialect's base path hangs below it."""
    key: str = field(repr=False)
    model: str = ""
    """The name that is shown to the program."""
    context: int | None = None
    """Tokens; null where it is not known."""


@dataclass(frozen=True)
class Install:
    """What must be in the box before the program can be launched."""

    script: Path | None = None
    """A uv script (PEP 723) that is the program; its environment is prepared once, by uv."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One thing to do, as the program is to be told it."""

    prompt: str
    endpoint: Endpoint
    command: tuple[str, ...]
    """What `install` asked for, as the beginning of an argv in this box."""
    workdir: str
    """Absolute path in the box of the directory that the program works in."""
    home: str
    """Absolute path in the box of the home folder, which `Launch.files` are put into."""
    system: str | None = None
    context: str | None = None
    deadline_s: float | None = None
    """Seconds that the program has; null where it is not limited."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How the program is started. `files` are put in the box first, by path relative to its home folder."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes | None = None

    def __post_init__(self) -> None:
        check_start(self)


@dataclass(frozen=True)
class Finish:
    """What the program left: its answer as it gave it, why it ended by its own account, its session."""

    answer: str | None = None
    """Null: take the last message of the main branch."""
    fault: str | None = None
    """What the program itself says went wrong, in one sentence."""
    session: str | None = None
    stop: str | None = None
    """The limit of the program's own that ended it, such as `turns`; what it left is scored. Null: none did."""


class Harness(Part, ABC):
    """An agent program. It knows the proxy's address and never the provider's."""

    dialects: ClassVar[tuple[str, ...]] = ("chat",)
    """The dialects that the program can speak, in order of preference."""
    system_prompt: ClassVar[SystemPrompt] = "none"
    """What becomes of a system prompt: it replaces the program's own, is appended to it, or cannot be given."""
    runs_code: ClassVar[bool] = False
    """Whether the model can make the program run commands."""
    version: ClassVar[str] = "1"
    """The version of the program, as recorded in each trace."""

    def install(self) -> Install:
        """What must be in the box."""
        return Install()

    @abstractmethod
    def launch(self, job: Job) -> Launch:
        """How the program is started on `job`. Pure."""

    def conclude(self, result: Result) -> Finish:  # noqa: ARG002
        """Read what the program left. Pure. The default: the answer is the last message of the main branch."""
        return Finish()
