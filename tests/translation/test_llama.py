"""The official SDKs in front of a real server of three dialects, llama.cpp's, each translated to each other.

Its words are not tested: they are the model's own. That they arrive, in a stream and in one piece, is.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from _kit.behind import QUICK, awaited
from _kit.sdks import converse
from _kit.speaking import DIALECTS

from hotswap import models
from hotswap.errors import UsageError
from hotswap.proxy.server import Proxy
from hotswap.proxy.session import SessionRequest

OFFLINE = ("Failed to fetch", "the network was disabled", "error sending request")
"""What uv says where the model cannot be had. Anything else that it says is a failure."""

FINISHES = {
    "chat": ("stop", "length"),
    "messages": ("end_turn", "max_tokens"),
    "responses": ("completed", "incomplete"),
}


@pytest.mark.parametrize("endpoint", DIALECTS)
@awaited
async def test_each_sdk_is_answered_by_each_dialect_of_a_real_server(endpoint: str) -> None:
    model = models.resolve("smollm2", {}, os.environ)
    try:
        async with model.serve(lambda line: None) as upstream, Proxy() as proxy:
            for program in sorted(set(DIALECTS) - {endpoint}):
                one = replace(upstream, dialects=(endpoint,))
                session = proxy.open(
                    SessionRequest(rollout="r", upstream=one, calls=replace(QUICK, timeout_s=50))
                )
                url = f"http://{proxy.gate.host}:{proxy.gate.port}"
                seat = (program, url, session.secret(), "Capital of Peru?")
                got = [await converse(*seat, stream=stream, tools={}, limit=6) for stream in (False, True)]
                written = "completion_tokens" if program == "chat" else "output_tokens"
                for one in got:
                    assert one.text
                    assert one.model in ("smollm2", "shown")  # a stream may begin before the server names it
                    assert one.calls == []
                    assert 0 < one.usage[written] <= 6
                    assert one.finish in FINISHES[program]
                await session.close()
    except UsageError as error:
        if any(words in str(error) for words in OFFLINE):
            pytest.skip("the wheels of smollm2 are not in the cache and cannot be fetched")
        raise
