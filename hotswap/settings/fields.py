"""Every setting of a run: its name, type, default, and the sentence that is its help text and documentation.

The settings of parts (`[harness.loop] tools = [...]`) are the parts' own: see `choices`. How a value is found
among the layers is told in `settings`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from hotswap.contracts import options
from hotswap.proxy.chaos import parse_chaos

DEFAULT_PARTS = {"harness": "loop", "runtime": "local"}


class Section(BaseModel):
    """A table of settings. Text is read as a person would type it; `none` is null where the type allows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        return _typed(value, cls.model_fields[info.field_name or ""].annotation)


class Sampling(Section):
    """What steers the model's answers. What is not set here, the program's own values keep."""

    temperature: float | None = Field(default=None, ge=0)
    """How much chance there is in the choice of each token."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """The share of likely tokens that is drawn from."""
    max_tokens: int | None = Field(default=None, ge=1)
    """The most tokens of one answer."""
    seed: int | None = None
    """Makes a provider that honours it repeat itself."""
    stop: tuple[str, ...] | None = None
    """Texts that end an answer."""
    effort: str | None = None
    """How long a reasoning model thinks, in the provider's word for it: low, medium, high."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Further fields that are put into each request, as they are."""

    @field_validator("stop", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) and value != "none" else value

    def values(self) -> dict[str, Any]:
        """Get what is set, by name."""
        return {name: value for name, value in self if value is not None and value != {}}


class Limits(Section):
    """What one rollout may use. A rollout that reaches one is stopped, and scored on what it left."""

    turns: int | None = Field(default=None, ge=1)
    """Completed model calls of one conversation: the main one and each sub-agent's have their own count. Requests
    without a system prompt are one conversation; those that a harness marks as side calls are not counted. The
    metric `turns` counts the main conversation alone."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens of all its calls, read and written."""
    cost: float | None = Field(default=None, gt=0)
    """US dollars."""
    seconds: float | None = Field(default=None, gt=0)
    """Time that the agent program has."""


class Budget(Section):
    """What the whole run may use. Once spent, rollouts are wound down and the tables written (exit 3)."""

    cost: float | None = Field(default=None, gt=0)
    """US dollars; refused for a model whose price is not known."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens of all calls, read and written."""
    seconds: float | None = Field(default=None, gt=0)
    """Time from the first rollout on."""
    in_flight: Literal["stop", "finish"] = "stop"
    """What becomes of rollouts that are played when it is spent: they get no further call, or are finished."""


class Calls(Section):
    """How the proxy treats a call to the provider that fails."""

    retries: int = Field(default=4, ge=0)
    """How often a call that failed for the provider's sake is repeated before the program is told."""
    timeout_s: float = Field(default=600.0, gt=0)
    """The longest silence of a provider: before its first byte, and between two events of a stream."""
    quiet_s: float = Field(default=20.0, ge=0)
    """After so long without a byte for the program, a stream is kept alive by a sign of ours; 0: never."""


class Prices(Section):
    """US dollars for a million tokens."""

    input: float | None = Field(default=None, ge=0)
    """Tokens read."""
    cached: float | None = Field(default=None, ge=0)
    """Tokens read from the provider's cache."""
    cache_write: float | None = Field(default=None, ge=0)
    """Tokens written to the provider's cache."""
    output: float | None = Field(default=None, ge=0)
    """Tokens written."""


class ModelTable(Section):
    """A model under a name of your own: `[models.NAME]`, used as `-m NAME`."""

    url: str | None = None
    """Where it is reached, with or without /v1."""
    model: str | None = None
    """Its id at that address, or another model's name (`openai/gpt-5-mini`) that this table changes."""
    key: str | None = None
    """The NAME of the environment variable that holds the key; never the key."""
    dialects: tuple[str, ...] | None = None
    """What it speaks, in order of preference: chat, responses, messages, gemini."""
    context: int | None = Field(default=None, ge=1)
    """Its context window in tokens."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers that are added to each request."""
    drop: tuple[str, ...] = ()
    """Fields of a request that it does not take, and that are left out."""
    prices: Prices = Prices()
    """What it costs."""
    sampling: Sampling = Sampling()
    """What is sent to it where the run sets nothing else."""

    @field_validator("key")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", value):
            raise ValueError("expected the NAME of an environment variable, as OPENAI_API_KEY, never the key")
        return value

    @field_validator("headers")
    @classmethod
    def _no_secret(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not (name + text).isprintable() or not name.strip():
                raise ValueError(f"{name!r}: a header is one line of text without control characters")
            if name.lower() in (
                "authorization",
                "proxy-authorization",
                "x-api-key",
                "api-key",
                "x-goog-api-key",
            ):
                raise ValueError(f"{name} is a secret: name the variable that holds it, key = 'MY_API_KEY'")
        return value

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and not re.match(r"https?://[^/]", value):
            raise ValueError("expected an address that begins with http:// or https://")
        if value is not None and "@" in value.split("/")[2]:
            raise ValueError("holds a password: name the variable that holds the key, key = 'MY_API_KEY'")
        return value


class Replay(Section):
    """How a run answers from a recording: `-m replay:RUN,mode=loose`."""

    mode: Literal["strict", "loose"] = "strict"
    """strict: a request must be the recorded one; loose: the next answer of its conversation, whatever was asked."""
    fallback: str | None = None
    """A model that answers what is not recorded; what is recorded as it was asked is answered from there."""
    timing: Literal["recorded"] | None = None
    """recorded: answers take the time that they took; none: they come at once."""
    of: str | None = None
    """Which model, or cell, of a recording that has several: its name, or a glob."""
    ignore: tuple[str, ...] = ()
    """Paths of a request's fields that are not compared, beside those that are not anyway: `metadata.*`, `**.id`."""
    exact: bool = False
    """Compare everything but `ignore`: dates, folders, made-up ids and the model too."""


class Selected(BaseModel):
    """Which parts of a kind are used. Their settings stand in the same table and are the parts' own."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: tuple[str, ...] = ()
    """A name or a list of names, each with settings of its own where it is to differ: `loop,tools=bash`."""

    @field_validator("name", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
            raise ValueError("expected a name, or a list of names")
        return tuple(names)


class Settings(Section):
    """Everything that a run can be told."""

    taskset: Selected = Selected()
    """The tasks: a taskset's name, `package.module:Class`, or a path to a .py file."""
    harness: Selected = Selected(name=(DEFAULT_PARTS["harness"],))
    """The agent program that the model runs in (-H)."""
    model: Selected = Selected()
    """The model (-m): `openai/gpt-5-mini`, a name from [models], or `NAME@http://host:port/v1`."""
    runtime: Selected = Selected(name=(DEFAULT_PARTS["runtime"],))
    """The place where the program runs (-r)."""

    tasks: int | None = Field(default=None, ge=1)
    """How many tasks, from the first on (-n); none: all of them."""
    attempts: int = Field(default=1, ge=1)
    """How often each task is attempted (-k)."""
    select: tuple[str, ...] = ()
    """Only these tasks: an id, a glob (`geo-*`), an index from 0, or a slice (`10:20`)."""
    exclude: tuple[str, ...] = ()
    """Not these tasks, named in the same ways."""
    shuffle: bool = False
    """Take the tasks in an order drawn from `seed`; the same on every machine."""
    seed: int = 0
    """Draws the order of `shuffle`, and which calls `chaos` spoils."""

    concurrency: int = Field(default=16, ge=1)
    """How many rollouts run at one time."""
    retries: int = Field(default=1, ge=0)
    """How often an attempt is tried again after a fault of the provider or the runtime."""
    allow_errors: str = "0"
    """How many rollouts may end without a score before the exit code is 3: a number, or a share as 5%."""
    output: Path | None = None
    """The run directory; none: a new one below `runs`."""
    runs: Path = Path("runs")
    """Where run directories are made."""
    raw: bool = True
    """Keep the raw requests and answers of every rollout, which is what a replay reads."""
    keep: Literal["failed", "all"] | None = None
    """Leave boxes for a look: `failed`, those without a score or with a reward below 1; `all`. None are, else."""
    capture: str | None = None
    """`tokens`: keep the ids and log-probabilities of what each call read and wrote, where the endpoint gives them."""

    sampling: Sampling = Sampling()
    """What steers the model's answers."""
    limits: Limits = Limits()
    """What one rollout may use."""
    budget: Budget = Budget()
    """What the whole run may use."""
    calls: Calls = Calls()
    """How a failing call is treated."""
    chaos: str | None = None
    """Misbehaviour towards the program on purpose, by share of its calls: `429:0.1,cut:0.05,slow:0.1`."""
    models: dict[str, ModelTable] = Field(default_factory=dict)
    """Models under names of your own: a table [models.NAME] is used as -m NAME."""

    @field_validator("capture")
    @classmethod
    def _captures(cls, value: str | None) -> str | None:
        if value not in (None, "tokens"):
            raise ValueError("expected tokens, or none")
        return value

    @field_validator("allow_errors", mode="before")
    @classmethod
    def _share(cls, value: Any) -> Any:
        text = str(value).strip()
        if isinstance(value, bool) or not re.fullmatch(r"\d+|\d+(\.\d+)?%|0?\.\d+", text):
            raise ValueError("expected a number (5), or a share (5% or 0.05)")
        return text

    @field_validator("chaos")
    @classmethod
    def _is_chaos(cls, value: str | None) -> str | None:
        if value is not None:
            parse_chaos(value)
        return value

    def errors_allowed(self, planned: int) -> int:
        """Get how many of `planned` rollouts may end without a score."""
        text = self.allow_errors
        if text.isdigit():
            return int(text)
        share = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
        return int(share * planned + 1e-9)

    def model_tables(self) -> dict[str, dict[str, Any]]:
        """Get `[models]` as plain tables that hold only what was set."""
        return {name: table.model_dump(exclude_unset=True) for name, table in self.models.items()}


def sections() -> dict[str, type[BaseModel]]:
    """Get the tables of settings by name; those that choose parts are none."""
    kinds = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {
        name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Section)
    }


@cache
def sentences(section: type[BaseModel]) -> dict[str, str]:
    """Get the sentence beneath each field of a section, by the field's name."""
    return options.sentences(section)


def _typed(value: Any, hint: Any) -> Any:
    """Read a value as a person would type it; tables are left to pydantic."""
    if any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in (hint, *get_args(hint))):
        return value
    if isinstance(value, str) and value.startswith("[") and is_list(hint):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            raise ValueError('expected a list, as ["a", "b"]') from None
    return options.coerce(value, hint)


def is_list(hint: Any) -> bool:
    return any(get_origin(kind) in (tuple, list) for kind in (hint, *get_args(hint)))
