"""Find a part: by its file's name, by entry point, as `package.module:Class`, or as a path to a `.py` file.

Built-in parts come through the same door as anybody's. Nothing is imported to find or to list one: a summary
is read from the source. Only `load` imports. Standard library only: the worker's child loads tasksets here.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal, get_args

from hotswap.contracts.options import Part
from hotswap.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = Literal["taskset", "harness", "runtime", "preset"]
FLAGS: dict[Kind, str] = {"harness": "-H", "runtime": "-r", "preset": "-m"}
"""How a part of each kind is named on the command line; a taskset is named first, without a flag."""
KINDS: tuple[Kind, ...] = get_args(Kind)

_FOLDERS: Mapping[Kind, str] = {
    "taskset": "hotswap.tasksets",
    "harness": "hotswap.harnesses",
    "runtime": "hotswap.runtimes",
    "preset": "hotswap.presets",
}
"""The package of the built-in parts of a kind, which is also the name of its group of entry points."""

_BASES: Mapping[Kind, str] = {
    "taskset": "hotswap.contracts.taskset:Taskset",
    "harness": "hotswap.contracts.harness:Harness",
    "runtime": "hotswap.contracts.runtime:Runtime",
    "preset": "hotswap.contracts.model:Preset",
}


@dataclass(frozen=True)
class Entry:
    """A part that was found and not yet imported. Every field is text, so that it travels as JSON."""

    kind: Kind
    name: str
    target: str
    """`package.module`, `package.module:Class`, `/path/to/file.py` or `/path/to/file.py:Class`."""
    origin: str
    """Where it comes from, for people: `built-in`, a package and its version, a file."""
    summary: str = ""
    """The first line of its class's docstring."""

    @property
    def place(self) -> str:
        """The module or the file, without the class."""
        return self._split[0]

    @property
    def class_name(self) -> str | None:
        """The class, where the target names one."""
        return self._split[1]

    @property
    def _split(self) -> tuple[str, str | None]:
        place, colon, name = self.target.rpartition(":")
        return (place, name) if colon and name.isidentifier() else (self.target, None)


def plain(name: str) -> str:
    """Get a name as it is compared: hyphen and underscore are the same."""
    return name.replace("-", "_")


def entries(kind: Kind) -> dict[str, Entry]:
    """Get every part of a kind that has a name, by name, built-in ones first; a built-in keeps its name."""
    found = {name: _built_in(kind, name, path) for name, path in sorted(_files(kind).items())}
    for name, offers in sorted(_offers(kind).items()):
        if name not in found:
            found[name] = offers[0] if len(offers) == 1 else _ambiguous(kind, name, offers)
    return found


def names(kind: Kind) -> set[str]:
    """Get the name of every part of a kind."""
    return {*_files(kind), *_offers(kind)}


def find(kind: Kind, ref: str) -> Entry:
    """Get the part that a person named. Raises UsageError, with a suggestion, where there is none."""
    name, files = plain(ref), _files(kind)
    if name in files:
        return _built_in(kind, name, files[name])
    if kind == "taskset" and re.search(r"\.(jsonl|csv|tsv)(\.gz)?$", ref):
        raise UsageError(f"no taskset {ref!r}. A file of rows is read by jsonl: jsonl --taskset.path {ref}")
    if (path := _path(ref)) is not None:
        return _from_file(kind, ref, path)
    offers = _offers(kind)
    if name in offers:
        return _only(kind, ref, offers[name])
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", ref):
        module, _, class_name = ref.partition(":")
        return Entry(kind, _snake(class_name), ref, f"module {module}")
    raise UsageError(f"no {kind} {ref!r}.{did_you_mean(ref, {*files, *offers})}{_hint(kind, ref)}")


def load(entry: Entry) -> type[Part]:
    """Import a part and get its class. Raises UsageError, with the cause and its line, where that fails."""
    module = _import(entry)
    base = _base(entry.kind)
    classes = list(_classes(module, base))
    if entry.class_name is not None:
        return _named(entry, module, base, classes)
    if len(classes) == 1:
        return classes[0]
    wanted = f"a class that extends hotswap.{base.__name__}"
    if not classes:
        unfinished = [_lacking(entry.place, cls) for cls in _classes(module, base, abstract=True)]
        raise UsageError(*(unfinished or [f"{entry.place} defines no {entry.kind}: {wanted}"]))
    names = ", ".join(cls.__name__ for cls in classes)
    example = f"{entry.place}:{classes[0].__name__}"
    raise UsageError(f"{entry.place} defines more than one {entry.kind} ({names}). Name one, as {example}")


def _named(entry: Entry, module: ModuleType, base: type[Part], classes: list[type[Part]]) -> type[Part]:
    cls = getattr(module, entry.class_name or "", None)
    if cls is None:
        suggestion = did_you_mean(entry.class_name or "", [found.__name__ for found in classes])
        raise UsageError(f"{entry.place} has no class {entry.class_name!r}.{suggestion}")
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise UsageError(f"{entry.target} is no {entry.kind}: it does not extend hotswap.{base.__name__}")
    if inspect.isabstract(cls):
        raise UsageError(_lacking(entry.place, cls))
    return cls


def _lacking(place: str, cls: type[Part]) -> str:
    """Say which methods a class must define and does not; a name that is nearly one of them is pointed at."""
    lacking = [name for name in dir(cls) if getattr(getattr(cls, name), "__isabstractmethod__", False)]
    own = [name for name, value in vars(cls).items() if callable(value) and not name.startswith("_")]
    close = [near for name in lacking for near in get_close_matches(name, own, n=1)]
    base = next(base.__name__ for base in cls.__mro__ if Part in base.__bases__)
    methods = " and ".join(f"{name}(...)" for name in lacking)
    misspelt = f" Is it what is spelt {' and '.join(map(repr, close))}?" if close else ""
    return f"{place}: class {cls.__name__} lacks {methods}, which every hotswap.{base} defines.{misspelt}"


def _files(kind: Kind) -> dict[str, str]:
    """Get the built-in parts' files by name. The folder is where the installed subpackage says it is."""
    found = {}
    for folder in import_module(_FOLDERS[kind]).__path__:
        with os.scandir(folder) as items:
            for item in items:
                name, suffix = os.path.splitext(item.name)  # noqa: PTH122  (pathlib costs more than the rest of this)
                if suffix == ".py" and not name.startswith("_"):
                    found[name] = item.path
    return found


def _built_in(kind: Kind, name: str, path: str) -> Entry:
    return Entry(kind, name, f"{_FOLDERS[kind]}.{name}", "built-in", _summary(kind, Path(path)))


def _offers(kind: Kind) -> dict[str, list[Entry]]:
    """Get what installed packages offer, by name."""
    from importlib.metadata import entry_points  # costs more than everything else here

    found: dict[str, list[Entry]] = {}
    for point in entry_points(group=_FOLDERS[kind]):
        offer = _offer(kind, point)
        same = found.setdefault(offer.name, [])
        if offer.target not in [other.target for other in same]:
            same.append(offer)
    return found


def _offer(kind: Kind, point: EntryPoint) -> Entry:
    package = f"{point.dist.name} {point.dist.version}" if point.dist else "a package"
    source = point.dist.locate_file(point.module.replace(".", "/") + ".py") if point.dist else None
    summary = _summary(kind, Path(str(source)), point.attr or None) if source else ""
    return Entry(kind, plain(point.name), point.value.replace(" ", ""), package, summary)


def kinds_with(setting: str) -> list[Kind]:
    """Get the kinds of which a built-in part has that setting. Reads sources, and imports nothing."""
    return [
        kind
        for kind in KINDS
        if kind != "preset" and any(setting in _declared(Path(path)) for path in _files(kind).values())
    ]


def declared(entry: Entry) -> set[str] | None:
    """Get the settings of a built-in part from its source; null for another's, which may inherit some."""
    file = _files(entry.kind).get(entry.name) if entry.origin == "built-in" else None
    return _declared(Path(file)) if file is not None else None


def _declared(file: Path) -> set[str]:
    """Read the annotated attributes of a file's classes."""
    classes = [node for node in ast.parse(file.read_bytes()).body if isinstance(node, ast.ClassDef)]
    fields = [field for node in classes for field in node.body if isinstance(field, ast.AnnAssign)]
    return {field.target.id for field in fields if isinstance(field.target, ast.Name)}


def _only(kind: Kind, ref: str, offers: list[Entry]) -> Entry:
    if len(offers) > 1:
        all_of_them = " and ".join(f"{offer.origin} ({offer.target})" for offer in offers)
        raise UsageError(f"{kind} {ref!r} is offered by {all_of_them}. Name one as package.module:Class")
    return offers[0]


def _ambiguous(kind: Kind, name: str, offers: list[Entry]) -> Entry:
    origins = " and ".join(offer.origin for offer in offers)
    return Entry(kind, name, offers[0].target, origins, "Offered twice: name one as package.module:Class")


def _path(ref: str) -> str | None:
    """Get the file's part of a reference that is a path, as `x.py`, `./x.py`, `x.py:Class`, `folder/x.py`."""
    match = re.fullmatch(r"(.*\.py)(?::[A-Za-z_]\w*)?", ref, re.DOTALL)
    if match:
        return match[1]
    return ref if ref.startswith(("./", "../", "/", "~")) else None


def _from_file(kind: Kind, ref: str, path: str) -> Entry:
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        problem = "is a folder" if file.is_dir() else "does not exist"
        raise UsageError(f"no {kind} file {path!r}: {file} {problem}")
    if file.suffix != ".py":
        raise UsageError(f"no {kind} {ref!r}: it is no Python file. {_instead(kind, ref)}")
    class_name = ref[len(path) + 1 :]
    target = f"{file}:{class_name}" if class_name else str(file)
    name = plain(_snake(class_name) if class_name else file.stem)
    return Entry(kind, name, target, f"file {path}", _summary(kind, file, class_name or None))


def _hint(kind: Kind, ref: str) -> str:
    """Say what else the word could have meant: a file that was named without its `.py`, or a program."""
    file = Path(f"{ref}.py")
    if "/" not in ref and file.is_file():
        return f" To use the file: ./{file}"
    if Path(ref).is_file() or (kind == "harness" and _is_command(ref)):
        return f" {_instead(kind, ref)}"
    other = next((other for other in FLAGS if other != kind and plain(ref) in names(other)), None)
    return f" It is a {'model' if other == 'preset' else other}: {FLAGS[other]} {ref}" if other else ""


def _is_command(ref: str) -> bool:
    """Whether the first word is the name of a program that can be started."""
    from shutil import which  # only a mistake needs it

    return which(ref.partition(" ")[0]) is not None


def _instead(kind: Kind, ref: str) -> str:
    """Say what to do with a file or a program that was named in a part's place."""
    if kind == "harness":
        word = os.path.expanduser(ref).partition(" ")[0]  # noqa: PTH111  (a command's name is no path)
        program = Path(word).absolute() if Path(word).is_file() else word
        example = f'def launch(self, job): return Launch(argv=("{program}", job.prompt), env=...)'
        return f"A program is started by a harness class, as docs/harnesses.md shows: {example}"
    if kind == "taskset":
        return (
            f"Rows are read by jsonl: jsonl --taskset.path {ref}. Anything else by a class: docs/tasksets.md"
        )
    return f"A {kind} is a class in one"


def _import(entry: Entry) -> ModuleType:
    path = _path(entry.place)
    try:
        return import_module(entry.place) if path is None else _import_file(Path(path))
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if path is None and missing is not None and f"{entry.place}.".startswith(f"{missing}."):
            raise UsageError(f"no module {missing!r}, which {entry.kind} {entry.target!r} names") from error
        exists = f"{entry.kind} {entry.name!r} exists ({entry.place})"
        raise UsageError(f"{exists}, and importing it failed: {_cause(entry, error)}") from error


def _import_file(path: Path) -> ModuleType:
    """Import a file under a name of its own. Files beside it can be imported by it, and shadow nothing."""
    name = f"hotswap_file_{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _cause(entry: Entry, error: BaseException) -> str:
    """Say what went wrong while importing, and where: in the part's own file, if it is on the way."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    own = [frame for frame in outside if _belongs(frame.filename, entry.place)]
    last = (own or outside)[-1:]
    return text + "".join(f" ({frame.filename}:{frame.lineno})" for frame in last)


def _belongs(filename: str, place: str) -> bool:
    return filename == place or Path(filename).stem == place.rpartition(".")[2]


def _base(kind: Kind) -> type[Part]:
    module, _, name = _BASES[kind].partition(":")
    base: type[Part] = getattr(import_module(module), name)
    return base


def _classes(module: ModuleType, base: type[Part], *, abstract: bool = False) -> Iterator[type[Part]]:
    """Find the parts that a module defines itself, and not those that it only imports or keeps private."""
    for name, value in vars(module).items():
        if (
            not isinstance(value, type)
            or not issubclass(value, base)
            or inspect.isabstract(value) != abstract
        ):
            continue
        if value.__module__ == module.__name__ and value.__name__ == name and not name.startswith("_"):
            yield value


def _summary(kind: Kind, file: Path, class_name: str | None = None) -> str:
    """Read the first line of the part's docstring from its source; empty where it cannot be read."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ""
    base = _BASES[kind].rpartition(":")[2]
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    named = [node for node in classes if node.name == class_name]
    own = [node for node in classes if base in {ast.unparse(name).rpartition(".")[2] for name in node.bases}]
    nodes: tuple[ast.ClassDef | ast.Module, ...] = (*named, *own, *classes, tree)
    for node in nodes:
        if doc := ast.get_docstring(node):
            return doc.partition("\n")[0].strip()
    return ""


def _snake(class_name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_name).lower()
