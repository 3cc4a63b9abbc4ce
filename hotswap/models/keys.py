"""The key of a provider: read from one variable of the environment, when a model is resolved."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hotswap.errors import MissingKey, UsageError

SHORTEST = 8
"""A shorter key could not be told from ordinary text where secrets are masked."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True)
class Variable:
    """The variable that holds a key, and who named it."""

    name: str
    where: str
    required: bool = True

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.where}: key is the NAME of the variable that holds the key, never the key"
            )

    def read(self, model: str, environment: Mapping[str, str]) -> str | None:
        """Get the key, without space around it. Raises UsageError where it is missing or cannot be one."""
        value = environment.get(self.name)
        key = (value or "").strip()
        if not key and not self.required:
            return None
        if not key:
            state = "is not set" if value is None else "is empty"
            cause = f"the variable {self.name}, which holds its key ({self.where}), {state}"
            raise MissingKey(self.name, f"model {model!r}: {cause}. Set it: export {self.name}=...")
        if len(key) < SHORTEST:
            cause = f"{self.name} holds fewer than {SHORTEST} characters"
            raise UsageError(f"model {model!r}: {cause}: too few to be masked in what is written")
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError(f"model {model!r}: {self.name} holds a character that no key has")
        return key
