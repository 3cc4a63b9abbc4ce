"""Secrets that must not be written: replaced by `[secret:NAME]` in every line that goes to disk.

Known secrets are found by their value, wherever they stand, however often they were quoted in JSON, and in base64.
Others are found beside their name: `GITHUB_TOKEN=...`, `"api_key": "..."`, `--password ...`, `x-api-key: ...`,
`?access_token=...`, and the password in `https://me:...@host`.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

SHORTEST = 8
"""A shorter value is no secret worth the name, and would be found in ordinary text."""

PLAIN = " !#$%()*,-.:;?@[]^_`{|}~"
"""Characters that JSON writers leave as they are, also those that escape what has a meaning in HTML."""
NESTING = 3
"""How often a value may have been quoted: arguments of a tool are JSON in JSON, and may be quoted again."""

_SECRET = (
    r"(?:TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|API_?KEY|ACCESS_KEY|PRIVATE_KEY|SECRET_KEY|CREDENTIALS?)"
)
_NAME = re.compile(rf"(?:^|.*_){_SECRET}(?:_\d+)?$|.*API_?KEY(?:_\w+)?$", re.IGNORECASE)
_VARIABLE = rf"(?:(?:[A-Z0-9_]{{0,60}}_)?{_SECRET}(?:_\d+)?|[A-Z0-9_]{{0,60}}API_?KEY(?:_[A-Z0-9_]{{1,60}})?)"
"""The name of a variable that holds a secret."""
_QUOTE = r"""\\{0,16}["']"""
"""A quotation mark, however often it was itself quoted."""
_START = r"(?:(?<![\w-])|(?<=\\[nrt]))"
"""The beginning of a word, also behind the end of a line that was quoted in JSON."""
_LINE = re.compile(rf"(?m)^((?:export |declare -x )?{_VARIABLE}=)(?!\[secret:)(\S.*)$")
_ASSIGNMENT = re.compile(rf"((?<![A-Z0-9_]){_VARIABLE}={_QUOTE}?)(?!\[secret:)([^\s\"'`;&|\\]+)")

_SURE = (
    r"(?:[\w-]{0,60}[_-])?(?:api[_-]?key|(?:access|auth|bearer|id|refresh|security|session)[_-]token|password|passwd"
    r"|passphrase|client[_-]secret|(?:access|private|secret)[_-]key)"
)
_KEY = (
    rf"(?:{_SURE}|(?-i:[A-Z][A-Z0-9_]{{0,60}}_(?:TOKEN|SECRET|CREDENTIALS?)(?:_\d+)?"
    rf"|[A-Z0-9_]{{0,60}}API_?KEY_[A-Z0-9_]{{1,60}}))"
)
"""A key beside which a secret stands. A bare `token` is none, nor is `eos_token`: models are full of them."""
_SURELY = re.compile(_KEY, re.IGNORECASE)
_FIELD = re.compile(rf"(?i)({_QUOTE}({_KEY}){_QUOTE}\s*:\s*{_QUOTE})(?!\[secret:)([^\"'\\]{{8,}})")
_SETTING = re.compile(rf"(?i)({_START}({_KEY})\s*=\s*{_QUOTE})(?!\[secret:)([^\"'\\]{{8,}})")
_FLAG = re.compile(
    rf"(?i)({_START}--(?=[a-z])((?:[\w.-]{{0,60}}\.)?(?:{_SURE}|token|secret))(?:=|\s+){_QUOTE}?)"
    r"(?!\[secret:)([^\s\"'\\-][^\s\"'\\]{7,})"
)
_HEADER = re.compile(
    rf"(?i){_START}((x-api-key|x-goog-api-key|authorization)\b(?:{_QUOTE})?\s*:\s*(?:{_QUOTE})?(?:bearer\s+|basic\s+)?)"
    r"(?!\[secret:)([^\s\"'\\,}]{8,})"
)
_QUERY = re.compile(
    rf"(?i)([?&]({_SURE}|token|secret|sig|[\w-]{{0,40}}signature)=)(?!\[secret:)([^\s&#\"'\\]{{4,}})"
)
_BARE_KEY = re.compile(
    r"(?i)([?&](key)=)(?!\[secret:)(?=[^\s&#\"'\\]*\d)(?!(?-i:[A-Z_][A-Z0-9_]*)(?:[\s&#\"'\\]|$))"
    r"([^\s&#\"'\\]{8,})"
)
"""`?key=`, as Google has it; what is written like a variable's name is one: `-m NAME@URL?key=MY_API_KEY`."""
_LOGIN = re.compile(r"(\w://([^\s:/@\"']+):)(?!\[secret:)([^\s/@\"']+)(?=@)")
_TOKEN_LOGIN = re.compile(r"(\w://)(?!\[secret:)([^\s:/@\"'\\]{20,})(?=@)")
_BY_PLACE = (_FIELD, _SETTING, _FLAG, _HEADER, _QUERY, _BARE_KEY, _LOGIN)
"""Places where a secret stands beside its name: what precedes it, its name, and it."""
_WORD = rb"(?:token|passw(?:or)?d|passphrase|secret|api[_-]?key(?:_\w+)?|(?:access|private|secret)[_-]key|credentials?)"
_PERHAPS = re.compile(
    rb"(?i)(?:" + _WORD + rb"|authorization)(?:_\d+)?[\\\"']*[\s\x80-\xff]*[=:]"
    rb"|(?<!-)--(?=[a-zA-Z])[\w.-]{0,60}" + _WORD + rb"[\\\"']*[\s,\x80-\xff]"
    rb"|[?&](?:key|sig|[\w-]{0,40}signature)="
    rb"|://[^\s/@\"']+@"
)
"""Finds all that the others find, in bytes: where they pass over any space, it passes over what is not ASCII."""


_PLAIN_RUN = re.compile("[A-Za-z0-9]+")
Write = Callable[[re.Match[str]], str]
STEP = 1 << 12
"""Characters of a long text that are searched at a time."""
NEAR = 512
"""What is found has one of `_WORDS` so near to its beginning."""
BEYOND = 1 << 13
"""So far behind a step is looked for what makes something that begins in it a secret."""
_WORDS = (
    *(b"token", b"passw", b"passphrase", b"secret", b"key", b"credential", b"authorization"),
    *(b"sig=", b"signature=", b"://"),
)
_HINTS = (b"passw", b"passphrase", b"secret", b"credential", b"authorization", b"sig=", b"signature=")
_KEY_HINTS = (b"_key", b"-key", b"apikey", b"key=")
"""What `_PERHAPS` finds has one of these in it, or one of two things more: see `_may_hold`."""


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret: `DB_PASSWORD` does, `KEYBOARD` does not."""
    return _NAME.match(name.replace("-", "_")) is not None


def is_masked(text: str) -> bool:
    """Whether a secret was masked in the text, so that it cannot be used as it is."""
    return "[secret:" in text


def secrets_in(url: str) -> dict[str, str]:
    """Get what an address carries beside the place: its password, and each value of its query, by name."""
    parts = re.match(r"[a-z+]+://(?:([^/?#@]*)@)?[^?#]*(?:\?([^#]*))?", url, re.IGNORECASE)
    if parts is None:
        return {}
    pairs = (pair.partition("=") for pair in (parts[2] or "").split("&"))
    found = {name: value for name, _, value in pairs if value}
    return {**found, "login": parts[1]} if parts[1] else found


def masked_url(url: str) -> str:
    """Get an address without what it carries beside the place."""
    for name, value in secrets_in(url).items():
        before, after = ("://", "@") if name == "login" else (f"{name}=", "")
        url = url.replace(f"{before}{value}{after}", f"{before}[secret:{name}]{after}")
    return url


class Masker:
    """Replaces secrets. `values` are the known ones by name; those under 8 characters are left alone."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._forms: dict[str, tuple[str, ...]] = {}
        self._cores: dict[str, tuple[bytes, ...]] = {}
        """The longest part of each that no writer escapes, as it is and in base64: where none of them is, no form of
        the secret is."""
        for name, value in (values or {}).items():
            self.add(name, value)

    def add(self, name: str, value: str) -> None:
        """Know another secret."""
        if len(value) >= SHORTEST:
            packed = _in_base64(value)
            self._forms[name] = (*_forms(value), *packed)
            self._cores[name] = tuple({_core(text): None for text in (value, *packed)})

    def forget(self, name: str) -> None:
        """Know a secret no longer, as when the rollout that it was good for is over."""
        self._forms.pop(name, None)
        self._cores.pop(name, None)

    def text(self, text: str) -> tuple[str, int]:
        """Get text without its secrets, and how many were replaced."""
        count = 0
        for name, forms in list(self._forms.items()):
            for form in forms:
                found = text.count(form)
                if found:
                    text = text.replace(form, f"[secret:{name}]")
                    count += found
        hinted = b""
        for pattern, write in _WRITTEN:
            if len(text) <= STEP:
                text, named = pattern.subn(write, text)
            else:
                hinted = hinted or _hinted(text.encode("ascii", "replace"))
                text, named = _replaced(pattern, write, text, hinted)
                hinted = b"" if named else hinted
            count += named
        return text, count

    def raw(self, content: bytes) -> bytes:
        """Get what a program wrote without its secrets; it need not be text."""
        if not self.touches(content):
            return content
        return self.text(content.decode("utf-8", "surrogateescape"))[0].encode("utf-8", "surrogateescape")

    def known(self, content: bytes) -> bytes:
        """Get content without the known secrets; all else in it stays, whatever it looks like."""
        for name, forms in list(self._forms.items()):
            if any(core in content for core in self._cores[name]):
                for form in forms:
                    content = content.replace(
                        form.encode("utf-8", "surrogatepass"), f"[secret:{name}]".encode()
                    )
        return content

    def line(self, line: bytes) -> tuple[bytes, int]:
        """Get a line of JSON without its secrets, and how many were replaced; otherwise it stays the same."""
        if not self.touches(line):
            return line, 0
        walk = _Walk(self)
        masked = walk.value(json.loads(line))
        if not walk.count:
            return line, 0
        return json.dumps(masked, separators=(",", ":"), allow_nan=False).encode() + b"\n", walk.count

    def document(self, text: str) -> str:
        """Get a whole JSON document without its secrets."""
        if not self.touches(text.encode("utf-8", "surrogatepass")):
            return text
        return json.dumps(_Walk(self).value(json.loads(text)), indent=1, allow_nan=False) + "\n"

    def touches(self, line: bytes) -> bool:
        """Whether a secret may be in a line or a text; quick, since nearly all have none."""
        for name, cores in self._cores.items():
            for core in cores:
                if core in line and self._has_form(line, name):
                    return True
        return _may_hold(line) and _perhaps(line)

    def _has_form(self, line: bytes, name: str) -> bool:
        return any(form.encode("utf-8", "surrogatepass") in line for form in self._forms[name])


class _Walk:
    """One walk through JSON values that counts what it masks."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self.count = 0

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            if not self._masker.touches(value.encode("utf-8", "surrogatepass")):
                return value  # another one of the line may hold a secret, and a long one takes a second to search
            text, found = self._masker.text(value)
            self.count += found
            return text
        if isinstance(value, list):
            return [self._beside(before, item) for before, item in zip(("", *value), value, strict=False)]
        if isinstance(value, dict):
            return {self.value(key): self._below(key, item) for key, item in value.items()}
        return value

    def _below(self, key: str, item: Any) -> Any:
        """What stands under a key, which may be the name of a secret."""
        if _SURELY.fullmatch(key) and isinstance(item, str) and item and not is_masked(item):
            self.count += 1
            return f"[secret:{key}]"
        return self.value(item)

    def _beside(self, before: Any, item: Any) -> Any:
        """What follows a word, which may be an option that takes a secret: `["--api-key", "..."]`."""
        option = (
            before.rpartition(".")[2].lstrip("-") if isinstance(before, str) and before[:2] == "--" else ""
        )
        if option and is_secret_name(option) and isinstance(item, str) and item[:2] != "--":
            self.count += 1
            return f"[secret:{option}]"
        return self.value(item)


def _may_hold(line: bytes) -> bool:
    """Whether the slow search can find anything. Most lines hold none of its words, but for counts of tokens."""
    low = line.lower()
    for hint in _HINTS:
        if hint in low:
            return True
    if b"key" in low and any(hint in low for hint in _KEY_HINTS):
        return True
    return low.count(b"token") > low.count(b"tokens") or (b"@" in line and b"://" in line)


def _perhaps(line: bytes) -> bool:
    """Whether the slow search finds anything. It goes in steps, between which other threads get their turn."""
    if len(line) <= STEP:
        return bool(_PERHAPS.search(line))
    hinted = _hinted(line)
    return any(
        _PERHAPS.search(line, at, at + STEP + BEYOND)
        for at in range(0, len(line), STEP)
        if _is_hinted(hinted, at)
    )


def _replaced(pattern: re.Pattern[str], write: Write, text: str, hinted: bytes) -> tuple[str, int]:
    """Get what `pattern.subn` gets. A long text is gone through in steps: those without a word beside which a secret
    could stand are passed over, and between two others other threads get their turn."""
    kept: list[str] = []
    at = start = 0
    while start < len(text):
        end = start + STEP
        begun = pattern.search(text, start, end + BEYOND) if _is_hinted(hinted, start) else None
        if begun is None or begun.start() >= end:
            start = end
            continue
        found = pattern.match(text, begun.start())  # what is found may go on beyond the step
        start = begun.start() + 1
        if found is not None:
            kept += [text[at : found.start()], write(found)]
            at = start = found.end()
    return ("".join([*kept, text[at:]]), len(kept) // 2) if kept else (text, 0)


def _hinted(text: bytes) -> bytes:
    """Get a byte for each step of a text: 1 where a word begins in it beside which a secret could stand."""
    low = text.lower()
    steps = bytearray(len(text) // STEP + 1)
    for word in _WORDS:
        at = low.find(word)
        while at >= 0:
            steps[at // STEP] = 1
            at = low.find(word, (at // STEP + 1) * STEP)
    return bytes(steps)


def _is_hinted(hinted: bytes, at: int) -> bool:
    """Whether a secret could stand beside its name where the name begins in so many characters from a place on."""
    return 1 in hinted[at // STEP : (at + STEP + NEAR) // STEP + 1]


def _masked_place(match: re.Match[str]) -> str:
    return f"{match[1]}[secret:{match[2]}]"


def _masked_login(match: re.Match[str]) -> str:
    return f"{match[1]}[secret:login]"


def _masked_assignment(match: re.Match[str]) -> str:
    name = match[1].removeprefix("export ").removeprefix("declare -x ").partition("=")[0]
    return f"{match[1]}[secret:{name}]"


_WRITTEN: tuple[tuple[re.Pattern[str], Write], ...] = (
    *((pattern, _masked_assignment) for pattern in (_LINE, _ASSIGNMENT)),
    *((pattern, _masked_place) for pattern in _BY_PLACE),
    (_TOKEN_LOGIN, _masked_login),
)


def _core(text: str) -> bytes:
    return max(_PLAIN_RUN.findall(text), key=len, default="").encode()


def _in_base64(value: str) -> tuple[str, ...]:
    """What of a value stands in base64 whatever is packed before and behind it: for each of the three places where it
    may begin in a group, in both alphabets, and as JSON writers may escape it."""
    data, forms = value.encode("utf-8", "surrogatepass"), set()
    for before, unsure in ((0, 0), (1, 2), (2, 3)):
        sure = slice(unsure, (before + len(data)) * 8 // 6)
        for packed in (b64encode(bytes(before) + data), urlsafe_b64encode(bytes(before) + data)):
            forms.add(packed.decode()[sure])
    forms |= {form.replace("/", "\\/") for form in forms}
    return tuple(sorted(forms, key=len, reverse=True))


def _forms(value: str) -> tuple[str, ...]:
    """A value as it stands in text, as it stands there after being quoted in JSON, by whatever writer, and in an
    address; the longest first."""
    forms = {value, value.replace("/", "\\/"), quote(value, safe=""), quote(value), quote_plus(value)}
    for style in ("\\u%04x", "\\u%04X"):  # writers that escape all that could stand in a page or an address
        for plain in (".-_~", PLAIN, PLAIN + "/", ""):
            forms.add(
                "".join(c if c.isascii() and (c.isalnum() or c in plain) else style % ord(c) for c in value)
            )
    for _ in range(NESTING + 1):  # the line that it stands in quotes it once more
        forms |= {
            json.dumps(form, ensure_ascii=ascii_only)[1:-1] for form in forms for ascii_only in (True, False)
        }
    return tuple(sorted(forms, key=len, reverse=True))
