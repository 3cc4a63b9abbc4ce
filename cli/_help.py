"""The help of `eval run`: every setting with its sentence, and those of the parts that are named."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hotswap import registry
from hotswap.cli._columns import columns, wrapped
from hotswap.cli._flags import ACTIONS, SHORT, Line
from hotswap.cli._parts import settings_of, written
from hotswap.cli._say import program
from hotswap.contracts.options import MISSING
from hotswap.settings.choices import parse_variant
from hotswap.settings.fields import ModelTable, Selected, Settings
from hotswap.settings.layers import SELECTORS, normal

GROUPS = {
    "What is evaluated": ("taskset", "harness", "model", "runtime"),
    "Which tasks": ("tasks", "attempts", "select", "exclude", "shuffle", "seed"),
    "How it runs": ("concurrency", "retries", "allow_errors", "output", "runs"),
}

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
    """Get the help, with the settings of the parts that the line names."""
    named = any(normal(given.key)[0] in ("taskset", "harness", "runtime") for given in line.given)
    about_parts = list(_parts(line))
    parts = [HEAD.format(eval=program()), *(about_parts if named else ())]
    for title, names in GROUPS.items():
        parts.append(_group(title, (_field(name, Settings.model_fields[name]) for name in names)))
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel) and name not in SELECTORS:
            parts.append(_group(section.__doc__ or name, _section(name, section)))
    parts.append(_group("A model of your own, [models.NAME]", _section("models.NAME", ModelTable)))
    parts.append(_group("What to do", ACTIONS.items()))
    parts += () if named else about_parts
    parts.append("\n".join(wrapped(text) for text in TAIL.replace("\n", " ").strip().split("  ")))
    return "\n".join(parts)


def _group(title: str, rows: Iterator[tuple[str, str]] | object) -> str:
    return f"{wrapped(' '.join(title.split()))}\n{columns(list(rows), 2)}\n"  # type: ignore[call-overload]


def _field(name: str, field: FieldInfo, before: str = "") -> tuple[str, str]:
    short = next((f"{short}, " for short, long in SHORT.items() if long == name and not before), "")
    flag = f"{short}--{before}{name.replace('_', '-')}"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, Selected):
        default = ",".join(default.name) or None
    shown = (
        ""
        if default in (None, (), {}, MISSING) or isinstance(default, BaseModel)
        else f" [{written(default)}]"
    )
    return flag, f"{field.description or ''}{shown}"


def _section(before: str, section: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for name, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel) and before.startswith("models"):
            names = ", ".join(inner.model_fields)
            yield f"--{before}.{name}.KEY", f"{field.description} ({names})"
        else:
            yield _field(name, field, f"{before}.")


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
