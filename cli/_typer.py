"""Commands that typer reads, and the shell's completion: the two things for which typer is loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from hotswap.cli._complete import complete as complete_run
from hotswap.cli._say import program
from hotswap.errors import UsageError, did_you_mean

PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}
SHELLS = ("bash", "fish", "powershell", "pwsh", "zsh")
"""Those that typer has a script for."""


def call(name: str, function: Callable[..., Any], words: Sequence[str]) -> int:
    """Run one command and get its exit code. Raises UsageError for words that it does not take."""
    try:
        code = _command(name, function).main([*words], prog_name=f"{program()} {name}", standalone_mode=False)
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except typer.Exit as error:
        return error.exit_code
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise UsageError(error.format_message(), f"see: {program()} {name} --help") from error
    return code if isinstance(code, int) else 0


def complete(words: Sequence[str], names: Iterable[str]) -> int:
    """Answer the shell that asks what could come next, or show or install what asks.

    Raises UsageError for a shell that is named and that there is nothing for.
    """
    if words[:1] in (["--show-completion"], ["--install-completion"]) and len(words) > 1:
        _name_the_shell(words)
        words = []
    app = typer.Typer(cls=_Group, **PLAIN)
    app.callback(invoke_without_command=True)(_nothing)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name in names:
        group.add_command(_completed(name), name)
    group.main([*words], prog_name=Path(sys.argv[0]).name)
    return 0


def _name_the_shell(words: Sequence[str]) -> None:
    """Ask, as a shell would, for the script of the shell that is named."""
    option, shell = words[:2]
    if shell not in SHELLS:
        raise UsageError(f"no completion for {shell!r}.{did_you_mean(shell, SHELLS)}")
    if option == "--install-completion":
        shown = f"{program()} --show-completion {shell} prints the script"
        raise UsageError(f"{option} takes no word, and installs for the shell that it is run in; {shown}")
    os.environ[f"_{Path(sys.argv[0]).name.upper()}_COMPLETE"] = f"source_{shell}"


class _Group(TyperGroup):
    """The commands, and in their place a taskset."""

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[Any]:  # type: ignore[override]
        own = super().shell_complete(ctx, incomplete)
        return own if incomplete.startswith("-") else [*own, *complete_run((), incomplete)]

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        return super().resolve_command(ctx, args if args[0] in self.commands else ["run", *args])


class _Words(TyperCommand):
    """A command that reads its words itself."""

    offers: Callable[[Sequence[str], str], list[Any]]

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        ctx.args = [*args]
        return []

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[Any]:  # type: ignore[override]
        return self.offers(ctx.args, incomplete)


def _completed(name: str) -> Any:
    module = import_module(f"hotswap.cli.{name}")
    if not hasattr(module, "main"):
        return _command(name, getattr(module, name))
    command = _Words(name)
    command.offers = module.complete
    return command


def _command(name: str, function: Callable[..., Any]) -> Any:
    single = typer.Typer(add_completion=False, **PLAIN)
    single.command(name)(function)
    return typer.main.get_command(single)


def _nothing() -> None: ...
