"""Dataclasses as JSON values, and back: what traces and results are written with. Standard library only."""

from __future__ import annotations

import dataclasses
import json
import re
import types
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

PLAIN = frozenset({str, int, float, bool, type(None)})

_LONE = re.compile("[\ud800-\udfff]")


def to_text(record: Any, indent: int | None = None) -> str:
    """Get JSON values as text that any program can read. NaN is a ValueError.

    Half of a surrogate pair is no character, and jq, orjson and Rust refuse a whole file for its escape: it is
    spelled out, as a backslash and `ud835`.
    """
    separators = (",", ":") if indent is None else None
    text = json.dumps(record, ensure_ascii=False, separators=separators, allow_nan=False, indent=indent)
    return text if text.isascii() else _LONE.sub(lambda half: rf"\\u{ord(half[0]):04x}", text)


def write(value: Any) -> Any:
    """Get `value` as JSON values: dataclasses become objects with every field, tuples become lists."""
    kind: Any = type(value)
    if kind in PLAIN:
        return value
    names = _names(kind)
    if names is not None:
        return {name: write(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {key: write(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [write(item) for item in value]
    return value


def read(cls: type[T], record: Any) -> T:
    """Build the dataclass `cls` from JSON values. Keys that it does not know are left out.

    Where null stands for a field that cannot be null, the field's default is taken.
    """
    kind: Any = cls
    built: T = _builder(kind)(record)
    return built


Reader = Callable[[Any], Any]


@cache
def _reader(hint: Any) -> Reader | None:
    """What turns JSON into a value of type `hint`; null where it is one already."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        rest = [argument for argument in arguments if argument is not type(None)]
        return _reader(rest[0]) if len(rest) == 1 else None
    if _names(hint) is not None:
        return _builder(hint)
    inner = _reader(arguments[-1 if origin is dict else 0]) if origin in (list, tuple, dict) else None
    if origin is tuple:
        return (lambda value: tuple(map(inner, value))) if inner else tuple
    if inner is None:
        return None
    if origin is dict:
        return lambda value: {key: inner(item) for key, item in value.items()}
    return lambda value: [inner(item) for item in value]


@cache
def _builder(cls: Any) -> Reader:
    hints = get_type_hints(cls)
    fields = {
        spec.name: (_nullable(hints[spec.name], spec), hints[spec.name]) for spec in dataclasses.fields(cls)
    }
    readers: dict[str, Reader | None] = {}

    def build(record: Any) -> Any:
        given = {}
        for name, item in record.items():
            if name not in fields or (item is None and not fields[name][0]):
                continue
            if name not in readers:  # not before: a type may hold itself
                readers[name] = _reader(fields[name][1])
            reader = readers[name]
            given[name] = item if item is None or reader is None else reader(item)
        return cls(**given)

    return build


def _nullable(hint: Any, spec: dataclasses.Field[Any]) -> bool:
    """Whether null is a value of its own there, or there is no default to take in its place."""
    required = spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
    return required or hint is Any or type(None) in get_args(hint)


@cache
def _names(cls: Any) -> tuple[str, ...] | None:
    return tuple(spec.name for spec in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else None
