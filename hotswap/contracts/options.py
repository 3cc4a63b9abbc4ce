"""The settings of a part, declared as its class's annotated attributes.

    class Loop(Harness):
        tools: tuple[str, ...] = ()
        \"\"\"Tools that the model may call.\"\"\"

The attribute is the setting, the sentence beneath it is its help text, and the same name works in TOML
(`[harness.loop] tools = ["bash"]`), as a flag (`--harness.loop.tools bash`) and in a variant (`-H loop,tools=bash`).
Standard library only: a taskset's class is also read inside foreign environments.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, Union, dataclass_transform, get_args, get_origin

from hotswap.errors import UsageError, did_you_mean

MISSING: Any = object()
"""The default of a setting that has none."""

NAMES = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    Path: "a path",
    dict: "a table",
    Any: "anything",
}
"""How a person calls a type."""
TOO_LARGE = "a number must be finite, up to 1.8e308"
TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class Option:
    """One setting of a part: its name, type, default and sentence."""

    name: str
    type: Any
    default: Any
    doc: str

    @property
    def required(self) -> bool:
        return self.default is MISSING

    @property
    def type_name(self) -> str:
        """How a person would write the type: `int`, `"exact" | "contains"`, `list of str`."""
        return _type_name(self.type)


@dataclass_transform(kw_only_default=True)
class Part:
    """The base of all that can be swapped: its annotated public attributes are its settings.

    Building one coerces each value to its type (text from a flag as well as a value from TOML) and raises UsageError
    with one line for every setting that is unknown, missing or of the wrong type.
    """

    def __init__(self, **settings: Any) -> None:
        known = {option.name: option for option in options(type(self))}
        problems = [
            f"unknown setting {name!r}.{did_you_mean(name, known)}" for name in settings if name not in known
        ]
        for name, option in known.items():
            if name in settings:
                try:
                    setattr(self, name, coerce(settings[name], option.type))
                except ValueError as error:
                    problems.append(f"{name} = {settings[name]!r}: {error}")
            elif option.required:
                problems.append(f"{_required(type(self), option)}: {option.doc}")
            else:
                setattr(self, name, option.default)
        if problems:
            raise UsageError(*problems)

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting with its value, in order of declaration."""
        return {option.name: getattr(self, option.name) for option in options(type(self))}


def _required(cls: type, option: Option) -> str:
    """Say that a setting is missing, and how a person types it: the kind is the base right below Part."""
    kind = next((base.__name__.lower() for base in cls.__mro__ if Part in base.__bases__), "part")
    value = "PATH" if option.type is Path else "VALUE"
    name = f"setting {option.name!r} ({option.type_name})"
    return f"{name} is required, as --{kind}.{option.name} {value}"


def options(cls: type) -> tuple[Option, ...]:
    """Get the settings that a class and its bases declare, the bases' first."""
    return _declared(cls)


@cache
def _declared(cls: type) -> tuple[Option, ...]:
    found: dict[str, Option] = {}
    for base in reversed(cls.__mro__):
        beneath = sentences(base)
        hints = _hints(base)
        for name in inspect.get_annotations(base):
            hint = hints[name]
            if name.startswith("_") or hint is ClassVar or get_origin(hint) is ClassVar:
                continue
            default = base.__dict__.get(name, MISSING)
            found[name] = Option(name, hint, default, beneath.get(name, ""))
    return tuple(found.values())


def coerce(value: Any, hint: Any) -> Any:
    """Get `value` as the type `hint`; text is read as a person would type it. ValueError says what was expected."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return _finite(value)
    if origin in (Union, types.UnionType):
        return _coerce_union(value, arguments)
    if origin is Literal:
        return _coerce_literal(value, arguments)
    if hint in (list, tuple) or origin in (list, tuple, Sequence):
        return _coerce_sequence(value, hint)
    if hint is dict or origin in (dict, Mapping):
        return _coerce_mapping(value, arguments)
    return _coerce_scalar(value, hint)


def _coerce_union(value: Any, choices: tuple[Any, ...]) -> Any:
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        if type(None) in choices:
            return None
        raise ValueError("may not be none")
    rest = [choice for choice in choices if choice is not type(None)]
    ordered = sorted(rest, key=lambda choice: choice is str)  # text fits everything: try it last
    problems = []
    for choice in ordered:
        try:
            return coerce(value, choice)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError("; or ".join(problems))


def _coerce_literal(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if value == choice or (isinstance(value, str) and value == str(choice)):
            return choice
    raise ValueError(f"expected one of {', '.join(map(str, choices))}")


def _coerce_sequence(value: Any, hint: Any) -> Any:
    kind = tuple if hint is tuple or get_origin(hint) is tuple else list
    item = next((argument for argument in get_args(hint) if argument is not Ellipsis), Any)
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, Sequence):
        raise ValueError("expected a list")
    return kind(coerce(part, item) for part in value)


def _coerce_mapping(value: Any, arguments: tuple[Any, ...]) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError('expected a table, as JSON: {"key": "value"}') from None
    if not isinstance(value, Mapping):
        raise ValueError("expected a table")
    item = arguments[1] if len(arguments) == 2 else Any
    return {str(key): coerce(part, item) for key, part in value.items()}


def _coerce_scalar(value: Any, hint: Any) -> Any:
    if hint is bool:
        return _coerce_bool(value)
    if hint in (int, float):
        return _coerce_number(value, hint)
    if hint is Path and isinstance(value, str | Path):
        return Path(value).expanduser()
    if isinstance(hint, type) and isinstance(value, hint):
        return value
    raise _expected(hint)


def _coerce_bool(value: Any) -> bool:
    text = value.strip().lower() if isinstance(value, str) else None
    if isinstance(value, bool):
        return value
    if text in TRUE + FALSE:
        return text in TRUE
    raise _expected(bool)


def _coerce_number(value: Any, hint: type[int] | type[float]) -> int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | hint):
        raise _expected(hint)
    try:
        number = hint(value.strip().replace("_", "") if isinstance(value, str) else value)
    except OverflowError:
        raise ValueError(TOO_LARGE) from None
    except ValueError:
        raise _expected(hint) from None
    return number if isinstance(number, int) else _finite(number)


def _finite(value: Any) -> Any:
    """Get a value, and what is in it, unless a number in it is none that JSON can say."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(TOO_LARGE if math.isinf(value) else "NaN is no number")
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for item in inner:
        _finite(item)
    return value


def _expected(hint: Any) -> ValueError:
    return ValueError(f"expected {_type_name(hint)}")


def _type_name(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is type(None):
        return "none"
    if origin in (Union, types.UnionType):
        return " | ".join(_type_name(argument) for argument in arguments)
    if origin is Literal:
        return " | ".join(json.dumps(argument) for argument in arguments)
    if origin in (dict, Mapping):
        return NAMES[dict]
    if origin in (list, tuple, Sequence):
        return f"list of {_type_name(next((a for a in arguments if a is not Ellipsis), Any))}"
    return str(NAMES.get(hint, getattr(hint, "__name__", hint)))


def _hints(cls: type) -> dict[str, Any]:
    """Resolve a class's own annotations; the module's names and the class's own namespace count."""
    own = inspect.get_annotations(cls)
    if not any(isinstance(hint, str) for hint in own.values()):
        return dict(own)
    return typing.get_type_hints(cls, include_extras=True)


def sentences(cls: type) -> dict[str, str]:
    """Read the sentence beneath each annotated attribute from the class's source; none where there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for field, below in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
        ):
            text = below.value.value if isinstance(below.value, ast.Constant) else None
            if isinstance(text, str):
                found[field.target.id] = " ".join(text.split())
    return found
