"""A model that can be evaluated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from hotswap.contracts.model import Preset, Say, Upstream


@dataclass(frozen=True)
class Model:
    """A model that can be evaluated."""

    name: str
    """As it was asked for, and as cells name it."""
    preset: str | None
    """Null for an endpoint that was given by its address."""
    upstream: Upstream
    part: Preset = field(repr=False, compare=False)

    @asynccontextmanager
    async def serve(self, say: Say) -> AsyncIterator[Upstream]:
        """Make the endpoint ready for a run. One that is ours to start is started, and ended afterwards.

        All rollouts share it.
        """
        async with self.part.serve(self.upstream, say) as upstream:
            yield upstream
