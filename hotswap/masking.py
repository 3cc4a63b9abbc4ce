"""Secrets that must not be written: replaced by `[secret:NAME]` in every line that goes to disk.

Known secrets are found by their value, wherever they stand and however often they were quoted in JSON. Others are
found beside their name: `GITHUB_TOKEN=...`, `"api_key": "..."`, `x-api-key: ...`, `?access_token=...`, and the
password in `https://me:...@host`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

SHORTEST = 8
"""A shorter value is no secret worth the name, and would be found in ordinary text."""

NESTING = 3
"""How often a value may have been quoted: arguments of a tool are JSON in JSON, and may be quoted again."""

_SECRET = (
    r"(?:TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|API_?KEY|ACCESS_KEY|PRIVATE_KEY|SECRET_KEY|CREDENTIALS?)"
)
_NAME = re.compile(rf"(?:^|.*_){_SECRET}(?:_\d+)?$|.*API_?KEY(?:_\w+)?$", re.IGNORECASE)
_LINE = re.compile(rf"(?m)^((?:export )?(?:[A-Z0-9_]*_)?{_SECRET}(?:_\d+)?=)(?!\[secret:)(\S.*)$")
_ASSIGNMENT = re.compile(
    rf"((?<![A-Z0-9_])(?:[A-Z0-9_]*_)?{_SECRET}(?:_\d+)?=)(?!\[secret:)([^\s\"'`;&|\\]+)"
)
_QUOTE = r"""\\*["']"""
"""A quotation mark, however often it was itself quoted."""
_FIELD = re.compile(
    rf"(?i)({_QUOTE}((?:\w*_)?(?:api_?key|access_token|auth_token|password|passwd|client_secret)){_QUOTE}\s*:\s*{_QUOTE})"
    r"(?!\[secret:)([^\"'\\]{8,})"
)
_HEADER = re.compile(
    rf"(?i)\b((x-api-key|x-goog-api-key|authorization)\b(?:{_QUOTE})?\s*:\s*(?:{_QUOTE})?(?:bearer\s+|basic\s+)?)"
    r"(?!\[secret:)([^\s\"'\\,}]{8,})"
)
_QUERY = re.compile(r"(?i)([?&](api_?key|access_token|token)=)(?!\[secret:)([^\s&\"'\\]{8,})")
_LOGIN = re.compile(r"(\w://([^\s:/@\"']+):)(?!\[secret:)([^\s/@\"']+)(?=@)")
_BY_PLACE = (_FIELD, _HEADER, _QUERY, _LOGIN)
"""Places where a secret stands beside its name: what precedes it, its name, and it."""
_PERHAPS = re.compile(
    rb"(?i)(?:token|passw(?:or)?d|passphrase|secret|api[_-]?key|access_key|private_key|credentials?|authorization)"
    rb"(?:_\d+)?[\\\"']*\s*[=:]|://[^\s:/@\"']+:[^\s/@\"']+@"
)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret: `DB_PASSWORD` does, `KEYBOARD` does not."""
    return _NAME.match(name.replace("-", "_")) is not None


def mask_names(variables: Mapping[str, str]) -> dict[str, str]:
    """Get variables with the values of those whose name says that they are secret replaced."""
    return {
        name: f"[secret:{name}]" if value and is_secret_name(name) else value
        for name, value in variables.items()
    }


class Masker:
    """Replaces secrets. `values` are the known ones by name; those under 8 characters are left alone."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._forms: dict[str, tuple[str, ...]] = {}
        for name, value in (values or {}).items():
            self.add(name, value)

    def add(self, name: str, value: str) -> None:
        """Know another secret."""
        if len(value) >= SHORTEST:
            self._forms[name] = _forms(value)

    def forget(self, name: str) -> None:
        """Know a secret no longer, as when the rollout that it was good for is over."""
        self._forms.pop(name, None)

    def text(self, text: str) -> tuple[str, int]:
        """Get text without its secrets, and how many were replaced."""
        count = 0
        for name, forms in list(self._forms.items()):
            for form in forms:
                found = text.count(form)
                if found:
                    text = text.replace(form, f"[secret:{name}]")
                    count += found
        for assignment in (_LINE, _ASSIGNMENT):
            text, named = assignment.subn(_masked_assignment, text)
            count += named
        for place in _BY_PLACE:
            text, named = place.subn(lambda match: f"{match[1]}[secret:{match[2]}]", text)
            count += named
        return text, count

    def raw(self, content: bytes) -> bytes:
        """Get what a program wrote without its secrets; it need not be text."""
        if not self._touches(content):
            return content
        return self.text(content.decode("utf-8", "surrogateescape"))[0].encode("utf-8", "surrogateescape")

    def line(self, line: bytes) -> tuple[bytes, int]:
        """Get a line of JSON without its secrets, and how many were replaced; otherwise it stays the same."""
        if not self._touches(line):
            return line, 0
        walk = _Walk(self)
        masked = walk.value(json.loads(line))
        if not walk.count:
            return line, 0
        return json.dumps(masked, separators=(",", ":"), allow_nan=False).encode() + b"\n", walk.count

    def document(self, text: str) -> str:
        """Get a whole JSON document without its secrets."""
        if not self._touches(text.encode("utf-8", "surrogatepass")):
            return text
        return json.dumps(_Walk(self).value(json.loads(text)), indent=1, allow_nan=False) + "\n"

    def _touches(self, line: bytes) -> bool:
        """Whether a secret may be in the line; quick, since nearly all lines have none."""
        forms = (form for forms in self._forms.values() for form in forms)
        return any(form.encode("utf-8", "surrogatepass") in line for form in forms) or bool(
            _PERHAPS.search(line)
        )


class _Walk:
    """One walk through JSON values that counts what it masks."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self.count = 0

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            text, found = self._masker.text(value)
            self.count += found
            return text
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.value(key): self.value(item) for key, item in value.items()}
        return value


def _masked_assignment(match: re.Match[str]) -> str:
    name = match[1].removeprefix("export ").removesuffix("=")
    return f"{match[1]}[secret:{name}]"


def _forms(value: str) -> tuple[str, ...]:
    """A value as it stands in text, and as it stands there after being quoted in JSON, the longest first."""
    forms = {value}
    for _ in range(NESTING + 1):  # the line that it stands in quotes it once more
        forms |= {
            json.dumps(form, ensure_ascii=ascii_only)[1:-1] for form in forms for ascii_only in (True, False)
        }
    return tuple(sorted(forms, key=len, reverse=True))
