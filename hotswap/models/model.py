"""A model that can be evaluated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

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


@asynccontextmanager
async def served(models: Mapping[str, Model], say: Say) -> AsyncIterator[dict[str, Upstream]]:
    """Make the endpoints of several models ready, by the same names. Where one server does for many, it is shared."""
    ready: dict[str, Upstream] = {}
    servers: dict[str, Upstream] = {}
    async with AsyncExitStack() as stack:
        for name, model in models.items():
            server = model.part.server(model.upstream)
            if server in servers:
                running = servers[server]
                ready[name] = replace(
                    model.upstream, url=running.url, key=running.key, context=running.context
                )
                continue
            ready[name] = await stack.enter_async_context(model.serve(say))
            if server is not None:
                servers[server] = ready[name]
        yield ready
