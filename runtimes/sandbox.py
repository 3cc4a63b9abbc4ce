"""sandbox: the best closed box that can be had here, whichever runtime makes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from hotswap import registry
from hotswap.contracts.environment import Environment
from hotswap.contracts.model import Say
from hotswap.contracts.network import Network
from hotswap.contracts.runtime import Box, Needs, Runtime
from hotswap.errors import UsageError

CANDIDATES = ("bwrap", "docker")
"""The runtimes that close a box on this machine, the best first."""
ELSEWHERE = '[runtime.sandbox] use = "ssh", options = {host = "user@host", inside = "bwrap"}'


class Sandbox(Runtime):
    """The best closed box here: bubblewrap on Linux, else Docker with its network closed, or a remote that you name.

    The trace says which runtime made the box. Where none can be had, a run is refused before it begins.
    """

    closed: ClassVar[bool] = True
    default_network: ClassVar[str] = "closed"

    use: str | None = None
    """The runtime that makes the boxes, such as ssh for another machine. None: bwrap, where it is missing docker."""
    options: dict[str, Any] = {}
    """Settings of the runtime named by `use`, such as {"host": "user@host", "inside": "bwrap"}."""

    def check(self) -> None:
        if self.options and self.use is None:
            raise UsageError("runtime.sandbox.options: they are for the runtime named by runtime.sandbox.use")
        if self.use in ("sandbox", "local"):
            raise UsageError(
                f"runtime.sandbox.use = {self.use}: it is no closed box; choose {' or '.join(CANDIDATES)}"
            )
        self.inner.check()
        if not self.inner.closed:
            raise UsageError(
                f"runtime.sandbox.use = {self.use}: its boxes are not closed; ssh closes them as in {ELSEWHERE}"
            )

    @cached_property
    def name(self) -> str:
        """The runtime that makes the boxes. Raises UsageError, with what is missing for each, where none can."""
        if self.use is not None:
            return registry.find("runtime", self.use).name
        problems = []
        for name in CANDIDATES:
            try:
                self._made(name).check()
            except UsageError as error:
                problems += [problem.removeprefix("runtime ") for problem in error.problems]
            else:
                return name
        lacking = "; ".join(problems)
        raise UsageError(
            f"runtime sandbox: no closed box can be had here. {lacking}; or name a machine by {ELSEWHERE}"
        )

    @cached_property
    def inner(self) -> Runtime:
        """That runtime, with its settings."""
        return self._made(self.name)

    @property
    def portable(self) -> bool:  # type: ignore[override]
        """Whether boxes may lack every library of this machine."""
        return self.inner.portable

    def refuses(self, environment: Environment) -> str | None:
        return self.inner.refuses(environment)

    def policy(self, environment: Environment) -> Network:
        return self.inner.policy(environment)

    def handed(self) -> Mapping[str, str]:
        return self.inner.handed()

    @asynccontextmanager
    async def running(self, say: Say) -> AsyncIterator[None]:
        async with self.inner.running(say):
            yield

    async def prepare(self, environment: Environment, say: Say) -> None:
        await self.inner.prepare(environment, say)

    @asynccontextmanager
    async def box(self, needs: Needs) -> AsyncIterator[Box]:
        async with self.inner.box(needs) as box:
            box.made = replace(box.made, runtime=box.made.runtime or self.name)
            yield box

    async def clean(self) -> Sequence[str]:
        return await self.inner.clean()

    def _made(self, name: str) -> Runtime:
        """Build a runtime by its name. One that closes is closed unless something else is asked for."""
        cls = registry.load(registry.find("runtime", name))
        network = self.network or (self.default_network if getattr(cls, "closed", False) else None)
        runtime = cls(**{**({} if network is None else {"network": network}), **self.options})
        assert isinstance(runtime, Runtime)
        return runtime
