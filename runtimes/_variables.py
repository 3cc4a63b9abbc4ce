"""The environment of a box: a few names from here, and what the person hands it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator

from hotswap.errors import UsageError

PASSED = ("LANG", "LANGUAGE", "TZ")
"""Variables that a box has from here, beside LC_*. No other: no key that lies about is found."""
LOOPBACK = "localhost,127.0.0.1,::1"
KEYS = re.compile(
    r"(OPENAI|AZURE|ANTHROPIC|CLAUDE|OPENROUTER|GEMINI|GOOGLE|MISTRAL|GROQ|DEEPSEEK|XAI|TOGETHER|FIREWORKS"
    r"|COHERE|PERPLEXITY|HF|HUGGING_?FACE|AWS|PRIME)\w*(KEY|TOKEN|SECRET)\w*",
    re.IGNORECASE,
)
"""Names of variables that hold a provider's key."""


def environment(passed: Collection[str] = PASSED) -> dict[str, str]:
    """Get what a box has of the environment here, but for its PATH."""
    found = {name: value for name, value in os.environ.items() if name in passed or name.startswith("LC_")}
    return {**found, "TERM": "dumb", "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK}


def named(entries: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Get what `NAME` and `NAME=value` stand for."""
    for entry in entries:
        name, given, value = entry.partition("=")
        yield name, value if given else os.environ[name]


def check_named(setting: str, entries: Iterable[str]) -> None:
    """Raise UsageError for a provider's key, and for a variable that is not set here."""
    for entry in entries:
        name, given, _ = entry.partition("=")
        if KEYS.fullmatch(name):
            raise UsageError(f"{setting}: {name} holds a provider's key, which may not enter a box")
        if not given and name not in os.environ:
            raise UsageError(f"{setting}: {name} is not set here; to set it, write {name}=value")
