"""Images, files and sound in messages, each kept once under the hash of its bytes.

A payload is base64 text inside a part of a message. In its place comes a reference, `{"blob": "sha256:...",
"media_type": ..., "bytes": n}`: equal payloads get equal references.
"""

from __future__ import annotations

import binascii
import mimetypes
import os
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any

LEAST = 1_024
"""Characters of base64 below which a payload stays where it is."""
DEPTH = 12
"""How deep in a part a payload is looked for."""
PLAIN = frozenset({"text", "input", "args", "arguments", "thinking", "signature", "encrypted_content"})
"""Fields that hold words or values, whatever they look like."""
UNKNOWN = "application/octet-stream"

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*);base64,", re.IGNORECASE)
_NAME = re.compile(r"(?:sha256:)?([0-9a-f]{64})")


class Blobs:
    """A folder of payloads. It is made when the first one comes."""

    def __init__(self, folder: Path, mask: Callable[[bytes], bytes] = bytes) -> None:
        """`mask` takes out of a payload what may not be written."""
        self.folder = folder
        self._mask = mask
        self._known: set[str] = set()

    def take(self, content: Any) -> Any:
        """Get a message's content with references in the place of its payloads, which are kept.

        What holds none comes back as the same object. Never raises: what cannot be read or kept stays as it is.
        """
        return self._walk(content, DEPTH) if isinstance(content, list | tuple | Mapping) else content

    def read(self, reference: Mapping[str, Any] | str) -> bytes:
        """Get the bytes of a reference, or of its `blob`."""
        name = reference if isinstance(reference, str) else reference.get("blob")
        found = _NAME.fullmatch(name) if isinstance(name, str) else None
        if found is None:
            raise ValueError(f"{name!r} names no blob: it should be 'sha256:' and 64 hexadecimal digits")
        return (self.folder / found[1]).read_bytes()

    def _walk(self, value: Any, depth: int) -> Any:
        if depth == 0:
            return value
        if isinstance(value, Mapping):
            return self._part(value, depth)
        if not isinstance(value, list | tuple):
            return value
        new = [self._walk(item, depth - 1) for item in value]
        return new if any(a is not b for a, b in zip(new, value, strict=True)) else value

    def _part(self, part: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
        changed = {}
        for name, value in part.items():
            if name in PLAIN:
                continue
            new = self._payload(part, name, value) if isinstance(value, str) else self._walk(value, depth - 1)
            if new is not value:
                changed[name] = new
        return {**part, **changed} if changed else part

    def _payload(self, part: Mapping[str, Any], name: str, text: str) -> Any:
        """A reference for the text of a field that holds a payload, else the text."""
        if len(text) < LEAST:
            return text
        url = _DATA_URL.match(text, 0, 256)
        if url is not None:
            return self._keep(text, url.end(), url[1] or UNKNOWN)
        media_type = _media_type(part, name)
        return text if media_type is None else self._keep(text, 0, media_type)

    def _keep(self, text: str, start: int, media_type: str) -> Any:
        try:
            payload = self._mask(_decode(text, start))
            digest = sha256(payload).hexdigest()
            self._write(digest, payload)
        except (ValueError, OSError):  # no base64, or no place for it: the text itself is on record then
            return text
        return {"blob": f"sha256:{digest}", "media_type": media_type, "bytes": len(payload)}

    def _write(self, digest: str, payload: bytes) -> None:
        path = self.folder / digest
        if digest in self._known or path.exists():
            self._known.add(digest)
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f".{digest[:16]}-{os.getpid()}-{token_hex(4)}"
        try:
            part.write_bytes(payload)
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        self._known.add(digest)


def _decode(text: str, start: int) -> bytes:
    """Base64 with or without line breaks and padding. Raises ValueError where it is none."""
    data = text[start:].encode("ascii")
    if b"\n" in data:
        data = data.replace(b"\r", b"").replace(b"\n", b"")
    return binascii.a2b_base64(data + b"=" * (-len(data) % 4), strict_mode=True)


def _media_type(part: Mapping[str, Any], name: str) -> str | None:
    """What the payload in a field is, by the fields beside it; null where the field is none that holds one."""
    if name == "data" and part.get("type") != "text":
        said = part.get("media_type") or part.get("mimeType") or part.get("mime_type")
        if isinstance(said, str):
            return said if len(said) < LEAST else UNKNOWN
        sound = part.get("format")
        return f"audio/{sound}" if isinstance(sound, str) else UNKNOWN if _is_sound(part) else None
    if name == "file_data":
        return mimetypes.guess_type(str(part.get("filename") or ""))[0] or UNKNOWN
    if name == "result" and part.get("type") == "image_generation_call":
        return f"image/{part.get('output_format') or 'png'}"
    return None


def _is_sound(part: Mapping[str, Any]) -> bool:
    """Whether this is what a model said aloud: there its format stands in the request."""
    return "transcript" in part
