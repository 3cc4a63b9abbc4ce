"""Keep a provider's key for that provider's host.

A preset's key variable goes to that preset's host only. To pair it with another address takes the user's own
file, the environment or the command line: a project's eval.toml, which comes with a repository, cannot do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from hotswap import registry
from hotswap.contracts.model import Preset
from hotswap.settings.fields import ModelTable, Settings
from hotswap.settings.layers import Layer


def key_problems(settings: Settings, layers: Sequence[Layer]) -> list[str]:
    """List the models for which a project's file would send a provider's key to another host."""
    own = [(name, table) for name, table in settings.models.items() if table.url is not None]
    presets = dict(_presets()) if own else {}
    problems = []
    for name, table in own:
        owner = _owner(name, table, presets)
        where = _untrusted(name, layers)
        if owner is None or where is None or _host(table.url) == _host(owner.url):
            continue
        sent = f"{where}: models.{name} would send {owner.key_variable} to {_host(table.url)}"
        allowed = "if you want that, set its url and key in your own settings file, or as flags"
        problems.append(f"{sent} and not to {_host(owner.url)}; {allowed}")
    return problems


def _presets() -> Iterator[tuple[str, type[Preset]]]:
    for name, entry in registry.entries("preset").items():
        cls = registry.load(entry)
        if issubclass(cls, Preset) and cls.key_variable is not None:
            yield name, cls


def _owner(name: str, table: ModelTable, presets: dict[str, type[Preset]]) -> type[Preset] | None:
    """Find the preset whose key the table uses: by the variable, or as what the table is based on."""
    if table.key is not None:
        return next((preset for preset in presets.values() if preset.key_variable == table.key), None)
    return presets.get(name) or presets.get((table.model or "").partition("/")[0])


def _untrusted(name: str, layers: Sequence[Layer]) -> str | None:
    """Find where the project's file decides a model's address or key; null where the user does."""
    decided: dict[str, tuple[str, str]] = {}
    for layer in layers:
        for given in layer.given:
            if given.key[:2] == ("models", name) and given.key[2:] in (("url",), ("key",), ("model",)):
                decided[given.key[2]] = (layer.name, given.where)
    return next((where for source, where in decided.values() if source == "project"), None)


def _host(url: str | None) -> str:
    return urlsplit(url or "").netloc
