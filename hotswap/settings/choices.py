"""Which parts a run uses, and the settings of each.

A choice is text: `loop`, or a variant `loop,tools=bash,command_timeout_s=5` (a piece without `=` continues the
value before it). Settings of parts also stand in tables: `[harness] tools = ...` for every harness that is
chosen, and `[harness.loop] tools = ...` for one. The higher layer wins, then the more specific; a variant
beats both.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from hotswap import registry
from hotswap.contracts.options import Option, Part, coerce, options
from hotswap.errors import UsageError, did_you_mean
from hotswap.registry import Entry, plain
from hotswap.settings.fields import ModelTable, Replay, Sampling
from hotswap.settings.layers import Key, Layer, Repeated, dotted

REPLAY = "replay:"
"""What the reference of a model begins with that is a recorded run."""


@dataclass(frozen=True)
class Choice:
    """A part that a run uses, with its settings. Every field is a JSON value."""

    kind: str
    ref: str
    """As it was named, without its variant: `loop`, `./my_agent.py`, `openai/gpt-5-mini`."""
    name: str
    """What its table is called: `[harness.NAME]`. A model's is its reference."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What is set, by name; what is not here is the part's default."""
    variant: Mapping[str, str] = field(default_factory=dict)
    """Those of the settings that were given beside the name, as text."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each of the settings was given."""
    entry: Entry | None = None
    """Where the part is found; null for a model."""

    @property
    def text(self) -> str:
        """The choice as a person would write it."""
        return ",".join((self.ref, *(f"{name}={value}" for name, value in self.variant.items())))

    @property
    def label(self) -> str:
        """The choice as a part of a cell's name, in which a slash separates."""
        base = re.sub(r"\w+://", "", self.ref) if self.entry is None else self.name
        if self.is_replay:
            base = f"{REPLAY}{Path(self.ref.removeprefix(REPLAY)).name}"
        label = ",".join((base, *(f"{name}={value}" for name, value in sorted(self.variant.items()))))
        return label.replace("/", ":")

    @property
    def is_replay(self) -> bool:
        """Whether it is a recorded run in the place of a model."""
        return self.kind == "model" and self.ref.startswith(REPLAY)

    def build(self) -> Part:
        """Import the part and make it, with these settings."""
        if self.entry is None:
            raise TypeError(f"{self.kind} {self.ref!r} is no part that can be built")
        return registry.load(self.entry)(**self.settings)


@dataclass(frozen=True)
class _Claim:
    """A value that a layer gives to a setting of one part, or of all that are chosen."""

    rank: tuple[int, int]
    """The layer, and whether it is for one part: the higher wins."""
    part: str | None
    """Null: for all that are chosen."""
    option: str
    below: Key
    """For a setting that is a table: the key in it."""
    value: Any
    where: str
    name: str

    @property
    def names_a_part(self) -> bool:
        """Whether it is written like a part's setting, `[harness.NAME] x = ...`, where no such part is chosen."""
        return self.part is None and bool(self.below)


def choose(kind: str, names: Sequence[str], layers: Sequence[Layer]) -> tuple[Choice, ...]:
    """Get the chosen parts of a kind with their settings. Raises UsageError with all that is wrong."""
    problems: list[str] = []
    chosen = find(kind, names, layers, problems)
    chosen = chosen if problems else configure(kind, chosen, layers, problems)
    if problems:
        raise UsageError(*problems)
    return chosen


def find(kind: str, names: Sequence[str], layers: Sequence[Layer], problems: list[str]) -> tuple[Choice, ...]:
    """Find the parts that are named, without importing them."""
    where = next(
        (item.where for layer in reversed(layers) for item in layer.given if item.key == (kind, "name")), ""
    )
    return tuple(choice for text in names if (choice := _named(kind, text, where, problems)))


def configure(
    kind: str, found: Sequence[Choice], layers: Sequence[Layer], problems: list[str]
) -> tuple[Choice, ...]:
    """Get the parts with the settings that the layers give them.

    Those of harnesses, runtimes and models are checked; only a worker knows those of tasksets.
    """
    claims = list(_claims(kind, [choice.name for choice in found], layers))
    chosen = [_with_settings(choice, claims) for choice in found]
    if kind == "taskset":
        problems += _unknown_tasksets(chosen, claims, layers)
        return tuple(chosen)
    try:
        known = {choice.name: _options(choice) for choice in chosen}
    except UsageError as error:
        problems += error.problems
        return ()
    unknown = unknown_settings(kind, chosen, layers, known)
    problems += unknown
    return tuple(_typed(choice, known[choice.name], problems) for choice in chosen)


def refusals(chosen: Sequence[Choice]) -> Iterator[str]:
    """List what the parts themselves say against their settings. They are built for it."""
    for choice in chosen:
        try:
            choice.build()
        except UsageError as error:
            yield from (f"{choice.kind} {choice.name!r}: {problem}" for problem in error.problems)


def unknown_settings(
    kind: str, chosen: Sequence[Choice], layers: Sequence[Layer], known: Mapping[str, Collection[str]]
) -> list[str]:
    """List what is given to parts that have no such setting; `known` has each part's settings by its name."""
    problems = []
    for choice in chosen:
        unknown = [name for name in choice.variant if name not in known[choice.name]]
        problems += [_no_setting(choice, name, choice.origins[name], known) for name in unknown]
    for claim in _claims(kind, [choice.name for choice in chosen], layers):
        owners = [choice for choice in chosen if claim.part in (None, choice.name)]
        lacking = [choice for choice in owners if claim.option not in known[choice.name]]
        if not lacking:
            continue
        if len(lacking) == len(owners) and claim.names_a_part:
            problems.append(_no_part(kind, claim, layers))
        elif len(lacking) == len(owners):
            problems.append(_no_setting(lacking[0], claim.option, claim.where, known))
        else:
            has = next(choice for choice in owners if choice not in lacking)
            one = dotted((kind, has.name, claim.option))
            lacks = f"{kind} {lacking[0].name!r} has no setting {claim.option!r}"
            problems.append(f"{claim.where}: {lacks}. Set it for the one that has: {one}")
    return list(dict.fromkeys(problems))


def parse_variant(text: str) -> tuple[str, dict[str, str]]:
    """Read `loop,tools=bash,edit` into a reference and its settings."""
    ref, *pieces = text.split(",")
    variant: dict[str, str] = {}
    name = ""
    for piece in pieces:
        before, equals, after = piece.partition("=")
        if equals and re.fullmatch(r"[A-Za-z_][\w-]*", before.strip()):
            name = plain(before.strip())
            if name in variant:
                raise UsageError(f"{text!r} sets {name} twice")
            variant[name] = after
        elif name:
            variant[name] += f",{piece}"
        else:
            raise UsageError(f"{text!r}: {piece!r} is no setting: write {ref},NAME={piece}")
    if not ref:
        raise UsageError(f"{text!r} begins without a name")
    return ref, variant


def _named(kind: str, text: str, where: str, problems: list[str]) -> Choice | None:
    try:
        ref, variant = parse_variant(text)
        if kind == "runtime" and ref.isdigit():
            raise UsageError(f"no runtime {ref!r}. -r names a runtime; did you mean -k {ref} (attempts)?")
        entry = None if kind == "model" else registry.find(cast(registry.Kind, kind), ref)
    except UsageError as error:
        typed = not where or where.startswith(("flag ", "command line"))
        problems += [problem if typed else f"{where}: {problem}" for problem in error.problems]
        return None
    origins = dict.fromkeys(variant, where)
    return Choice(kind, ref, entry.name if entry else ref, variant, variant, origins, entry)


def _claims(kind: str, chosen: Sequence[str], layers: Sequence[Layer]) -> Iterator[_Claim]:
    """Read every setting that the layers give to parts of a kind, of those that are chosen."""
    names = {plain(name): name for name in chosen}
    others = frozenset[str]()
    for rank, layer in enumerate(layers):
        for item in layer.given:
            if item.key[0] != kind or item.key[1:] == ("name",):
                continue
            first, *rest = item.key[1:]
            if rest and plain(first) in names:
                option, below, part = rest[0], tuple(rest[1:]), names[plain(first)]
            else:
                others = others or frozenset(_names(kind, layers))
                if rest and (plain(first) in others or (kind == "model" and _is_elsewhere(first, others))):
                    continue
                option, below, part = first, tuple(rest), None
            rank_of = (rank, int(part is not None))
            yield _Claim(rank_of, part, plain(option), below, item.value, item.where, item.name)


def _names(kind: str, layers: Sequence[Layer]) -> set[str]:
    """Get what the parts of a kind are called, chosen or not; models by their tables and presets."""
    if kind != "model":
        return registry.names(cast(registry.Kind, kind))
    keys = (item.key for layer in layers for item in layer.given)
    tables = {plain(key[1]) for key in keys if key[0] == "models" and len(key) > 1}
    return tables | registry.names("preset")


def _is_elsewhere(ref: str, names: Collection[str]) -> bool:
    """Whether this is a model of one of the presets, or of an address."""
    preset, slash, _ = ref.partition("/")
    return "@" in ref or (bool(slash) and plain(preset) in names)


def _unknown_tasksets(
    chosen: Sequence[Choice], claims: Sequence[_Claim], layers: Sequence[Layer]
) -> Iterator[str]:
    """Say which tables name no taskset, as far as that can be told without importing one."""
    declared = [registry.declared(choice.entry) for choice in chosen if choice.entry]
    for claim in claims:
        if claim.names_a_part and all(names is not None and claim.option not in names for names in declared):
            yield _no_part("taskset", claim, layers)


def _no_part(kind: str, claim: _Claim, layers: Sequence[Layer]) -> str:
    suggestion = did_you_mean(claim.option, _names(kind, layers))
    return f"{claim.where}: {claim.name}: no {kind} {claim.option!r}.{suggestion}"


def _with_settings(choice: Choice, claims: Sequence[_Claim]) -> Choice:
    settings: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for claim in sorted(claims, key=lambda claim: claim.rank):
        if claim.part in (None, choice.name):
            settings[claim.option] = _laid_over(settings.get(claim.option), claim.below, claim.value)
            origins[claim.option] = claim.where
    return replace(choice, settings={**settings, **choice.variant}, origins={**origins, **choice.origins})


def _laid_over(value: Any, below: Key, new: Any) -> Any:
    if not below:
        return list(new) if isinstance(new, Repeated) else new
    table = dict(value) if isinstance(value, dict) else {}
    table[below[0]] = _laid_over(table.get(below[0]), below[1:], new)
    return table


def _options(choice: Choice) -> dict[str, Option | None]:
    if choice.is_replay:
        return dict.fromkeys(Replay.model_fields)
    if choice.entry is None:
        return dict.fromkeys([*Sampling.model_fields, *ModelTable.model_fields])
    cls: Any = registry.load(choice.entry)
    return {option.name: option for option in options(cls)}


def _no_setting(choice: Choice, name: str, where: str, known: Mapping[str, Collection[str]]) -> str:
    lacks = f"{where}: {choice.kind} {choice.name!r} has no setting {name!r}"
    return f"{lacks}.{did_you_mean(name, known[choice.name])}"


def _typed(choice: Choice, known: Mapping[str, Option | None], problems: list[str]) -> Choice:
    """Read each setting that the part has as its type. A model's are those of `[sampling]` and `[models]`."""
    if choice.entry is None:
        return _typed_model(choice, problems)
    settings = {}
    for name, value in choice.settings.items():
        option = known.get(name)
        if option is None:
            continue
        try:
            settings[name] = _json(coerce(value, option.type))
        except ValueError as error:
            shown = dotted((choice.kind, choice.name, name))
            problems.append(f"{choice.origins[name]}: {shown} = {value}: {error}")
    for name, option in known.items():
        if option is not None and option.required and name not in choice.settings:
            flag = f"--{choice.kind}.{choice.name}.{name}"
            problems.append(f"{choice.kind} {choice.name!r} needs {flag} ({option.type_name}): {option.doc}")
    return replace(choice, settings=settings)


def _typed_model(choice: Choice, problems: list[str]) -> Choice:
    settings: dict[str, Any] = {}
    for section in (Replay,) if choice.is_replay else (ModelTable, Sampling):
        own = {name: value for name, value in choice.settings.items() if name in section.model_fields}
        try:
            settings |= section(**own).model_dump(mode="json", include=set(own))
        except ValidationError as error:
            for one in error.errors():
                name = str(one["loc"][0])
                reason = one["msg"].removeprefix("Value error, ")
                problems.append(f"{choice.origins[name]}: model {choice.ref!r}: {name}: {reason}")
    return replace(choice, settings=settings)


def _json(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    return value
