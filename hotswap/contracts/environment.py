"""What a task asks of the place where the agent works. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hotswap.contracts.network import Network


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The place that a task is made for. What is null or empty is left to the runtime."""

    image: str | None = None
    """A container image by name."""
    dockerfile: str | None = None
    """Absolute path here of a folder with a Dockerfile, which the image is built from. Used where `image` is null."""
    cpus: float | None = None
    memory_mb: int | None = None
    """MiB."""
    storage_mb: int | None = None
    """MiB."""
    pids: int | None = None
    """Processes and threads at one time."""
    user: str | None = None
    """Name or number of the user that the program runs as; null: the image's."""
    workdir: str | None = None
    """Absolute path in the box of the working directory; null: the image's, or a folder of the runtime's."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Set for every process in the box."""
    network: str | None = None
    """`open`, `closed`, or hosts with commas between. The stricter of this and what the user says wins."""
    capabilities: tuple[str, ...] = ()
    """Linux capabilities that are kept, such as `NET_RAW`; all others are dropped."""

    def __post_init__(self) -> None:
        if self.network is not None:
            Network.parse(self.network)  # a ValueError now, and not in the middle of a run

    def to_json(self) -> dict[str, Any]:
        """Get it as JSON values; what is null or empty is left out."""
        found = {spec.name: getattr(self, spec.name) for spec in fields(self)}
        plain = {name: value for name, value in found.items() if value not in (None, {}, ())}
        if self.env:
            plain["env"] = dict(self.env)
        if self.capabilities:
            plain["capabilities"] = list(self.capabilities)
        return plain

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Environment:
        """Build the one that `to_json` wrote; keys that this version does not know are ignored."""
        known = {spec.name for spec in fields(cls)}
        given = {name: value for name, value in record.items() if name in known}
        if "capabilities" in given:
            given["capabilities"] = tuple(given["capabilities"])
        return cls(**given)
