"""What is no turn: relayed to where it belongs, and a fault of ours there is told as ours."""

from __future__ import annotations

import pytest
from _kit.behind import awaited, behind
from _kit.provider import say

from hotswap.proxy.tape import Asked, Incoming


async def broken(asked: Asked) -> Incoming:
    raise RuntimeError(f"nothing is where it should be for {asked.path}")


class Breaking:
    """An answer that begins well, and then breaks us."""

    status = 200
    headers = {"Content-Type": "text/plain"}
    at_end = False

    async def read(self) -> bytes:
        raise RuntimeError("nothing is where it should be")

    def close(self) -> None:
        """Nothing is held."""


async def breaking(asked: Asked) -> Incoming:
    return Breaking()


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/messages/count_tokens"])
@awaited
async def test_a_fault_of_ours_beside_the_calls_is_blamed_on_us_in_the_words_of_the_dialect(
    path: str,
) -> None:
    upstream = {"dialects": ("chat", "messages")}
    async with behind(source=broken, upstream=upstream) as seat:
        said = await seat.send({}, path=path)
        trace = seat.trace()
    [helper] = trace.helpers
    assert (said.status, helper.status, trace.calls) == (502, 502, [])
    assert "the proxy broke down: RuntimeError" in said.json["error"]["message"]
    assert said.json.get("type") == ("error" if "messages" in path else None)
    assert helper.error is not None
    assert (helper.error.blame, helper.error.type) == ("hotswap", "proxy")
    assert "nothing is where it should be" in helper.error.message


@awaited
async def test_an_answer_that_has_begun_is_cut_where_we_break_down() -> None:
    async with behind(source=breaking) as seat:
        with pytest.raises(Exception, match=r"not complete|closed|disconnected"):
            await seat.send({}, path="/v1/embeddings")
        [helper] = seat.trace().helpers
    assert helper.error is not None
    assert (helper.status, helper.error.blame) == (200, "hotswap")


@pytest.mark.parametrize(
    ("path", "arrives"),
    [
        ("/v1", "/v1"),
        ("/v1/", "/v1/"),
        ("/v1beta", "/v1"),
        ("/v1/files", "/v1/files"),
        ("/files", "/v1/files"),
        ("/v10x/files", "/v1/files"),
    ],
)
@awaited
async def test_what_stands_behind_the_version_goes_up_behind_the_endpoints(path: str, arrives: str) -> None:
    async with behind(say("hi")) as seat:
        assert (await seat.send({}, path=path)).status == 200
        [helper] = seat.trace().helpers
    assert seat.provider.posts[0].path == arrives
    assert (helper.path, helper.error) == (path, None)
