"""The help of `eval run`: every setting with its sentence, and those of the parts that are named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel

from hotswap import registry
from hotswap.cli._columns import columns, wrapped
from hotswap.cli._flags import ACTIONS, SHORT, Line
from hotswap.cli._parts import settings_of, written
from hotswap.cli._say import program
from hotswap.settings.choices import parse_variant
from hotswap.settings.fields import ModelTable, Selected, Settings, sections, sentences
from hotswap.settings.layers import normal

GROUPS = {
    "What is evaluated": ("taskset", "harness", "model", "runtime"),
    "Which tasks": ("tasks", "attempts", "select", "exclude", "shuffle", "seed"),
    "How it runs": ("concurrency", "retries", "allow_errors", "chaos"),
    "What it keeps": ("output", "runs", "raw", "capture"),
}
FURTHER = "Further settings"
"""Where a setting stands that no group names: none is left out."""

HEAD = """\
Play a taskset's tasks and print the tables.

  {eval} TASKSET [TASKSET...] [-m MODEL] [-H HARNESS] [-r RUNTIME] [OPTIONS]

  {eval} capitals
  {eval} gsm8k -m openai/gpt-5-mini -n 20 --sampling.temperature 0
  {eval} gsm8k -m openai/gpt-5-mini,effort=high -H loop,tools=bash
  {eval} jsonl --taskset.path rows.jsonl -m NAME@http://127.0.0.1:8000/v1
"""

TAIL = """\
Each setting has the same name in TOML and in the environment (HOTSWAP_LIMITS__TURNS=5). Flags win over
-f files, then come the environment, ./eval.toml, and your own ~/.config/hotswap/eval.toml. "none" is null.
Exit codes: 0 complete, 2 cannot work, 3 incomplete, 130 interrupted.
"""


def run_help(line: Line) -> str:
    """Get the help; what the parts on the line take stands first."""
    named = any(normal(given.key)[0] in ("taskset", "harness", "runtime") for given in line.given)
    about_parts = list(_parts(line))
    blocks = [HEAD.format(eval=program()), *(about_parts if named else ())]
    blocks += (_group(title, (_row(Settings, name) for name in names)) for title, names in _groups().items())
    for name, section in sections().items():
        blocks.append(_group(section.__doc__ or name, _section(section, name)))
    blocks.append(_group(sentences(Settings)["models"], _model_table()))
    blocks += [_group("What to do", ACTIONS.items()), *(() if named else about_parts)]
    return "\n".join((*blocks, wrapped(" ".join(TAIL.split()))))


def _groups() -> dict[str, Sequence[str]]:
    """Get the settings that stand in no table, by the title of their group."""
    grouped = {name for names in GROUPS.values() for name in names} | {"models", *sections()}
    further = [name for name in Settings.model_fields if name not in grouped]
    return {**GROUPS, **({FURTHER: further} if further else {})}


def _group(title: str, rows: Iterable[tuple[str, str]]) -> str:
    return f"{wrapped(' '.join(title.split()))}\n{columns(rows, 2)}\n"


def _section(section: type[BaseModel], before: str) -> Iterator[tuple[str, str]]:
    return (_row(section, name, f"{before}.") for name in section.model_fields)


def _row(section: type[BaseModel], name: str, before: str = "") -> tuple[str, str]:
    """Get a setting's flag, and its sentence with the default."""
    short = next((f"{short}, " for short, long in SHORT.items() if long == name and not before), "")
    default = section.model_fields[name].get_default(call_default_factory=True)
    if isinstance(default, Selected):
        default = default.name
    shown = "" if default in (None, (), {}) else f" [{written(default)}]"
    return f"{short}--{before}{name.replace('_', '-')}", f"{sentences(section)[name]}{shown}"


def _model_table() -> Iterator[tuple[str, str]]:
    for name, field in ModelTable.model_fields.items():
        flag, sentence = f"--models.NAME.{name}", sentences(ModelTable)[name]
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield f"{flag}.KEY", f"{sentence} ({', '.join(inner.model_fields)})"
        else:
            yield flag, sentence


def _parts(line: Line) -> Iterator[str]:
    """Show the settings of the tasksets, harnesses and runtimes on the line; and which others there are."""
    named: dict[str, list[str]] = {kind: [] for kind in ("taskset", "harness", "runtime")}
    for given in line.given:
        key = normal(given.key)
        if key[0] in named and key[1:] == ("name",):
            named[key[0]].append(str(given.value))
    for kind in registry.KINDS:
        if kind == "preset":
            continue
        if not named[kind]:
            entries = registry.entries(kind).values()
            yield _group(f"Every {kind}", [(entry.name, entry.summary) for entry in entries])
        for text in named[kind]:
            entry = registry.find(kind, parse_variant(text)[0])
            rows = [
                (f"--{kind}.{entry.name}.{one.name}", f"{one.doc} [{one.default}]")
                for one in settings_of(entry)
            ]
            yield _group(f"{kind} {entry.name}: {entry.summary}", rows or [("", "It has no settings.")])
