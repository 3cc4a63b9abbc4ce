"""A task: one row of work, the same for every harness, model and runtime."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hotswap.contracts.environment import Environment


@dataclass(frozen=True, kw_only=True)
class Task:
    """One row of work: what is asked, with what, and what a right answer is."""

    id: str
    """Unique in its taskset and the same on every machine and in every run."""
    prompt: str
    """What the user says, verbatim."""
    answer: Any = None
    """What a right answer is, for the scoring functions; the agent never sees it. Any JSON value."""
    system: str | None = None
    """A system prompt of the task's own."""
    context: str | None = None
    """Long material apart from the prompt; each harness says how it hands it over."""
    files: Mapping[str, bytes | str] = field(default_factory=dict)
    """Files that stand in the working directory before the agent starts, by relative path."""
    tags: tuple[str, ...] = ()
    """Names of the slices that this task belongs to."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What else scoring needs. Any JSON values."""
    environment: Environment | None = None
    """The place that the agent works in: image, resources, network; null: whatever the runtime gives."""
    problem: str | None = None
    """Why no rollout on it could be scored, with its place: a run that would use this task is refused."""

    @cached_property
    def hash(self) -> str:
        """`sha256:` and the hex digest of what the task is: everything but its id and tags."""
        others = ("id", "tags", "problem")
        content = {key: value for key, value in self.to_json().items() if key not in others}
        text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Get the task as JSON values; empty fields are left out, bytes become {"base64": ...}."""
        record: dict[str, Any] = {"id": self.id, "prompt": self.prompt}
        if self.answer is not None:
            record["answer"] = self.answer
        for name in ("system", "context"):
            if getattr(self, name) is not None:
                record[name] = getattr(self, name)
        if self.files:
            record["files"] = {path: _pack(content) for path, content in self.files.items()}
        if self.tags:
            record["tags"] = list(self.tags)
        if self.data:
            record["data"] = dict(self.data)
        if self.environment is not None:
            record["environment"] = self.environment.to_json()
        if self.problem is not None:
            record["problem"] = self.problem
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Task:
        """Build the task that `to_json` wrote; keys that this version does not know are ignored."""
        return cls(
            id=record["id"],
            prompt=record["prompt"],
            answer=record.get("answer"),
            system=record.get("system"),
            context=record.get("context"),
            files={path: _unpack(content) for path, content in record.get("files", {}).items()},
            tags=tuple(record.get("tags", ())),
            data=record.get("data", {}),
            environment=Environment.from_json(record["environment"]) if "environment" in record else None,
            problem=record.get("problem"),
        )


def _pack(content: bytes | str) -> str | dict[str, str]:
    return content if isinstance(content, str) else {"base64": base64.b64encode(content).decode()}


def _unpack(content: str | Mapping[str, str]) -> bytes | str:
    return content if isinstance(content, str) else base64.b64decode(content["base64"])
