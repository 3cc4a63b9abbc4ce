"""The base address of an endpoint, in one form however it was written."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from hotswap.errors import UsageError
from hotswap.masking import masked_url

VERSION = re.compile(r"v\d+(?:(?:alpha|beta)\d*)?")
"""A path's segment that is a version: `v1`, `v4`, `v1beta`."""
ROUTES = ("/chat/completions", "/responses", "/messages", "/models")
"""What people leave on an address that they copied from an example."""


def base_url(written: str, where: str) -> str:
    """Get the address that routes hang below, `/chat/completions` beside `/messages`: after the version.

    A slash at the end and the route of an example are taken off; where no segment of the path is a version,
    `/v1` is added. So `http://127.0.0.1:8000`, `http://127.0.0.1:8000/v1/` and
    `http://127.0.0.1:8000/v1/chat/completions` are one address, and so are the form that Anthropic's programs
    are given (without `/v1`) and the one of OpenAI's. A version in the middle counts:
    `https://gateway.example/v1/ACCOUNT/openai` stays as it is.

    Raises UsageError, beginning with `where`, for what is no address or holds a password.
    """
    try:
        parts = urlsplit(written.strip())
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        shown = masked_url(_without_password(written))
        raise UsageError(f"{where}: {shown!r} is no address: write http://HOST:PORT/v1 or https://HOST/v1")
    if "@" in parts.netloc:
        advice = "put it into a variable, and name that as the key"
        raise UsageError(f"{where}: the address holds a password, which would be kept with the run: {advice}")
    if parts.query or parts.fragment:
        raise UsageError(f"{where}: a base address takes nothing after '?' or '#'")
    path = parts.path.rstrip("/")
    for route in ROUTES:
        path = path.removesuffix(route)
    if not any(VERSION.fullmatch(segment) for segment in path.split("/")):
        path += "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


def _without_password(written: str) -> str:
    """Leave out what stands before an `@`: it may be a password."""
    return written.rpartition("@")[2]
