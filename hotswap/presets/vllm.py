"""A vLLM server, on this machine or where VLLM_BASE_URL says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hotswap.contracts.model import Preset


class Vllm(Preset):
    """Models of a vLLM server: `-m vllm/Qwen/Qwen3-8B`. VLLM_BASE_URL and VLLM_API_KEY are honoured."""

    url: ClassVar[str] = "http://127.0.0.1:8000/v1"
    key_variable: ClassVar[str | None] = "VLLM_API_KEY"
    key_required: ClassVar[bool] = False
    dialects: ClassVar[tuple[str, ...]] = ("chat", "responses", "messages")

    def address(self, environment: Mapping[str, str]) -> str:
        return environment.get("VLLM_BASE_URL", "").strip() or self.url
