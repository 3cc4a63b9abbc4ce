"""What the author of a model preset writes: an address that models are reached at, or a server to start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from hotswap.contracts.options import Part

Say = Callable[[str], None]
"""Shows one line of progress to the person."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """US dollars for a million tokens. Null where a price is not known."""

    input: float | None = None
    cached: float | None = None
    cache_write: float | None = None
    output: float | None = None
    above: int | None = None
    """Input tokens: a call with more of them costs `beyond`, all of it. Null where there is no such step."""
    beyond: Prices | None = None

    @property
    def free(self) -> bool:
        """Whether every call costs nothing, whatever is read and written."""
        steps = self.beyond is None or self.beyond.free
        return steps and self.input == self.output == 0 and not self.cached and not self.cache_write

    def at(self, tokens: int) -> Prices:
        """Get the prices of a call with so many input tokens."""
        if self.above is None or self.beyond is None or tokens <= self.above:
            return self
        return self.beyond.at(tokens)


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """Where the proxy sends model calls: a provider's address, key, and what is known of the model there."""

    url: str
    """Ends in the version segment where the provider has one: `https://api.example.com/v1`."""
    key: str | None = field(default=None, repr=False)
    """The key itself; null where the endpoint takes none. Lives in the eval process alone."""
    model: str = ""
    """The model's id as the provider knows it."""
    dialects: tuple[str, ...] = ("chat",)
    """In order of preference."""
    context: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Added to each request."""
    drop: tuple[str, ...] = ()
    """Top-level fields of a request that this endpoint does not take."""
    prices: Prices | None = None
    sampling: Mapping[str, object] = field(default_factory=dict)
    """What is sent where the run sets nothing else."""


class Preset(Part):
    """A family of models behind one address: `-m NAME/MODEL`."""

    url: ClassVar[str] = ""
    key_variable: ClassVar[str | None] = None
    """The environment variable that holds the key; null where there is none."""
    key_required: ClassVar[bool] = True
    """Whether a run without the key is refused; else the key is sent where the variable is set."""
    dialects: ClassVar[tuple[str, ...]] = ("chat",)
    """What the address speaks, in order of preference."""
    provider: ClassVar[str | None] = None
    """The provider's name in the price list; null where there are no prices."""
    single: ClassVar[bool] = False
    """The preset is one model: `-m NAME`, without a slash."""
    context: ClassVar[int | None] = None
    prices: ClassVar[Prices | None] = None
    """What its models cost, where that is known without a price list."""
    sampling: ClassVar[Mapping[str, object]] = {}
    """What is sent where the run sets nothing else, under the names of `[sampling]`."""
    token_ids: ClassVar[bool] = True
    """Whether its chat route may give the ids of tokens; where it does not, `--capture tokens` is refused."""

    def address(self, environment: Mapping[str, str]) -> str:  # noqa: ARG002
        """Get the base URL; some are set by a variable of the environment."""
        return self.url

    def upstream(self, model: str, url: str) -> Upstream:
        """Get what is known of one model, at the base URL; its key is added by the caller."""
        return Upstream(
            url=url,
            model=model,
            dialects=self.dialects,
            context=self.context,
            prices=self.prices,
            sampling=self.sampling,
        )

    def server(self, upstream: Upstream) -> str | None:  # noqa: ARG002
        """Get the name of the server that `serve` would start; models with the same one share it. Null: none is."""
        return None

    @asynccontextmanager
    async def serve(self, upstream: Upstream, say: Say) -> AsyncIterator[Upstream]:  # noqa: ARG002
        """Make the endpoint ready for the length of a run; the default has nothing to start."""
        yield upstream
