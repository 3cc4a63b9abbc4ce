"""OpenAI's own API."""

from __future__ import annotations

from typing import ClassVar

from hotswap.contracts.model import Preset


class OpenAI(Preset):
    """OpenAI's models: `-m openai/gpt-5-mini`."""

    url: ClassVar[str] = "https://api.openai.com/v1"
    key_variable: ClassVar[str | None] = "OPENAI_API_KEY"
    dialects: ClassVar[tuple[str, ...]] = ("responses", "chat")
    provider: ClassVar[str | None] = "openai"
    token_ids: ClassVar[bool] = False
