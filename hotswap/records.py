"""Dataclasses as JSON values, and back: what traces and results are written with. Standard library only."""

from __future__ import annotations

import dataclasses
import types
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

PLAIN = frozenset({str, int, float, bool, type(None)})


def write(value: Any) -> Any:
    """Get `value` as JSON values: dataclasses become objects with every field, tuples become lists."""
    kind = type(value)
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
    built: T = _read(cls, record)
    return built


def _read(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        rest = [argument for argument in arguments if argument is not type(None)]
        return _read(rest[0], value) if len(rest) == 1 else value
    if dataclasses.is_dataclass(hint):
        return _build(hint, value)
    if origin is list:
        return [_read(arguments[0], item) for item in value]
    if origin is tuple:
        return tuple(_read(arguments[0], item) for item in value)
    if origin is dict:
        return {key: _read(arguments[1], item) for key, item in value.items()}
    return value


def _build(cls: Any, record: Any) -> Any:
    known = _fields(cls)
    given = {}
    for name, item in record.items():
        if name in known and (item is not None or known[name].nullable):
            given[name] = _read(known[name].hint, item)
    return cls(**given)


@dataclasses.dataclass(frozen=True)
class _Field:
    hint: Any
    nullable: bool
    """Null is a value of its own, or there is no default to take in its place."""


@cache
def _fields(cls: type) -> dict[str, _Field]:
    hints = get_type_hints(cls)
    return {
        spec.name: _Field(hints[spec.name], _nullable(hints[spec.name], spec))
        for spec in dataclasses.fields(cls)
    }


def _nullable(hint: Any, spec: dataclasses.Field[Any]) -> bool:
    required = spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
    return required or hint is Any or type(None) in get_args(hint)


@cache
def _names(cls: type) -> tuple[str, ...] | None:
    return tuple(spec.name for spec in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else None
