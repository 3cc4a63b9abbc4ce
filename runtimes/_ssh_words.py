"""The command line of `ssh`, and what it says when it fails, in our words with the remedy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SILENT_S, SILENT_TIMES = 5, 3
"""A connection that carries nothing is asked for a sign of life so often, and given up after so many without one."""
REASONS = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its key is not the one that was known; if that is right, type: ssh-keygen -R {name}, and then: ssh {where}",
    ),
    (
        "Host key verification failed",
        "its key is not known here; look at it and accept it once by: ssh {where}",
    ),
    (
        "Permission denied",
        "it lets you in by no key; load one by ssh-add, or name it by IdentityFile in ~/.ssh/config, until this works: "
        "ssh -o BatchMode=yes {where} true",
    ),
    (
        "Too many authentication failures",
        "too many keys were offered; name the right one by IdentityFile, with IdentitiesOnly yes",
    ),
    ("Could not resolve hostname", "no machine of this name is known; check --runtime.ssh.host"),
    ("Connection refused", "nothing listens there; check that sshd runs there, and --runtime.ssh.port"),
    ("No route to host", "it cannot be reached from here; check the network"),
    ("Network is unreachable", "it cannot be reached from here; check the network"),
    ("timed out", "it does not answer; check the name, the port and the network"),
    (
        "Bad configuration option",
        "ssh does not know an option; check --runtime.ssh.options and your ~/.ssh/config",
    ),
    (
        "administratively prohibited",
        "its sshd forbids to forward ports; it takes AllowTcpForwarding yes in its sshd_config",
    ),
    (
        "remote port forwarding failed",
        "its sshd forbids to forward ports; it takes AllowTcpForwarding yes in its sshd_config",
    ),
)
"""A part of what ssh says, and what it means for a person."""


@dataclass(frozen=True)
class Way:
    """How a machine is reached."""

    host: str
    port: int | None = None
    config: Path | None = None
    options: tuple[str, ...] = ()
    connect_s: float = 20.0

    def first(self, control: Path) -> list[str]:
        """Get the beginning of an argv that makes the connection, which others share."""
        return self._alone("-M", "-S", str(control))

    def alone(self) -> list[str]:
        """Get the beginning of an argv that makes a connection for itself."""
        return self._alone("-S", "none")

    def _alone(self, *words: str) -> list[str]:
        own = _options(
            BatchMode="yes",
            ConnectTimeout=str(max(1, round(self.connect_s))),
            ServerAliveInterval=str(SILENT_S),
            ServerAliveCountMax=str(SILENT_TIMES),
            ControlPersist="no",
            RemoteCommand="none",
            RequestTTY="no",
            ClearAllForwardings="yes",
            LogLevel="ERROR",
        )
        return [*self.by_hand("-T", "-a", "-x", "-e", "none", *words, *own)]

    def shared(self, control: Path, *words: str) -> list[str]:
        """Get the beginning of an argv that uses the connection, and makes none."""
        only = _options(ProxyCommand="false", BatchMode="yes", LogLevel="ERROR")
        return ["ssh", "-F", "none", "-T", "-S", str(control), *only, *words, "--", "shared"]

    def by_hand(self, *words: str) -> list[str]:
        """Get what a person types to do something there."""
        return [
            "ssh",
            *(() if self.config is None else ("-F", str(self.config))),
            *(() if self.port is None else ("-p", str(self.port))),
            *(word for option in self.options for word in ("-o", option)),
            *words,
            "--",
            self.host,
        ]

    def explained(self, said: str) -> str:
        """Get one line from what ssh said when it failed."""
        name = self.host.rpartition("@")[2]
        where = " ".join(self.by_hand()[1:])
        for part, meaning in REASONS:
            if part in said:
                why = meaning.format(name=name, where=where)
                return f"cannot use {self.host} by ssh: {why} (ssh said: {_last(said)})"
        return f"cannot use {self.host} by ssh: {_last(said) or 'ssh ended and said nothing'}"


def _options(**options: str) -> list[str]:
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def _last(said: str) -> str:
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    return lines[-1] if lines else ""
