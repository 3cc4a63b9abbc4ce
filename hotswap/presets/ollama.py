"""Ollama, as it runs on this machine or where OLLAMA_HOST says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from hotswap.contracts.model import Preset

PORT = 11434
EVERYWHERE = ("0.0.0.0", "[::]", "")
"""Addresses that a server listens on and that nobody can be called at."""


class Ollama(Preset):
    """Models of a local Ollama: `-m ollama/qwen3`. OLLAMA_HOST is honoured."""

    url: ClassVar[str] = f"http://127.0.0.1:{PORT}/v1"
    dialects: ClassVar[tuple[str, ...]] = ("chat", "responses", "messages")
    token_ids: ClassVar[bool] = False

    def address(self, environment: Mapping[str, str]) -> str:
        """Read OLLAMA_HOST as Ollama does: `host`, `host:port`, `:port`, or a whole address."""
        written = environment.get("OLLAMA_HOST", "").strip().strip("\"'")
        if not written:
            return self.url
        scheme, divider, rest = written.rpartition("://")
        place, slash, path = rest.partition("/")
        match = re.fullmatch(r"(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>\d*))?", place)
        if match is None:
            return written
        host = "127.0.0.1" if match["host"] in EVERYWHERE else match["host"]
        port = match["port"] or {"http": "80", "https": "443"}.get(scheme, str(PORT))
        return f"{scheme if divider else 'http'}://{host}:{port}{slash}{path}"
