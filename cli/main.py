"""The command: `eval TASKSET ...` and `eval COMMAND ...`.

A command is a file in this folder, found by its name and imported when it is called. Either it has a function
`main(words)` that reads its words itself, or a function of the file's name that typer reads. `eval TASKSET ...` is
`eval run TASKSET ...`; a taskset's file that is named as a command is reached as `./NAME.py`.

Typer is loaded for the second kind and for completion only: it takes longer than all that a list has to do.
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

from hotswap import __version__
from hotswap.cli._say import called, discard, program
from hotswap.errors import HotswapError, UsageError

OK, CANNOT_WORK, INCOMPLETE, INTERRUPTED = 0, 2, 3, 130
DEFAULT = "run"
NO_COMMANDS = {
    "replay": "a recorded run is given as a model, {eval} TASKSET -m replay:{run}",
    "compare": "what is compared is played in one run, by repeating a flag: {eval} TASKSET -H loop -H loop,tools=bash "
    "(or -m MODEL -m MODEL)",
}
"""Words that people try, and what there is in their place."""
COMPLETION = (["--install-completion"], ["--show-completion"])

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and get its exit code. What cannot work is said on stderr, without a traceback."""
    words = list(sys.argv[1:] if argv is None else argv)
    _survive_any_locale()
    code = OK
    try:
        code = _dispatch(words)
        if sys.stdout is not None:  # as it is where standard output was closed
            sys.stdout.flush()
        return code
    except HotswapError as error:
        problems = error.problems if isinstance(error, UsageError) else (str(error),)
        return _refuse(*problems, *_meant_a_command(words))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left: `... | head`
        discard(sys.stdout)
        return code
    except OSError as error:
        if not _output_fails():
            raise
        discard(sys.stdout)
        print(f"{called()}: standard output cannot be written: {error.strerror}", file=sys.stderr)
        return INCOMPLETE


def commands() -> dict[str, Path]:
    """Get the files of this folder that are commands, by name."""
    files = Path(__file__).parent.glob("*.py")
    return {path.stem: path for path in files if not path.stem.startswith("_") and path.stem != "main"}


def help_text() -> str:
    """Get the text of `--help`."""
    width = max(map(len, commands()))
    lines = "\n".join(f"  {name:{width}}  {_summary(path)}" for name, path in sorted(commands().items()))
    return HELP.format(eval=program(), commands=lines)


def _dispatch(words: list[str]) -> int:
    if any(name.endswith("_COMPLETE") for name in os.environ) or words[:1] in COMPLETION:
        from hotswap.cli._typer import complete

        return complete(words, commands())
    if not words or words[0] in ("--help", "-h"):
        print(help_text(), end="")
        return OK
    if words[0] == "help":
        return _dispatch([*words[1:], "--help"])
    if words[0] == "--version":
        print(f"hotswap {__version__}")
        return OK
    _refuse_no_folder()
    name, *rest = words if words[0] in commands() else (DEFAULT, *words)
    module = import_module(f"hotswap.cli.{name}")
    if hasattr(module, "main"):
        code: int = module.main(rest)
        return code
    from hotswap.cli._typer import call

    return call(name, getattr(module, name), rest)


def _meant_a_command(words: Sequence[str]) -> list[str]:
    """Say so where the first word is nearly a command's name, or what others call one, and was taken for a taskset."""
    if words and words[0] in NO_COMMANDS:
        what = NO_COMMANDS[words[0]].format(eval=program(), run=words[1] if len(words) > 1 else "RUN")
        return [f"there is no command {words[0]!r}: {what}"]
    close = get_close_matches(words[0], commands(), n=1) if words and words[0] not in commands() else []
    return [f"or the command? {program()} {close[0]}"] if close else []


def _refuse(*problems: str) -> int:
    for line in "\n".join(problems).splitlines():
        print(f"{called()}: {line}", file=sys.stderr)
    return CANNOT_WORK


def _refuse_no_folder() -> None:
    """Refuse a working directory that was deleted: settings and runs have their place below it."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UsageError("the working directory does not exist any more: change to one that does") from None


def _output_fails() -> bool:
    """Whether standard output is what raises: then an empty line more cannot be written either."""
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        return True
    return False


def _survive_any_locale() -> None:
    """A character that the terminal's encoding does not have becomes `?`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _summary(path: Path) -> str:
    """Read the first line of a command's docstring without importing it."""
    tree = ast.parse(path.read_bytes())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    function = functions.get("main") or functions.get(path.stem)
    doc = ast.get_docstring(function) if function else None
    return (doc or "").partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
