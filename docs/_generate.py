"""Writes the generated parts of the documentation: what stands between `<!-- generated: NAME -->` and `<!-- end -->`.

    make docs                                              writes them
    uv run --group dev python docs/_generate.py --check    says which are stale, and exits with 1

Everything is read from where it is true: the sentence beneath each setting, the parts in the registry, the schema
of the trace, the files themselves. A test fails when a part is stale.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from hotswap import registry, trace, verdict
from hotswap.cli._flags import SHORT
from hotswap.cli._parts import written
from hotswap.contracts.options import Option, options
from hotswap.replay.comparing import VOLATILE
from hotswap.settings.fields import ModelTable, Replay, Selected, Settings, sections, sentences
from hotswap.tasksets._scorers import SCORERS

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md")
BLOCK = re.compile(r"(<!-- generated: (\S+) ?(\S*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

FLAG_BY_NAME = {name: flag for flag, name in SHORT.items()}
PLACES = {
    "README.md": "what it is, and how to begin",
    "CONTRIBUTING.md": "how to change it",
    "CHANGELOG.md": "what has changed for those who use it",
    "pyproject.toml": "the package, its dependencies, the settings of the tools",
    "eval.toml": "a commented run to start from",
    "Makefile": "what a contributor runs: `make check`",
    ".ci/run": "the whole check, on a machine that may have nothing of ours",
    "hotswap/": "what every run shares; knows no harness, runtime or taskset by name",
    "hotswap/doors/": "how a box with a network of its own reaches the proxy",
    "hotswap/capture/": "ids of tokens: what is asked for, what is read, the file that they are kept in",
    "hotswap/contracts/": "the types that parts are made of: Task, Taskset, Harness, Runtime, Preset",
    "hotswap/dialects/": "one file a wire format",
    "hotswap/exchanges/": "the raw requests and answers of a run: the format, one file a rollout, and all in one",
    "hotswap/graph/": "the messages of one rollout as a graph, and what kind of conversation each branch of it is",
    "hotswap/models/": "from a model's name to an endpoint, its key and its prices",
    "hotswap/presets/": "one file a provider, or a model that is served here",
    "hotswap/processes/": "processes: started cheaply, and ended for certain with all that came of them",
    "hotswap/provision/": "what a run needs beyond the package: made once by uv, and kept in a cache",
    "hotswap/proxy/": "the server that every agent program takes for its provider",
    "hotswap/replay/": "a recorded run in the place of a model: which exchange answers a request",
    "hotswap/settings/": "what the settings are, where they come from, which win",
    "hotswap/translation/": "between wire formats, for a program whose dialect the endpoint does not speak",
    "hotswap/worker/": "the warm process in which a taskset's own code runs, and the calls to it",
    "harnesses/": "one file an agent program",
    "runtimes/": "one file a place where programs run",
    "tasksets/": "one file a taskset",
    "cli/": "one file a command",
    "tests/": "mirrors the folders above; `_kit/` is what tests share",
    "docs/": "for users; `decisions/` says why things are as they are",
    "examples/": "a taskset, a harness and a runtime of your own, each one file; data to try them on",
    "benchmarks/": "each a script that prints a table and a ratio taken in one run",
}
"""One comment for each folder, and for each file that cannot say it itself."""
UNFOLDED = ("hotswap/", "hotswap/presets/", "harnesses/", "runtimes/", "tasksets/", "examples/")
"""Folders whose files have a line each in the map."""


def main(arguments: Sequence[str]) -> int:
    stale = []
    for path in pages():
        old = path.read_text("utf-8")
        new = renewed(old)
        if new != old:
            stale.append(path.relative_to(ROOT).as_posix())
            if "--check" not in arguments:
                path.write_text(new, "utf-8")
    if stale and "--check" in arguments:
        print(f"stale: {', '.join(stale)}. Write them again with: make docs", file=sys.stderr)
        return 1
    return 0


def pages() -> list[Path]:
    """Get every page that may have generated parts."""
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def renewed(text: str) -> str:
    """Get a page's text with its generated parts as they are now. Raises KeyError for a name that is none."""
    return BLOCK.sub(
        lambda match: f"{match[1]}{PARTS[match[2]](*match[3].split()).strip()}\n{match[5]}", text
    )


# settings


def settings() -> str:
    """Every setting that is not a part's, a table for each section."""
    tables = sections()
    own = [name for name in Settings.model_fields if name not in tables and name != "models"]
    parts = [_setting_table(Settings, own, "")]
    for name, section in tables.items():
        parts.append(
            f"### `[{name}]`\n\n{_sentence(section)}\n\n{_setting_table(section, section.model_fields, f'{name}.')}"
        )
    return "\n\n".join(parts)


def model_table() -> str:
    """The keys of `[models.NAME]`."""
    return _setting_table(ModelTable, ModelTable.model_fields, "")


def replay_settings() -> str:
    """What may stand behind `replay:RUN`."""
    return _setting_table(Replay, Replay.model_fields, "")


def volatile() -> str:
    """The fields that a replay does not compare."""
    rows = [(f"`{name}`", ", ".join(f"`{path}`" for path in paths)) for name, paths in VOLATILE.items()]
    return table(("dialect", "fields"), rows)


def _setting_table(section: type[BaseModel], names: Iterable[str], before: str) -> str:
    return table(
        ("setting", "type", "default", "what it is"), (_setting(section, name, before) for name in names)
    )


def _setting(section: type[BaseModel], name: str, before: str) -> tuple[str, str, str, str]:
    field = section.model_fields[name]
    default: Any = field.get_default(call_default_factory=True)
    kind = Option(name, field.annotation, default, "").type_name.replace("dict", "a table")
    if isinstance(default, Selected):
        default, kind = default.name, "a name, or a list of names"
    elif isinstance(default, BaseModel):
        default, kind = (), f"a table: {', '.join(f'`{key}`' for key in type(default).model_fields)}"
    short = FLAG_BY_NAME.get(name) if not before and section is Settings else None
    shown = f"`{before}{name}`" + (f", `{short}`" if short else "")
    return shown, kind, "" if default in (None, (), {}) else f"`{written(default)}`", sentences(section)[name]


def _sentence(section: type[BaseModel]) -> str:
    return " ".join((section.__doc__ or "").split())


# parts


def presets() -> str:
    """Every preset of models."""
    rows = []
    for name, entry in sorted(registry.entries("preset").items()):
        cls: Any = registry.load(entry)
        key = (
            f"`{cls.key_variable}`{'' if cls.key_required else ', if set'}"
            if cls.key_variable
            else "none needed"
        )
        address = f"`{cls.url}`" if cls.url else "started by the run"
        rows.append(
            (f"`-m {name if cls.single else f'{name}/MODEL'}`", address, key, _without_example(entry.summary))
        )
    return table(("model", "address", "key", "what it is"), rows)


def _without_example(summary: str) -> str:
    return re.sub(r":? `-m [^`]*`", "", summary)


def tasksets() -> str:
    """Every built-in taskset, with its settings and its scoring functions."""
    return "\n\n".join(_taskset(name) for name in registry.entries("taskset"))


def _taskset(name: str) -> str:
    cls: Any = registry.load(registry.find("taskset", name))
    facts = []
    if cls.demo_model:
        facts.append(f"Without `-m` it is played on `{cls.demo_model}`.")
    if cls.endless:
        facts.append("It has no end: `-n` is required, and it cannot be shuffled.")
    scoring = [
        f"- {scoring.kind} `{function}`: {_doc(getattr(cls, function))}"
        for function, scoring in cls.scoring_methods().items()
    ]
    return "\n\n".join((f"### `{name}`", " ".join((_doc(cls), *facts)), _options(cls), "\n".join(scoring)))


def harnesses() -> str:
    """Every built-in harness, with what it can do and its settings."""
    return "\n\n".join(_harness(name) for name in registry.entries("harness"))


def _harness(name: str) -> str:
    cls: Any = registry.load(registry.find("harness", name))
    system = {"replace": "replaces its own", "append": "is appended to its own", "none": "cannot be given"}
    facts = [
        ("dialects", ", ".join(f"`{dialect}`" for dialect in cls.dialects)),
        ("a system prompt", system[cls.system_prompt]),
        ("runs code", "yes" if cls.runs_code else "no"),
        ("version", cls.version),
    ]
    about = "\n".join(f"- {what}: {value}" for what, value in facts)
    return "\n\n".join((f"### `{name}`", inspect.cleandoc(cls.__doc__ or ""), about, _options(cls)))


def runtimes() -> str:
    """Every built-in runtime, with its settings."""
    return "\n\n".join(_runtime(name) for name in registry.entries("runtime"))


def _runtime(name: str) -> str:
    cls: Any = registry.load(registry.find("runtime", name))
    closed = "closed" if cls.closed else "not closed: agent code is not kept from this machine"
    return "\n\n".join((f"### `{name}`", inspect.cleandoc(cls.__doc__ or ""), f"- {closed}", _options(cls)))


def scorers() -> str:
    """Every named scorer."""
    return table(
        ("scorer", "what is right"), ((f"`{name}`", _doc(scorer.score)) for name, scorer in SCORERS.items())
    )


def _options(cls: type) -> str:
    rows = [
        (f"`{one.name}`", one.type_name, "required" if one.required else f"`{_quoted(one.default)}`", one.doc)
        for one in options(cls)
    ]
    return table(("setting", "type", "default", "what it is"), rows) if rows else "It has no settings."


def _quoted(default: Any) -> str:
    return json.dumps(default) if isinstance(default, str) and "\n" in default else written(default)


def _doc(described: Any) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(inspect.cleandoc(described.__doc__ or "").partition("\n\n")[0].split())


# the trace


def trace_fields() -> str:
    """Every field of a trace, from its schema: those of the line, then those of each record in it."""
    schema = trace.schema()
    parts = [_fields(schema)]
    for name, record in schema["$defs"].items():
        parts.append(f"### {name.replace('_', ' ')}\n\n{record['description']}\n\n{_fields(record)}")
    return "\n\n".join(parts)


def _fields(record: Mapping[str, Any]) -> str:
    rows = [
        (f"`{name}`", _json_type(field), field["description"]) for name, field in record["properties"].items()
    ]
    return table(("field", "type", "what it is"), rows)


def _json_type(field: Mapping[str, Any]) -> str:
    """How a person would say what a field of the schema holds."""
    if "anyOf" in field:
        return " or ".join(_json_type(one) for one in field["anyOf"])
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name.replace('_', ' ')}](#{name.replace('_', '-')})"
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return " or ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    kinds = field.get("type", "any")
    text = " or ".join([kinds] if isinstance(kinds, str) else kinds)
    inside = field.get("items") or field.get("additionalProperties")
    return f"{text} of {_json_type(inside)}" if isinstance(inside, Mapping) and inside else text


def outcomes() -> str:
    """The table of how a rollout can end, from the function that decides it."""
    lines = inspect.cleandoc(verdict.decide.__doc__ or "").splitlines()
    return "\n".join(line for line in lines if line.startswith("|"))


# files


def file(path: str) -> str:
    """A file, whole."""
    return (
        f"```{'python' if path.endswith('.py') else 'text'}\n{(ROOT / path).read_text('utf-8').rstrip()}\n```"
    )


def files() -> str:
    """The map of the repository. Raises KeyError for a folder that has no comment yet."""
    rows = list(_map())
    width = max(len(name) for name, _ in rows)
    return "```text\n" + "\n".join(f"{name:{width}}  {comment}" for name, comment in rows) + "\n```"


def _map() -> Iterator[tuple[str, str]]:
    for place in PLACES:
        if place.startswith("hotswap/") and place != "hotswap/":
            continue
        yield place, PLACES[place]
        if place in UNFOLDED:
            yield from _inside(place)


def _inside(folder: str, indent: str = "  ") -> Iterator[tuple[str, str]]:
    entries = sorted((ROOT / folder).iterdir(), key=lambda path: path.name)
    for path in entries:
        name = f"{folder}{path.name}"
        if path.is_dir() and any(path.glob("*.py")):
            yield f"{indent}{path.name}/", PLACES[f"{name}/"]
            if f"{name}/" in UNFOLDED:
                yield from _inside(f"{name}/", f"{indent}  ")
        elif path.suffix == ".py" and not path.name.startswith("_"):
            yield f"{indent}{path.name}", _comment(path)


def _comment(path: Path) -> str:
    """The first sentence of a file's docstring."""
    doc = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    first = " ".join(doc.partition("\n\n")[0].split())
    return re.split(r"\.(?:\s|$)", first)[0]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Get a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


PARTS: Mapping[str, Callable[..., str]] = {
    "settings": settings,
    "model-table": model_table,
    "replay-settings": replay_settings,
    "volatile": volatile,
    "presets": presets,
    "tasksets": tasksets,
    "harnesses": harnesses,
    "runtimes": runtimes,
    "scorers": scorers,
    "trace": trace_fields,
    "outcomes": outcomes,
    "file": file,
    "files": files,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
