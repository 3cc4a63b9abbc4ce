"""Anthropic's own API."""

from __future__ import annotations

from typing import ClassVar

from hotswap.contracts.model import Preset


class Anthropic(Preset):
    """Anthropic's models: `-m anthropic/claude-sonnet-4-5`.

    Their chat route is a layer of compatibility, without prompt caching and without thinking blocks.
    """

    url: ClassVar[str] = "https://api.anthropic.com/v1"
    key_variable: ClassVar[str | None] = "ANTHROPIC_API_KEY"
    dialects: ClassVar[tuple[str, ...]] = ("messages", "chat")
    provider: ClassVar[str | None] = "anthropic"
    token_ids: ClassVar[bool] = False
