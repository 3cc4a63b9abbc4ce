"""The default harness: a system prompt, a prompt and tools in a loop. `_loop_program.py` is the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from hotswap.contracts.harness import Finish, Harness, Install, Job, Launch, SystemPrompt
from hotswap.contracts.runtime import Result
from hotswap.errors import UsageError

PROGRAM = Path(__file__).with_name("_loop_program.py")
USED_UP = 3
"""The program's exit code where its turns were used up."""
SYSTEM_FILE = ".loop/system.md"
"""Below the box's home folder."""


class Loop(Harness):
    """System prompt, prompt and, if asked for, tools, in a loop until the model answers without a tool.

    A task's context follows its prompt, after an empty line. Its answer is the last message of the model.
    """

    tools: tuple[Literal["bash"], ...] = ()
    """Tools that the model may call: bash, which runs commands in the working directory."""
    system: str | None = None
    """A system prompt, in place of the task's own."""
    command_timeout_s: float = 120.0
    """Seconds that one command of the tool bash may take; then it is killed, and the model is told."""
    output_limit: int = 20_000
    """Bytes of a command's output that the model is shown; the middle of a longer one is left out."""
    max_turns: int = 100
    """Model calls at most; what is left then is scored. `limits.turns` does the same for every harness."""

    dialects: ClassVar[tuple[str, ...]] = ("chat",)
    system_prompt: ClassVar[SystemPrompt] = "replace"
    runs_code: ClassVar[bool] = True
    """By its tools alone: without any, it runs nothing."""
    version: ClassVar[str] = "1"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        numbers = {name: getattr(self, name) for name in ("command_timeout_s", "output_limit", "max_turns")}
        problems = [
            f"{name} = {value:g}: expected more than 0, and less than a billion"
            for name, value in numbers.items()
            if not 0 < value < 1e9
        ]
        if problems:
            raise UsageError(*problems)

    def install(self) -> Install:
        return Install(script=PROGRAM)

    def launch(self, job: Job) -> Launch:
        system = job.system if self.system is None else self.system
        files = {SYSTEM_FILE: _encode(system)} if system else {}
        argv = [*job.command, "--base-url", f"{job.endpoint.url}/v1", "--model", job.endpoint.model]
        argv += ["--max-turns", str(self.max_turns)]
        if files:
            argv += ["--system", f"~/{SYSTEM_FILE}"]
        if self.tools:
            argv += ["--tools", ",".join(self.tools)]
            argv += [
                "--command-timeout-s",
                repr(self.command_timeout_s),
                "--output-limit",
                str(self.output_limit),
            ]
        prompt = job.prompt if job.context is None else f"{job.prompt}\n\n{job.context}"
        return Launch(
            argv=tuple(argv), env={"LOOP_API_KEY": job.endpoint.key}, files=files, stdin=_encode(prompt)
        )

    def conclude(self, result: Result) -> Finish:
        """Read what went wrong from the last line on stderr; the answer is in the trace."""
        if result.exit == USED_UP:
            return Finish(stop="turns")
        lines = result.stderr.text.strip().splitlines()
        if not result.exit or not lines:
            return Finish()
        return Finish(fault=lines[-1].removeprefix("loop: "))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
