"""The record of one rollout, and how it is written as one line of JSON.

The field names are fixed: other people's scripts read them. `trace.schema.json`, beside this file, describes
the line, and tests validate every trace that they write against it. Standard library only: scoring functions
receive a Trace.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hotswap.errors import ErrorRecord
from hotswap.messages import ToolCall, Usage, texts
from hotswap.records import read, to_text, write

SCHEMA = 1

Outcome = Literal["scored", "error"]
BranchKind = Literal["main", "subagent", "side", "compacted"]
OWN: tuple[BranchKind, ...] = ("main", "compacted")
"""The kinds of branches that the main conversation took."""


@dataclass
class CellRecord:
    """Which combination was played."""

    name: str
    taskset: str
    harness: str
    harness_version: str
    model: str
    runtime: str
    served_model: str | None = None
    """The model that answered, by its own account; null where it did not say."""
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass
class TaskRecord:
    """Which task was played."""

    id: str
    hash: str
    data: dict[str, Any] = field(default_factory=dict)
    """The task itself, as JSON values."""


@dataclass
class Try:
    """An earlier try of the same attempt, or this one: what went wrong, and what it cost."""

    error: ErrorRecord | None = None
    cost_usd: float | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass
class RewardRecord:
    """One reward: `value` is null where its scorer failed."""

    value: float | None
    weight: float = 1.0
    note: str | None = None
    extracted: Any = None
    expected: Any = None


@dataclass
class LaunchRecord:
    """One start of the program."""

    agent: str
    exit: int | None
    signal: int | None
    session: str | None = None


@dataclass
class Node:
    """A message, with the one that it follows."""

    id: int
    parent: int | None
    role: str
    content: Any = None
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_call_id: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    sampled: bool = False
    """The model wrote it, in `call`; else the program sent it."""
    call: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The content as text; parts that are no text, and what the model thought, are left out."""
        return "".join(texts(self.content))


@dataclass
class Branch:
    """A path through the messages, by its last one."""

    leaf: int
    kind: BranchKind = "main"
    agent: str = "main"
    forked: int | None = None
    """The last message that it shares with a branch before it; null where it shares none."""
    drift: bool = False
    """The program rewrote its history: it went on beside this branch, from `forked`."""


@dataclass
class CallTry:
    """One request to the provider."""

    status: int | None
    duration_s: float
    error: str | None = None


@dataclass
class CallRecord:
    """One exchange with the provider, its repetitions included."""

    input: int | None
    """The last message of the request."""
    outputs: list[int]
    """The messages that came back."""
    dialect: str
    path: str
    model: str
    status: int | None
    started: float
    translated: str | None = None
    tries: list[CallTry] = field(default_factory=list)
    first_byte_s: float | None = None
    duration_s: float | None = None
    finish: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    tools: str | None = None
    """Key of the tools that were offered, in the trace's `tools`."""
    dropped: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    served_model: str | None = None
    agent: str = "main"
    kind: BranchKind = "main"
    error: ErrorRecord | None = None
    fault: str | None = None
    """The misbehaviour that the run put in on purpose; null where there was none."""
    replayed: bool = False
    """The answer came from a recorded run."""
    made_stream: bool = False
    """The endpoint answered in one piece, and the stream that the program had asked for was made of it."""
    token_break: bool | None = None
    """Whether its prompt, in ids of tokens, does not extend the call before; null where none were captured."""
    unread: str | None = None
    """Why its request went up without its messages being read: they are not in the trace. Null where they are."""


@dataclass
class HelperRecord:
    """A request of the program that was no turn: a token counter, a route that nobody knows."""

    method: str
    path: str
    status: int | None
    started: float
    duration_s: float | None = None
    error: ErrorRecord | None = None
    """A fault of ours; what a provider answers is none."""


@dataclass
class EgressRecord:
    """A host that the box tried to reach by the way out that a list of hosts gives it."""

    host: str
    port: int
    allowed: bool
    count: int = 1
    """How often it was tried."""


@dataclass
class BoxRecord:
    """What the program ran in."""

    runtime: str | None = None
    """The runtime that made it, where the one of the cell chose another."""
    network: str | None = None
    """`open`, `closed`, or the hosts that could be reached."""
    not_enforced: list[str] = field(default_factory=list)
    """What was asked for and was not held."""
    egress: list[EgressRecord] = field(default_factory=list)


@dataclass
class Timing:
    """When and how long. Epoch seconds, and durations in seconds."""

    started: float = 0.0
    box_s: float | None = None
    setup_s: float | None = None
    agent_s: float | None = None
    model_s: float | None = None
    scoring_s: float | None = None


@dataclass
class Trace:
    """The record of one rollout."""

    id: str
    run: str
    cell: CellRecord
    task: TaskRecord
    attempt: int
    outcome: Outcome = "error"
    stop: str = "done"
    """`done`, `turns`, `tokens`, `cost`, `seconds`, `budget`, `user_turns`, `interrupted`, or a taskset's."""
    reward: float | None = None
    """The weighted sum of the rewards; null where one is missing."""
    rewards: dict[str, RewardRecord] = field(default_factory=dict)
    metrics: dict[str, float | None] = field(default_factory=dict)
    error: ErrorRecord | None = None
    answer: str | None = None
    tries: list[Try] = field(default_factory=list)
    launches: list[LaunchRecord] = field(default_factory=list)
    messages: list[Node] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    tools: dict[str, list[Any]] = field(default_factory=dict)
    calls: list[CallRecord] = field(default_factory=list)
    helpers: list[HelperRecord] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    timing: Timing = field(default_factory=Timing)
    box: BoxRecord = field(default_factory=BoxRecord)
    versions: dict[str, str | None] = field(default_factory=dict)
    schema: int = SCHEMA
    unknown: dict[str, Any] = field(default_factory=dict)
    """Top-level keys of a newer version, kept as read."""

    @property
    def main(self) -> list[Node]:
        """The messages of the main branch, first to last; empty where no call was completed."""
        branch = next((branch for branch in self.branches if branch.kind == "main"), None)
        return self.path(branch.leaf) if branch else []

    def path(self, leaf: int) -> list[Node]:
        """The messages from the first to `leaf`."""
        nodes = []
        at: int | None = leaf
        while at is not None:
            nodes.append(self.messages[at])
            at = self.messages[at].parent
        return nodes[::-1]

    @property
    def turns(self) -> int:
        """Completed calls of the main conversation, those included whose history the program left behind."""
        return sum(1 for call in self.calls if call.kind in OWN and call.error is None and call.outputs)

    def to_json(self) -> dict[str, Any]:
        """The trace as JSON values, `schema` first."""
        record = {"schema": self.schema, **write(self)}
        unknown = record.pop("unknown")
        return {**record, **unknown}

    def to_line(self) -> bytes:
        """One line of UTF-8 JSON with its newline. A lone surrogate is spelled out; NaN is a ValueError."""
        return to_text(self.to_json()).encode() + b"\n"

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Trace:
        """Build the trace that `to_json` wrote."""
        names = {spec.name for spec in dataclasses.fields(cls)} - {"unknown"}
        trace = read(cls, {key: value for key, value in record.items() if key in names})
        trace.unknown = {key: value for key, value in record.items() if key not in names}
        return trace

    @classmethod
    def from_line(cls, line: bytes) -> Trace:
        """Build the trace that `to_line` wrote."""
        return cls.from_json(json.loads(line))


def schema() -> dict[str, Any]:
    """Get the JSON Schema (2020-12) of one line of traces.jsonl; each field has its sentence there."""
    described: dict[str, Any] = json.loads(Path(__file__).with_name("trace.schema.json").read_bytes())
    return described
