"""Two requests as JSON: what may differ from run to run is left out, and the first other difference is shown.

What is left out by default stands here, with its reason. Fields are named by paths: `*` stands for any key or
index, `**` for any number of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

VOLATILE: Mapping[str, tuple[str, ...]] = {
    "chat": (
        *("model", "user", "prompt_cache_key", "safety_identifier"),
        *("metadata.user_id", "metadata.session_id", "metadata.request_id"),
    ),
    "responses": (
        *("model", "user", "prompt_cache_key", "safety_identifier", "client_metadata"),
        *("metadata.user_id", "metadata.session_id", "metadata.request_id", "input.*.id"),
    ),
    "messages": ("model", "metadata.user_id"),
    "gemini": ("model", "labels", "user_prompt_id", "session_id", "request.session_id"),
}
"""Fields that are not compared, by dialect. The model is what the run sets; the others are ids that programs make
up for each run, to be told apart by."""
UUID = re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")
ATTRIBUTION = re.compile(r"\b(cch|cc_version)=[^;\s]*")
"""What claude_code writes into its system prompt to say which call this is."""
FOLDER = re.compile(
    r"/[\w./-]*/hotswap-[0-9a-f]{6,}|(?:/private)?/var/folders/\w+/\w+/T/[\w.-]+|/tmp/tmp[\w.-]+"
)
"""A folder that was made for one rollout: a box's own, or a program's temporary one."""
CLOCK = r"(?:[T ,]*(?:at )?\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d+)?(?: ?[AP]M)?(?: ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))?)?"
DAYS = (
    *("%Y-%m-%d", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%Y%m%d"),
    *("%B %d, %Y", "%b %d, %Y", "%d %B %Y", "%d %b %Y"),
)
"""Ways to write a day. Zeros in front may be missing."""
MASKED = re.compile(r"\[secret:[^\]]*\]")
SHOWN = 60
"""Characters of a value around the place where it differs."""

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Rules:
    """What is not compared."""

    ignore: tuple[str, ...] = ()
    """Further paths."""
    exact: bool = False
    """Leave out nothing but those."""

    def fields(self, dialect: str | None) -> tuple[str, ...]:
        own = () if self.exact or dialect is None else VOLATILE.get(dialect, ("model",))
        return (*own, *self.ignore)


@dataclass(frozen=True)
class Read:
    """A request's body, ready to be compared."""

    value: Any
    at: float
    """When it was sent, in epoch seconds: its own day may differ from that of another."""
    rules: Rules = field(default_factory=Rules)


def read(body: bytes, dialect: str | None, at: float, rules: Rules) -> Read:
    """Read a body without its volatile fields; one that is no JSON is text."""
    try:
        value = json.loads(body) if body else None
    except (ValueError, RecursionError):
        value = body.decode("utf-8", "replace")
    for path in rules.fields(dialect):
        value = _without(value, path.replace("[", ".").replace("]", "").split("."))
    return Read(value, at, rules)


def differences(recorded: Read, sent: Read) -> Iterator[tuple[Path, Any, Any]]:
    """Iterate over the places where two requests differ, with what stands there in both."""
    yield from _differ((), recorded.value, sent.value, (recorded, sent))


def describe(path: Path, recorded: Any, sent: Any) -> str:
    """Say in one line where two requests differ, and how."""
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    before, after = _shown(recorded), _shown(sent)
    if isinstance(recorded, str) and isinstance(sent, str):
        before, after = _around(recorded, sent)
    return f"at {where or 'the top'}: recorded {before}, sent {after}"


class Missing:
    """Stands for a field that is not there."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = Missing()


def _without(value: Any, path: Sequence[str]) -> Any:
    """Get a value without the fields that a path names."""
    if not path or not isinstance(value, dict | list):
        return value
    head, *rest = path
    if head == "**":
        value = _without(value, rest)
        return _mapped(value, lambda item: _without(item, path))
    if isinstance(value, list):
        chosen = {at for at in range(len(value)) if head in ("*", str(at))}
        if rest:
            return [_without(item, rest) if at in chosen else item for at, item in enumerate(value)]
        return [item for at, item in enumerate(value) if at not in chosen]
    if rest:
        return {key: _without(item, rest) if head in ("*", key) else item for key, item in value.items()}
    return {key: item for key, item in value.items() if head not in ("*", key)}


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, dict):
        return {key: change(item) for key, item in value.items()}
    return [change(item) for item in value] if isinstance(value, list) else value


def _differ(path: Path, one: Any, other: Any, both: tuple[Read, Read]) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            yield from _differ((*path, key), one.get(key, NOTHING), other.get(key, NOTHING), both)
    elif isinstance(one, list) and isinstance(other, list):
        for at in range(max(len(one), len(other))):
            mine, theirs = (items[at] if at < len(items) else NOTHING for items in (one, other))
            yield from _differ((*path, at), mine, theirs, both)
    elif not _same(one, other, both):
        yield path, one, other


def _same(one: Any, other: Any, both: tuple[Read, Read]) -> bool:
    if one == other:
        return isinstance(one, bool) == isinstance(other, bool)  # 1 is not true
    if not (isinstance(one, str) and isinstance(other, str)):
        return False
    recorded, sent = both
    if not recorded.rules.exact:
        one, other = steady(one, recorded.at), steady(other, sent.at)
    return one == other or (MASKED.search(one) is not None and _fits(one, other))


def _fits(masked: str, text: str) -> bool:
    """Whether a text could be the one in which secrets were masked."""
    return re.fullmatch(".+?".join(map(re.escape, MASKED.split(masked))), text, re.DOTALL) is not None


def steady(text: str, at: float) -> str:
    """Get a text without what is another one in each run: the day it is sent on, made-up ids, folders."""
    text = ATTRIBUTION.sub(r"\1=*", UUID.sub("<id>", text))
    return _today(int(at // 3600)).sub("<time>", FOLDER.sub("<folder>", text))


@lru_cache(64)
def _today(hour: int) -> re.Pattern[str]:
    """The day of an hour of the epoch in every way to write it, and the two around it: there are time zones."""
    now = datetime.fromtimestamp(hour * 3600, UTC)
    days = [now + timedelta(days=shift) for shift in (-1, 0, 1)]
    written = {re.escape(day.strftime(way)) for day in days for way in DAYS}
    written |= {re.sub(r"\b0(\d)", r"\1", text) for text in written}
    written |= {day.strftime("%a %b ") + f" ?{day.day}{CLOCK}(?: UTC| GMT)? {day.year}" for day in days}
    either = "|".join(sorted(written, key=len, reverse=True))
    return re.compile(rf"(?<!\d)(?:{either})(?!\d){CLOCK}")


def _shown(value: Any) -> str:
    if isinstance(value, Missing):
        return repr(value)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 2 * SHOWN else f"{text[: 2 * SHOWN]}..."


def _around(one: str, other: str) -> tuple[str, str]:
    """Show two texts from shortly before the place where they differ."""
    pairs = zip(one, other, strict=False)
    at = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
    start = max(0, at - SHOWN // 2)
    return _cut(one, start), _cut(other, start)


def _cut(text: str, start: int) -> str:
    shown = _shown(text[start : start + SHOWN])
    return f"{'...' if start else ''}{shown}{'...' if len(text) > start + SHOWN else ''}"
