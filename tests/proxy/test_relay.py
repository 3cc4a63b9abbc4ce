"""What a program sends arrives upstream, and what the provider answers arrives in the program."""

from __future__ import annotations

import gzip
import json
import sys
import threading
from dataclasses import replace

import aiohttp
import pytest
from _kit.behind import KEY, Seat, awaited, behind, talk
from _kit.provider import Provider, Reply, call_tool, say, stream

from hotswap.proxy.tape import Tape
from hotswap.proxy.upstream import clean_query, join

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


@awaited
async def test_a_request_arrives_as_it_was_sent() -> None:
    raw = (
        b'{ "model":"shown", "messages":[{"content":"\\u00e9 \xc3\xa9"}],"new_field":{"a":[1,null]},"n":1.0}'
    )
    async with behind(say("hi")) as seat:
        await seat.send(
            raw, path="/v1/chat/completions?beta=true&x=%2F", **{"X-Vendor-New": "1", "OpenAI-Beta": "b"}
        )
        [got] = seat.provider.requests
    assert (got.method, got.path, got.query, got.body) == (
        "POST",
        "/v1/chat/completions",
        "beta=true&x=%2F",
        raw,
    )
    assert (got.headers["x-vendor-new"], got.headers["openai-beta"]) == ("1", "b")
    assert got.headers["content-type"] == "application/json"


@awaited
async def test_only_what_the_run_sets_is_changed_on_the_way() -> None:
    raw = b'{"model": "shown","messages":[ {"content":"hi"} ],"temperature":1,"store":false, "x":1.0}'
    upstream = {"model": "real", "drop": ["store"], "headers": {"X-Title": "eval"}, "sampling": {"seed": 1}}
    async with behind(say("hi"), upstream=upstream, sampling={"temperature": 0}) as seat:
        await seat.send(raw)
        [got] = seat.provider.requests
        [call] = seat.trace().calls
    assert got.body == (
        b'{"seed": 1, "model": "real","messages":[ {"content":"hi"} ],"temperature":0, "x":1.0}'
    )
    assert got.headers["x-title"] == "eval"
    assert (call.model, call.sampling, call.dropped) == ("real", {"temperature": 0, "seed": 1}, ["store"])


@pytest.mark.parametrize("place", ["Authorization", "x-api-key", "x-goog-api-key", "query"])
@awaited
async def test_the_secret_is_taken_wherever_it_is_put_and_never_goes_on(place: str) -> None:
    async with behind(say("hi")) as seat:
        secret = seat.session.secret()
        query = f"?a=1&key={secret}" if place == "query" else "?a=1"
        headers = {"Authorization": f"Bearer {secret}"} if place == "Authorization" else {place: secret}
        headers = {} if place == "query" else headers
        url = f"{seat.url}/v1/chat/completions{query}"
        async with seat.client.post(url, json={"messages": talk("hi")}, headers=headers) as response:
            assert response.status == 200
        [got] = seat.provider.requests
        written = seat.trace().to_line().decode()
    assert (got.query, got.headers["authorization"]) == ("a=1", f"Bearer {KEY}")
    assert secret not in f"{got.headers} {got.query} {written}"
    assert KEY not in written


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"x-api-key": KEY}])
@awaited
async def test_without_a_secret_nothing_goes_up(headers: dict[str, str]) -> None:
    async with behind(say("hi")) as seat:
        async with seat.client.post(f"{seat.url}/v1/chat/completions", json={}, headers=headers) as response:
            assert response.status == 401
            assert "error" in await response.json()
        assert seat.provider.requests == []


@awaited
async def test_answers_arrive_byte_for_byte_with_their_headers() -> None:
    odd = b'{ "choices" : [{"message":{"content":"\\u00e9"}, "finish_reason":"stop"}] , "tomorrow":1}\n'
    finish = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    word = 'data:{"choices":[{"delta":{"content":"é"}}]}\r\n\r\n'.encode()
    chunks = [word[:39], word[39:-1], word[-1:] + b": hi\n\n", finish + b"data: [DO", b"NE]\n\n: bye"]
    async with behind(Reply(body=odd, headers={"x-request-id": "q1"}), stream(chunks)) as seat:
        whole, streamed = await seat.ask("hi"), await seat.ask("hello", stream=True)
        trace = seat.trace()
    assert (whole.body, whole.headers["x-request-id"]) == (odd, "q1")
    assert streamed.body == b"".join(chunks)
    assert streamed.headers["content-type"] == "text/event-stream"
    assert [node.content for node in trace.messages if node.sampled] == ["é", "é"]


@pytest.mark.parametrize("flag", [{}, {"stream": False}, {"stream": None}])
@awaited
async def test_without_a_true_stream_flag_the_answer_is_one_body(flag: dict[str, bool | None]) -> None:
    async with behind(say("hi")) as seat:
        said = await seat.send({"messages": talk("x"), **flag})
    assert said.headers["content-type"] == "application/json"
    assert said.text == "hi"


@awaited
async def test_events_are_passed_on_while_the_stream_goes_on() -> None:
    pause = threading.Event()
    async with (
        behind(replace(say("hello"), pause=pause)) as seat,
        seat.post({"messages": talk("x"), "stream": True}) as response,
    ):
        assert (await response.content.readany()).endswith(b"\n\n")
        pause.set()
        assert (await response.content.read()).endswith(b"data: [DONE]\n\n")


@awaited
async def test_a_program_that_has_the_end_of_its_answer_is_in_the_trace() -> None:
    """From the finishing event on the stream is held until it is recorded, however slowly its end comes."""
    hold = threading.Event()
    word = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
    finish = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    async with (
        behind(stream([word + finish, b"data: [DONE]\n\n"], pause=hold)) as seat,
        seat.post({"messages": talk("x"), "stream": True}) as response,
    ):
        assert await response.content.readany() == word
        assert seat.session.turns == 0
        hold.set()
        assert await response.content.readany() == finish + b"data: [DONE]\n\n"
        assert seat.session.turns == 1


@awaited
async def test_compression_does_not_keep_an_answer_from_being_read() -> None:
    whole, streamed = say("hi").body or b"", b"".join(say("hi").chunks or ())
    script = (
        Reply(body=gzip.compress(whole), headers={"content-encoding": "gzip"}),
        stream([gzip.compress(streamed)], headers={"content-encoding": "gzip"}),
    )
    async with behind(*script) as seat:
        first, second = await seat.ask("x"), await seat.ask("y", stream=True)
        trace = seat.trace()
        assert seat.provider.requests[0].headers["accept-encoding"] == "identity"
    assert (gzip.decompress(first.body), gzip.decompress(second.body)) == (whole, streamed)
    assert [node.content for node in trace.messages if node.sampled] == ["hi", "hi"]


@awaited
async def test_a_compressed_request_is_read_and_goes_up_plain() -> None:
    raw = json.dumps({"messages": talk("hi")}).encode()
    async with behind(say("x"), upstream={"model": ""}) as seat:
        await seat.send(gzip.compress(raw), **{"Content-Encoding": "gzip"})
        [got] = seat.provider.requests
    assert (got.body, "content-encoding" in got.headers) == (raw, False)


@awaited
async def test_a_body_that_is_no_json_goes_up_as_it_is() -> None:
    async with behind(say("fine")) as seat:
        assert (await seat.send(b"{broken")).status == 200
        assert seat.provider.requests[0].body == b"{broken"


@awaited
async def test_a_large_body_passes_whole() -> None:
    text = "é" * 3_000_000
    async with behind(say("ok")) as seat:
        await seat.ask(text)
        assert seat.provider.requests[0].json["messages"][0]["content"] == text


@awaited
async def test_helper_routes_are_answered_and_are_no_call() -> None:
    async with behind(say("hi"), upstream={"model": "shown"}) as seat:
        async with seat.client.head(seat.url) as head, seat.client.get(seat.url) as root:
            assert (head.status, root.status) == (200, 200)
        async with seat.client.get(f"{seat.url}/v1/models", headers=seat.auth) as models:
            assert [model["id"] for model in (await models.json())["data"]] == ["shown"]
        async with seat.client.get(f"{seat.url}/v1/models") as strange:
            assert strange.status == 401
        assert (seat.provider.requests, seat.trace().calls) == ([], [])


@awaited
async def test_routes_that_nobody_knows_are_relayed_and_recorded_beside_the_calls() -> None:
    told: list[Tape] = []
    async with behind(replace(say("hi"), headers={"x-odd": "1"}), record=told.append) as seat:
        said = await seat.send(b"some bytes", path="/v1/embeddings/odd?a=1&key=no")
        async with seat.client.get(f"{seat.url}/v1/files", headers=seat.auth) as files:
            listed = await files.read()
        trace = seat.trace()
        posted, got = seat.provider.requests
    assert (said.status, said.headers["x-odd"]) == (200, "1")
    assert (posted.path, posted.query, posted.body) == ("/v1/embeddings/odd", "a=1", b"some bytes")
    assert posted.headers["authorization"] == f"Bearer {KEY}"
    assert (got.method, got.path, b"scripted" in listed) == ("GET", "/v1/files", True)
    assert [(one.method, one.path, one.status) for one in trace.helpers] == [
        ("POST", "/v1/embeddings/odd", 200),
        ("GET", "/v1/files", 200),
    ]
    assert (trace.calls, [tape.asked.body for tape in told]) == ([], [b"some bytes", b""])


@awaited
async def test_a_try_for_a_websocket_is_told_at_once_to_use_http() -> None:
    async with behind() as seat:
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", **seat.auth}
        async with seat.client.get(f"{seat.url}/v1/responses", headers=upgrade) as answer:
            assert answer.status == 426
        assert (seat.provider.requests, seat.trace().helpers) == ([], [])


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@awaited
async def test_a_request_that_is_packed_is_read(coding: str) -> None:
    body = json.dumps({"model": "m", "messages": talk("hello")}).encode()
    packed = {"gzip": gzip.compress, "zstd": zstd.compress}[coding](body)
    async with behind(say("hi")) as seat:
        said = await seat.send(packed, **{"Content-Encoding": coding})
        assert said.status == 200
        assert seat.provider.requests[0].json["messages"] == talk("hello")
        assert "content-encoding" not in seat.provider.requests[0].headers
        spoilt = await seat.send(packed[:10] + b"spoilt", **{"Content-Encoding": coding})
        assert spoilt.status == 400


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
@awaited
async def test_addresses_with_and_without_the_version_meet(base: str, path: str) -> None:
    with Provider(say("hi")) as provider:
        async with behind(upstream={"url": provider.origin + base}) as seat:
            await seat.send({"messages": talk("x")}, path=path)
        assert [request.path for request in provider.requests] == ["/v1/chat/completions"]


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1/chat"),
        ("https://host/v1beta/openai/", "https://host/v1beta/openai/chat"),
        ("https://host/prefix", "https://host/prefix/v1/chat"),
        ("https://host:8443/v1.5", "https://host:8443/v1.5/chat"),
    ],
)
def test_a_version_anywhere_in_an_address_is_enough(base: str, url: str) -> None:
    assert str(join(base, "/chat", "/v1", "")) == url


def test_a_query_loses_its_key_and_nothing_else() -> None:
    assert clean_query("a=1&key=s&b=%2F&monkey=2") == "a=1&b=%2F&monkey=2"
    assert clean_query("alt=sse") == "alt=sse"


@awaited
async def test_what_the_program_says_of_its_connection_stays_on_it() -> None:
    async with behind(say("hi")) as seat:
        await seat.send(
            {"messages": talk("x")}, Connection="keep-alive, X-Hop", **{"X-Hop": "1", "TE": "trailers"}
        )
        [got] = seat.provider.requests
    assert not {"x-hop", "te", "connection"} & set(got.headers)


async def converse(seat: Seat, streams: bool) -> None:
    messages = list(talk("look"))
    await seat.send({"messages": messages, "stream": streams})
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
    messages += [{"role": "assistant", "content": "", "tool_calls": [call]}]
    messages += [{"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a.txt"}]}]
    await seat.send({"messages": messages, "stream": streams})
    messages += talk("", "One file. ")[1:] + talk("thanks")
    await seat.send({"messages": messages, "stream": streams})


@pytest.mark.parametrize("streams", [False, True])
@awaited
async def test_a_conversation_is_one_branch(streams: bool) -> None:
    script = (call_tool("bash", {"command": "ls"}, id="c1"), say("One file."), say("Welcome."))
    async with behind(*script) as seat:
        await converse(seat, streams)
        trace = seat.trace()
    assert [node.role for node in trace.main] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert [node.call for node in trace.main if node.sampled] == [0, 1, 2]
    assert len(trace.messages) == 6
    assert (len(trace.branches), trace.turns, seat.session.turns) == (1, 3, 3)
    assert (trace.usage.input, trace.usage.output) == (30, 15)
    assert [call.finish for call in trace.calls] == ["tool_calls", "stop", "stop"]
    assert all((call.first_byte_s or 9) <= (call.duration_s or 0) for call in trace.calls)
    assert trace.cell.served_model == "scripted"
    assert trace.timing.model_s


@awaited
async def test_each_agent_of_a_session_has_its_branch() -> None:
    async with behind(say("main"), say("helper"), upstream={"model": "shown"}) as seat:
        await seat.ask("do")
        secret = seat.session.secret("subagent", "helper")
        await seat.send({"messages": talk("help")}, Authorization=f"Bearer {secret}")
        trace = seat.trace()
    assert [(branch.kind, branch.agent) for branch in trace.branches] == [
        ("main", "main"),
        ("subagent", "helper"),
    ]
    assert [(call.kind, call.agent) for call in trace.calls] == [("main", "main"), ("subagent", "helper")]
    assert [node.text for node in trace.main] == ["do", "main"]
    assert trace.turns == 1


@awaited
async def test_tools_are_kept_once() -> None:
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]
    async with behind(lambda _: say("hi")) as seat:
        for text in ("a", "b"):
            await seat.ask(text, tools=tools)
        await seat.ask("c")
        trace = seat.trace()
    [(name, kept)] = trace.tools.items()
    assert kept == tools
    assert [call.tools for call in trace.calls] == [name, name, None]


@awaited
async def test_one_connection_serves_many_calls() -> None:
    async with behind(lambda _: say("hi")) as seat:
        for _ in range(3):
            assert (await seat.ask("x")).status == 200
        assert isinstance(seat.client.connector, aiohttp.TCPConnector)
        assert len(seat.trace().calls) == 3
