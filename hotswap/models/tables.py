"""What `[models.NAME]`, and a model's own settings, change about a model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from hotswap import dialects
from hotswap.contracts.model import Preset, Prices, Upstream
from hotswap.errors import UsageError, did_you_mean
from hotswap.masking import is_masked
from hotswap.models.addresses import base_url
from hotswap.models.choices import presets
from hotswap.models.keys import Variable

Table = Mapping[str, Any]
KEYS = ("url", "model", "key", "dialects", "context", "headers", "drop", "prices", "sampling")
SAMPLING = ("temperature", "top_p", "max_tokens", "seed", "stop", "effort", "extra")
STEP = ("above", "beyond")
"""What prices have beside rates: the step to those of a long call."""


@dataclass(frozen=True)
class Draft:
    """A model before its key is read and its prices are looked up."""

    preset: str | None
    part: Preset
    upstream: Upstream
    key: Variable | None = None

    @classmethod
    def at(cls, url: str, model: str) -> Draft:
        """An endpoint of which nothing but the address is known."""
        return cls(None, Preset(), Upstream(url=url, model=model))


def lay_over(draft: Draft, table: Table, where: str) -> Draft:
    """Change a model by what a table says; what the table does not say stays. Null is as if not said."""
    _check(table, KEYS, where)
    _refuse_masked(table, where)
    given = {name: value for name, value in table.items() if value is not None}
    if "url" in given:
        draft = _moved(draft, base_url(given["url"], where))
    if "key" in table:
        draft = replace(draft, key=Variable(given["key"], where) if given.get("key") else None)
    old = draft.upstream
    new = replace(
        old,
        model=given.get("model", old.model),
        dialects=read_dialects(given["dialects"], where) if "dialects" in given else old.dialects,
        context=given.get("context", old.context),
        headers={**old.headers, **given.get("headers", {})},
        drop=tuple(given.get("drop", old.drop)),
        prices=_prices(old.prices, given.get("prices", {}), where),
        sampling={**old.sampling, **_sampling(given.get("sampling", {}), where)},
    )
    return replace(draft, upstream=new)


def own_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Get the settings of `-m NAME,effort=high` as a table: sampling stands in it under a key of its own."""
    table = {name: value for name, value in settings.items() if name not in SAMPLING}
    sampling = {name: value for name, value in settings.items() if name in SAMPLING}
    return {**table, "sampling": {**(table.get("sampling") or {}), **sampling}} if sampling else table


def read_dialects(names: Any, where: str) -> tuple[str, ...]:
    """Read a list of dialects. One is known by its file, or because a preset speaks it."""
    found = tuple(str(name).strip() for name in ([names] if isinstance(names, str) else names))
    known = {*dialects.known(), *(name for preset in presets().values() for name in preset.dialects)}
    for name in found:
        if name not in known:
            raise UsageError(f"{where}: no dialect {name!r}.{did_you_mean(name, known)}")
    return found


def stated_over(listed: Prices | None, stated: Prices | None) -> Prices | None:
    """Get the listed prices, with those that were stated in their place for calls of any length."""
    rates = {spec.name: getattr(stated, spec.name) for spec in fields(Prices) if spec.name not in STEP}
    known = {name: rate for name, rate in rates.items() if rate is not None}
    if not known:
        return listed
    beyond = listed.beyond if listed else None
    return replace(listed or Prices(), **known, beyond=stated_over(beyond, stated) if beyond else None)


def _moved(draft: Draft, url: str) -> Draft:
    """Put a model at another address. What belonged to the old one stays behind: its key, its prices."""
    if url == draft.upstream.url:
        return draft
    return Draft(None, Preset(), replace(draft.upstream, url=url, prices=None))


def _prices(old: Prices | None, given: Table, where: str) -> Prices | None:
    names = [spec.name for spec in fields(Prices) if spec.name not in STEP]
    _check(given, names, f"{where} prices")
    return stated_over(old, Prices(**given)) if given else old


def _sampling(given: Table, where: str) -> Table:
    _check(given, SAMPLING, f"{where} sampling")
    return given


def _refuse_masked(table: Table, where: str) -> None:
    """Refuse what was masked when settings were saved: it cannot be used as it is."""
    values = {
        "url": table.get("url"),
        **{f"headers.{name}": v for name, v in table.get("headers", {}).items()},
    }
    values |= {f"sampling.extra.{name}": v for name, v in _extra(table).items()}
    masked = [name for name, value in values.items() if isinstance(value, str) and is_masked(value)]
    if masked:
        raise UsageError(
            *(
                f"{where}: {name} is a secret, and was masked when it was saved: give it again"
                for name in masked
            )
        )


def _extra(table: Table) -> Table:
    sampling = table.get("sampling") or {}
    extra: Table = sampling.get("extra") or {}
    return extra


def _check(given: Table, known: Collection[str], where: str) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise UsageError(*(f"{where}: unknown key {name!r}.{did_you_mean(name, known)}" for name in unknown))
