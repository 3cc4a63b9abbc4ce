"""The command: `eval TASKSET ...` and `eval COMMAND ...`.

A command is a file in this folder: found by its name, and imported when it is called. `eval TASKSET ...` is
`eval run TASKSET ...`; a taskset's file that is named as a command is reached as `./NAME.py`.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from hotswap import __version__
from hotswap.cli._say import program
from hotswap.errors import HotswapError, UsageError

OK, CANNOT_WORK, INTERRUPTED = 0, 2, 130
DEFAULT = "run"

HELP = """\
Evaluate a model in an agent program on a set of tasks, and swap any of them with one flag.

  {eval} TASKSET [OPTIONS]
  {eval} COMMAND [OPTIONS]

Examples:
  {eval} capitals
      A small model on this machine: no key, no account.
  {eval} gsm8k -m openai/gpt-5-mini -n 20
      20 tasks, on a model of OpenAI's (its key in OPENAI_API_KEY).
  {eval} gsm8k -m openai/gpt-5-mini -H loop,tools=bash -n 20 -k 4
      The same in an agent that may run commands, each task four times.
  {eval} ./my_taskset.py -m NAME@http://127.0.0.1:8000/v1
      Your own tasks, on your own server.
  {eval} gsm8k -m openai/gpt-5-mini --dry-run
      What would run, and where each setting comes from.

Commands:
{commands}

{eval} run --help shows every setting; {eval} COMMAND --help what a command takes.
Settings also stand in ./eval.toml, in ~/.config/hotswap/eval.toml and in HOTSWAP_* variables.

Options:
  --version             Print the version.
  --install-completion  Make the shell complete words of `hotswap`.
  --show-completion     Print what --install-completion would install.
  --help                Show this.
"""


class Commands(TyperGroup):
    """The files of this folder as commands; what is none of them is a taskset to run."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002
        return sorted(_files())

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]  # noqa: ARG002
        return _command(cmd_name) if cmd_name in _files() else None

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        return super().parse_args(ctx, _with_command(args))

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # noqa: ARG002
        formatter.write(help_text())


app = typer.Typer(cls=Commands, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def _root(ctx: typer.Context, version: bool = typer.Option(False, "--version")) -> None:
    if version:
        typer.echo(f"hotswap {__version__}")
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and get its exit code. What cannot work is said on stderr, without a traceback."""
    words = list(sys.argv[1:] if argv is None else argv)
    _survive_any_locale()
    command = typer.main.get_command(app)
    try:
        code = command.main(args=words, prog_name=Path(sys.argv[0]).name, standalone_mode=False)
    except HotswapError as error:
        problems = error.problems if isinstance(error, UsageError) else (str(error),)
        return _refuse(*problems, *_meant_a_command(words))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left: `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return _refuse(
            error.format_message(), f"see: {program()} {' '.join(_with_command(words)[:1])} --help"
        )
    return code if isinstance(code, int) else OK


def help_text() -> str:
    """Get the text of `--help`."""
    width = max(map(len, _files()))
    commands = "\n".join(f"  {name:{width}}  {_summary(path)}" for name, path in sorted(_files().items()))
    return HELP.format(eval=program(), commands=commands)


def _files() -> dict[str, Path]:
    folder = Path(__file__).parent
    return {
        path.stem: path
        for path in folder.glob("*.py")
        if not path.name.startswith("_") and path.stem != Path(__file__).stem
    }


def _command(name: str) -> Any:
    """Import a command's file and get its function as a command: `command`, or the one named as the file."""
    module = import_module(f"hotswap.cli.{name}")
    function = getattr(module, "command", None) or getattr(module, name)
    single = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    cls = getattr(module, "COMMAND", typer.core.TyperCommand)
    single.command(name, cls=cls)(function)
    return typer.main.get_command(single)


def _with_command(words: Sequence[str]) -> list[str]:
    """Put `run` before what is no command and no option of the group's own."""
    own = (*_files(), "--help", "--version", "--install-completion", "--show-completion")
    return [*words] if not words or words[0] in own else [DEFAULT, *words]


def _meant_a_command(words: Sequence[str]) -> list[str]:
    """Say so where the first word is nearly a command's name, and was taken for a taskset."""
    close = get_close_matches(words[0], _files(), n=1) if words and words[0] not in _files() else []
    return [f"or the command? {program()} {close[0]}"] if close else []


def _refuse(*problems: str) -> int:
    for line in "\n".join(problems).splitlines():
        print(f"eval: {line}", file=sys.stderr)
    return CANNOT_WORK


def _survive_any_locale() -> None:
    """A character that the terminal's encoding does not have becomes `?`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _summary(path: Path) -> str:
    """Read the first line of a command's docstring without importing it."""
    tree = ast.parse(path.read_bytes())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    function = functions.get("command") or functions.get(path.stem)
    doc = ast.get_docstring(function) if function else None
    return (doc or "").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
