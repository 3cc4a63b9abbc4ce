"""Keep a provider's key for that provider's host.

A preset's key variable goes to that preset's host only. To pair it with another address takes the user's own
file, the environment or the command line: a project's eval.toml, which comes with a repository, cannot do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast
from urllib.parse import parse_qs, urlsplit

from hotswap import registry
from hotswap.contracts.model import Preset
from hotswap.settings.choices import Choice
from hotswap.settings.fields import ModelTable
from hotswap.settings.layers import Key, Layer

Presets = Mapping[str, type[Preset]]
DECIDING = ("url", "key", "model")


@dataclass(frozen=True)
class _Pair:
    """An address, the variable that is named for it, and the keys of the settings that decide so."""

    url: str | None = None
    variable: str | None = None
    decided: tuple[Key, ...] = ()


def key_problems(
    tables: Mapping[str, ModelTable], models: Sequence[Choice], layers: Sequence[Layer]
) -> list[str]:
    """List the models for which a project's file alone would send a provider's key to another host."""
    pairs = [_chosen(choice, tables) for choice in models] + [_follow(name, tables) for name in tables]
    pairs += [_fallback(choice, tables) for choice in models if choice.settings.get("fallback")]
    if not any(pair.variable for pair in pairs):
        return []
    sources = {given.key: (layer.name, given.where) for layer in layers for given in layer.given}
    owners = {preset.key_variable: preset for preset in _presets().values()}
    problems = []
    for pair in pairs:
        owner = owners.get(pair.variable) if pair.variable else None
        found = [sources[key] for key in pair.decided if key in sources]
        where = next((where for name, where in found if name == "project"), None)
        if owner is None or where is None or _host(pair.url) in (None, _host(owner.url)):
            continue
        sent = f"{where}: {pair.variable} would be sent to {_host(pair.url)} and not to {_host(owner.url)}"
        problems.append(
            f"{sent}; if you want that, set the model's url and key in your own file, or as flags"
        )
    return list(dict.fromkeys(problems))


def _chosen(choice: Choice, tables: Mapping[str, ModelTable]) -> _Pair:
    """Get what a chosen model comes to: its own settings, over what its name stands for."""
    named = _follow(choice.ref, tables, ("model", "name"))
    own = {name: choice.settings.get(name) for name in DECIDING[:2]}
    decided = tuple(_own_keys(choice)) if any(own.values()) else ()
    return _Pair(own["url"] or named.url, own["key"] or named.variable, (*named.decided, *decided))


def _fallback(choice: Choice, tables: Mapping[str, ModelTable]) -> _Pair:
    """Get what answers in a recording's place."""
    pair = _follow(choice.settings["fallback"], tables, ("model", "name"))
    return replace(pair, decided=(*pair.decided, ("model", "fallback"), ("model", choice.ref, "fallback")))


def _own_keys(choice: Choice) -> Iterator[Key]:
    for name in DECIDING[:2]:
        yield from ((choice.kind, name), (choice.kind, choice.ref, name))
        if name in choice.variant:
            yield (choice.kind, "name")


def _follow(ref: str, tables: Mapping[str, ModelTable], by: Key | None = None) -> _Pair:
    """Get what a model's name stands for: a table (over another model), an address, or a preset's model."""
    name = next((name for name in tables if registry.plain(name) == registry.plain(ref)), None)
    if name is None:
        return _address(ref, by) if "@" in ref else _Pair()
    table = tables[name]
    others = {other: value for other, value in tables.items() if other != name}
    below = _Pair() if table.url else _follow(table.model or name, others, ("models", name, "model"))
    decided = tuple(("models", name, deciding) for deciding in DECIDING)
    return _Pair(table.url or below.url, table.key or below.variable, (*below.decided, *decided))


def _address(ref: str, by: Key | None) -> _Pair:
    url, _, query = ref.partition("@")[2].partition("?")
    variable = parse_qs(query).get("key", [None])[0]
    return _Pair(url, variable, (by,) if by else ())


def _presets() -> Presets:
    entries = registry.entries("preset")
    return {name: cast(type[Preset], registry.load(entry)) for name, entry in entries.items()}


def _host(url: str | None) -> str | None:
    return urlsplit(url).netloc if url else None
