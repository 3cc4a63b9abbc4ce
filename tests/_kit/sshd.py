"""A real sshd on a loopback port, for as long as a test runs: with keys, known hosts and settings of its own.

with Sshd(tmp_path) as sshd:
    runtime = Ssh(host=sshd.host, config=sshd.config)
"""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin:/sbin")
PRIVATE = Path("/run/sshd")
"""An sshd that is started by root wants this folder to be there."""


class Sshd:
    """The far machine: this one, by way of the network."""

    host = "far"

    def __init__(self, folder: Path, *settings: str, environment: dict[str, str] | None = None) -> None:
        assert SSHD is not None
        self.folder = folder
        self.config = folder / "config"
        self.root = folder / "boxes"
        self.cache = folder / "cache"
        self.home = folder / "home"
        """Of the user there: no start-up file of a shell is in it."""
        own = {"HOME": str(self.home), "XDG_CACHE_HOME": str(self.cache)}
        self._environment = {**own, **(environment or {})}
        for made in (self.root, self.home):
            made.mkdir(parents=True)
        self.port = _free_port()
        for name in ("host_key", "key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
        (folder / "authorized").write_text((folder / "key.pub").read_text())
        self.know((folder / "host_key.pub").read_text())
        self._write(settings)

    def know(self, key: str) -> None:
        """Have the machine known by this key."""
        (self.folder / "known").write_text(f"[127.0.0.1]:{self.port} {' '.join(key.split()[:2])}\n")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the runtime."""
        return {"host": self.host, "config": str(self.config), "root": str(self.root)}

    @property
    def flags(self) -> list[str]:
        """The same as words of a command line."""
        given = [word for name, value in self.settings.items() for word in (f"--runtime.ssh.{name}", value)]
        return ["-r", "ssh", *given]

    @property
    def pid(self) -> int:
        return self._process.pid

    def connections(self) -> list[psutil.Process]:
        """Get the processes of sshd that serve connections, the outermost first."""
        return psutil.Process(self.pid).children(recursive=False)

    def cut(self) -> None:
        """Kill what serves the connections: the far machine is gone from the network."""
        for process in psutil.Process(self.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if process.name().startswith("sshd"):
                    process.kill()

    def __enter__(self) -> Sshd:
        argv = [str(SSHD), "-D", "-E", str(self.folder / "log"), "-f", str(self.folder / "sshd_config")]
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=10) as probe:
                assert probe.recv(4) == b"SSH-"
                return self
            assert self._process.poll() is None, (self.folder / "log").read_text()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._process.terminate()
        self._process.wait()

    def _write(self, settings: tuple[str, ...]) -> None:
        with suppress(OSError):
            PRIVATE.mkdir(mode=0o755, exist_ok=True)
        folder = self.folder
        lines = [
            *settings,
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {folder}/host_key",
            f"AuthorizedKeysFile {folder}/authorized",
            f"PidFile {folder}/pid",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "StrictModes no",
            "UsePAM no",
            "MaxStartups 100",
            f"SetEnv {' '.join(f'{name}={value}' for name, value in self._environment.items())}",
        ]
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")
        self.config.write_text(
            f"Host {self.host}\n  HostName 127.0.0.1\n  Port {self.port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {folder}/key\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {folder}/known\n  GlobalKnownHostsFile none\n"
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)
