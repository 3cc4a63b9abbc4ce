"""OpenRouter: many providers behind one address and one key."""

from __future__ import annotations

from typing import ClassVar

from hotswap.contracts.model import Preset


class OpenRouter(Preset):
    """Models of many providers, by way of OpenRouter: `-m openrouter/qwen/qwen3-32b`."""

    url: ClassVar[str] = "https://openrouter.ai/api/v1"
    key_variable: ClassVar[str | None] = "OPENROUTER_API_KEY"
    dialects: ClassVar[tuple[str, ...]] = ("chat", "responses", "messages")
    provider: ClassVar[str | None] = "openrouter"
    token_ids: ClassVar[bool] = False
