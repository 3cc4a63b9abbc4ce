"""What a box may reach, in the same words on every runtime: `open`, `closed`, or a list of hosts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

HOST = re.compile(
    r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?", re.ASCII
)
SAID = "open, closed, or a list of hosts such as example.org,*.example.net,192.0.2.0/24"


@dataclass(frozen=True)
class Network:
    """What a box may reach beside the proxy: everything, or the hosts that are named, of which there may be none."""

    open: bool = False
    hosts: tuple[str, ...] = ()
    """Names, `*.name` for all names below one, addresses and networks (CIDR); in lower case, sorted."""

    @classmethod
    def parse(cls, said: str | Iterable[str]) -> Network:
        """Read `open`, `closed` or hosts, in one text with commas or in several. ValueError says what is wrong."""
        texts = [said] if isinstance(said, str) else list(said)
        words = [word.strip().lower() for text in texts for word in text.split(",")]
        if words == ["open"]:
            return OPEN
        if words in (["closed"], []):
            return CLOSED
        for word in words:
            if word in ("open", "closed") or not (_network(word) or HOST.fullmatch(word)):
                raise ValueError(f"{word!r} is no host; expected {SAID}")
        return cls(hosts=tuple(sorted({word.rstrip(".") for word in words})))

    def allows(self, host: str) -> bool:
        """Whether a host, by its name or its address, may be reached. A name is not looked up."""
        host = host.lower().rstrip(".").strip("[]")
        return self.open or any(_covers(pattern, host) for pattern in self.hosts)

    def stricter(self, other: Network) -> Network:
        """Get what both allow."""
        if self.open or other.open:
            return other if self.open else self
        both = {host for host in self.hosts if other.allows_all(host)}
        both |= {host for host in other.hosts if self.allows_all(host)}
        return Network(hosts=tuple(sorted(both)))

    def allows_all(self, pattern: str) -> bool:
        """Whether everything that a host, a `*.name` or a network stands for may be reached."""
        return self.open or any(own == pattern or _covers(own, pattern) for own in self.hosts)

    def __str__(self) -> str:
        return "open" if self.open else ",".join(self.hosts) or "closed"


OPEN = Network(open=True)
CLOSED = Network()


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text.strip("[]"), strict=False)
    except ValueError:
        return None


def _covers(pattern: str, host: str) -> bool:
    """Whether a pattern stands for a host, or for all that another pattern stands for."""
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])  # `*.a.b` covers `x.a.b` and `*.x.a.b`, and not `a.b` itself
    wide, narrow = _network(pattern), _network(host)
    if wide is None or narrow is None or wide.version != narrow.version:
        return pattern == host
    return narrow.subnet_of(wide)  # type: ignore[arg-type]
