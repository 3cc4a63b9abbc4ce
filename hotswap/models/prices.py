"""What a model costs and how much it can read, from the price list that the genai-prices package keeps.

Importing the list takes a third of a CPU second and 30 MB: it is done for models of a priced provider only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hotswap.contracts.model import Prices

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

KEYS = {
    "input": "input_mtok",
    "cached": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "output": "output_mtok",
}
"""Our names of prices, and the list's."""


@dataclass(frozen=True)
class Listing:
    """What the list says of a model; null where it says nothing."""

    prices: Prices | None = None
    context: int | None = None


def look_up(provider: str, model: str) -> Listing:
    """Get a model's listing as of today; an empty one where the list does not know the model."""
    info = _find(provider, model)
    if info is None:
        return Listing()
    return Listing(_read(info.get_prices(datetime.now(UTC))), info.context_window)


def provider_of(model: str) -> str | None:
    """Get the provider that a bare name of a model belongs to, by the list's own patterns."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, None, None)[0].id
    except LookupError:
        return None


def _find(provider: str, model: str) -> ModelInfo | None:
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, provider, None)[1]
    except LookupError:
        return None


def _read(listed: ModelPrice) -> Prices | None:
    """Read the prices, step by step: a call above a step's tokens costs that step's prices, all of it."""
    from genai_prices.types import TieredPrices

    rates = {name: getattr(listed, key) for name, key in KEYS.items()}
    tiered = [rate for rate in rates.values() if isinstance(rate, TieredPrices)]
    if rates["input"] is None and rates["output"] is None:
        return None
    above: int | None = None
    beyond: Prices | None = None
    for start in sorted({tier.start for rate in tiered for tier in rate.tiers}, reverse=True):
        beyond = Prices(
            **{name: _rate(rate, start + 1) for name, rate in rates.items()}, above=above, beyond=beyond
        )
        above = start
    return Prices(**{name: _rate(rate, 0) for name, rate in rates.items()}, above=above, beyond=beyond)


def _rate(rate: object, tokens: int) -> float | None:
    """Get one price for a call of so many input tokens."""
    from genai_prices.types import TieredPrices

    if isinstance(rate, TieredPrices):
        reached = [tier.price for tier in rate.tiers if tokens > tier.start]
        return float(reached[-1] if reached else rate.base)
    return None if rate is None else float(rate)  # type: ignore[arg-type]
