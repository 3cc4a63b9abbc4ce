"""Checks that every test shares which writes what other people read."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from hotswap.trace import Trace, schema


@cache
def _validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(schema())
    return Draft202012Validator(schema())


def problems(record: Any) -> list[str]:
    """What is wrong with one trace line, each as a path and a sentence."""
    return [f"{error.json_path}: {error.message}" for error in _validator().iter_errors(record)]


def check_trace(record: Trace | dict[str, Any] | bytes) -> None:
    """Fail unless this is a trace as the schema describes it; takes a trace, its JSON values or its line."""
    if isinstance(record, Trace):
        record = record.to_line()
    found = problems(json.loads(record) if isinstance(record, bytes) else record)
    assert not found, "\n".join(found)
