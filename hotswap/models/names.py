"""From a model's name to an endpoint. A name is one of

    openai/gpt-5-mini                 a preset and the model's id there; the id may hold slashes
    smollm2                           a preset that is one model
    fast                              a table `[models.fast]`
    NAME@http://127.0.0.1:8000/v1     any endpoint that knows a model NAME

A table wins over a preset. One with a `url` is an endpoint; one without changes another model: the one
that its `model` names, or the one of its own name. The address of an endpoint may end in
`?dialect=messages`, where it speaks something else than chat, and `?key=VARIABLE`.

The provider's key is read here, from the one variable that the preset or the table names, and stands in
`Upstream.key` and nowhere else. A preset's variable goes to that preset's address: an endpoint that is given
by its address gets a key only where a variable is named beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast
from urllib.parse import parse_qsl

from hotswap import registry
from hotswap.contracts.model import Preset, Upstream
from hotswap.errors import UsageError, did_you_mean
from hotswap.models.addresses import base_url
from hotswap.models.choices import presets
from hotswap.models.keys import Variable
from hotswap.models.model import Model
from hotswap.models.prices import look_up, provider_of
from hotswap.models.tables import Draft, Table, lay_over, own_settings, read_dialects, stated_over

PARAMETERS = ("dialect", "key")
"""What may follow the `?` of `NAME@URL`."""
ANY_ENDPOINT = "NAME@http://HOST:PORT/v1"
BARE_ADDRESS = re.compile(r"(localhost|[\w-]+(\.[\w-]+)+):\d{2,5}(/.*)?")
"""A host and a port, where `NAME@http://` was left out."""


def resolve(
    ref: str,
    tables: Mapping[str, Table],
    environment: Mapping[str, str],
    settings: Mapping[str, Any] | None = None,
) -> Model:
    """Get the model that a person named. `settings` are its own: keys of a table, and of `[sampling]`.

    Raises UsageError: there is no such model, its key is missing, a table cannot mean anything.
    """
    draft = _find(ref, tables, environment)
    if settings:
        draft = lay_over(draft, own_settings(settings), f"model {ref!r}")
    key = draft.key.read(ref, environment) if draft.key else None
    return Model(ref, draft.preset, replace(_listed(draft), key=key), draft.part)


def _find(ref: str, tables: Mapping[str, Table], environment: Mapping[str, str]) -> Draft:
    name = next((name for name in tables if registry.plain(name) == registry.plain(ref)), None)
    if name is not None:
        return _from_table(name, tables, environment)
    if "@" in ref or "://" in ref:
        return _from_address(ref)
    if BARE_ADDRESS.fullmatch(ref):
        raise UsageError(f"an address needs a model: NAME@{base_url(f'http://{ref}', f'model {ref!r}')}")
    return _from_preset(ref, tables, environment)


def _from_table(name: str, tables: Mapping[str, Table], environment: Mapping[str, str]) -> Draft:
    table, where = tables[name], f"[models.{name}]"
    if table.get("url"):
        return lay_over(Draft.at("", name), table, where)
    others = {other: value for other, value in tables.items() if other != name}
    try:
        draft = _find(table.get("model") or name, others, environment)
    except UsageError as error:
        needs = f"{where} needs a url, or a model that it changes (model = 'openai/gpt-5-mini')"
        raise UsageError(*(f"{needs}: {problem}" for problem in error.problems)) from None
    return lay_over(draft, {key: value for key, value in table.items() if key != "model"}, where)


def _from_address(ref: str) -> Draft:
    name, _, address = ref.partition("@")
    if not name or "://" in name:
        raise UsageError(f"an address alone names no model: write {ANY_ENDPOINT}")
    where = f"model {name!r}"
    url, _, query = address.partition("?")
    given = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [key for key in given if key not in PARAMETERS]
    if unknown:
        problems = (
            f"{where}: unknown {key!r} in its address.{did_you_mean(key, PARAMETERS)}" for key in unknown
        )
        raise UsageError(*problems)
    draft = Draft.at(base_url(url, where), name)
    if "dialect" in given:
        names = read_dialects(given["dialect"].split(","), where)
        draft = replace(draft, upstream=replace(draft.upstream, dialects=names))
    return replace(draft, key=Variable(given["key"], where)) if "key" in given else draft


def _from_preset(ref: str, tables: Mapping[str, Table], environment: Mapping[str, str]) -> Draft:
    name, slash, model = ref.partition("/")
    cls = _preset(name, ref, tables)
    if cls.single and slash:
        raise UsageError(f"no model {ref!r}: {name} is one model, -m {name}")
    if not cls.single and not model:
        raise UsageError(f"{name} needs the model's id: -m {name}/MODEL")
    part = cls()
    address = part.address(environment)
    url = base_url(address, f"the address of {name}") if address else ""
    key = Variable(cls.key_variable, f"preset {name}", cls.key_required) if cls.key_variable else None
    return Draft(registry.plain(name), part, part.upstream(model or name, url), key)


def _preset(name: str, ref: str, tables: Mapping[str, Table]) -> type[Preset]:
    """Get the preset's class; where there is none, say what could have been meant."""
    try:
        entry = registry.find("preset", name)
    except UsageError:
        if registry.plain(name) in registry.names("preset") or ":" in name:
            raise
    else:
        return cast(type[Preset], registry.load(entry))
    known = presets()
    shown = sorted(found if cls.single else f"{found}/MODEL" for found, cls in known.items())
    close = did_you_mean(name, {*known, *tables}).partition(" Known:")[0]
    close = close or (_served(ref, known) if "/" not in ref else "")
    listed = ", ".join([*sorted(tables), *shown])
    raise UsageError(f"no model {ref!r}.{close} Known: {listed}, and {ANY_ENDPOINT} for any endpoint.")


def _served(model: str, known: Mapping[str, type[Preset]]) -> str:
    """Suggest the preset whose provider serves a model that was named alone."""
    provider = provider_of(model)
    name = next((name for name, cls in known.items() if provider and cls.provider == provider), None)
    return f" Did you mean {f'{name}/{model}'!r}?" if name else ""


def _listed(draft: Draft) -> Upstream:
    """Fill in prices and context window from the price list; what was stated stays."""
    stated, provider = draft.upstream, draft.part.provider
    if provider is None:
        return stated
    listing = look_up(provider, stated.model)
    prices = stated_over(listing.prices, stated.prices) if stated.prices else listing.prices
    return replace(stated, prices=prices, context=stated.context or listing.context)
