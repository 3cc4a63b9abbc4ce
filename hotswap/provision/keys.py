"""What things in the cache are named by: a hash of all that went into them, our Python included."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path


def base_python() -> Path:
    """Get the interpreter that runs us, outside of any virtual environment."""
    return Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()


def key(*parts: str | bytes) -> str:
    """Get a short hash of the parts and of our Python: its path, version and platform."""
    digest = hashlib.sha256()
    for part in (str(base_python()), sys.version, sys.platform, os.uname().machine, *parts):
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:16]
