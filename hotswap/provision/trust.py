"""The certificates that this machine trusts, for boxes whose image has none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hotswap.errors import UsageError
from hotswap.provision import cache

PLACES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/ssl/cert.pem",
)
"""Where systems keep them in one file. A box that has one of these needs no other."""
VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO")


@dataclass(frozen=True)
class Certificates:
    """One file in a folder of its own, to be mounted."""

    path: Path

    def variables(self, inside: str) -> dict[str, str]:
        """Get what tells programs of them, given the path of the file inside: for a box with none of `PLACES`."""
        return dict.fromkeys(VARIABLES, inside)


def certificates(environment: Mapping[str, str] = os.environ) -> Certificates:
    """Get the certificates that this machine trusts: those that SSL_CERT_FILE names, or the system's."""
    import hashlib

    source = next((path for path in _sources(environment) if path.is_file()), None)
    if source is None:
        raise UsageError("no file of trusted certificates is here (Debian: apt-get install ca-certificates)")
    content = source.read_bytes()
    name = hashlib.sha256(content).hexdigest()[:16]
    target = cache.folder("certificates", name) / "ca.pem"
    if not target.exists():
        beside = target.with_name(f"ca.pem.{os.getpid()}")
        beside.write_bytes(content)
        beside.chmod(0o444)
        beside.replace(target)
    return Certificates(target)


def _sources(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("SSL_CERT_FILE"):
        if not Path(named).is_file():
            raise UsageError(f"SSL_CERT_FILE = {named}: there is no such file of certificates")
        yield Path(named)
    yield from map(Path, PLACES)
