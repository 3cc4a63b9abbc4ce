"""Token capture: what is asked of an endpoint, what is kept, and what a program sees of it.

Exact things are tested on a scripted endpoint that answers as vLLM's chat route does, with a character for a token.
tests/presets/test_smollm2_capture.py has llama.cpp's real server.
"""

from __future__ import annotations

import asyncio
import json
import math
import struct
import threading
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from _kit.behind import awaited, behind
from _kit.evals import evaluate
from _kit.provider import Provider, Received, Reply, say

from hotswap.capture import Keeper, Sidecar, read
from hotswap.capture.chat import Choice, Missing, Tokens, aligned
from hotswap.errors import StoreError
from hotswap.messages import ProviderError
from hotswap.vitals import vitals

END, ROLES = 3, {"system": 10, "developer": 11, "user": 12, "assistant": 13, "tool": 14}
"""Ids that are no characters: the end of a turn, and its beginning by role."""
RAISED = 100


def spelt(text: str) -> list[int]:
    return [RAISED + ord(letter) for letter in text]


def template(messages: list[Mapping[str, Any]]) -> list[int]:
    """The prompt as ids: each turn between its role and an end, and the beginning of an answer."""
    turns = [[ROLES[m["role"]], *spelt(_text(m.get("content"))), END] for m in messages]
    return [*(id_ for turn in turns for id_ in turn), ROLES["assistant"]]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content or ())


def vllm(
    *answers: str, render: Callable[[list[Mapping[str, Any]]], list[int]] = template, **more: Any
) -> Callable[[Received], Reply]:
    """A chat route as vLLM's: ids and log-probabilities where they are asked for, in one piece."""
    left = list(answers)

    def answer(request: Received) -> Reply:
        asked, text = request.json, left.pop(0)
        said = json.loads(say(text, **more).body or b"")
        choice = said["choices"][0] | {"logprobs": None, "token_ids": None, "stop_reason": None}
        ids = [*spelt(text), END]
        if asked.get("return_token_ids"):
            said["prompt_token_ids"], choice["token_ids"] = render(asked["messages"]), ids
        if asked.get("logprobs"):
            content = [{"token": str(i), "logprob": -i / 7, "bytes": None, "top_logprobs": []} for i in ids]
            choice["logprobs"] = {"content": content}
        said["choices"] = [choice]
        return Reply(body=json.dumps(said).encode())

    return answer


def _calls(chunk: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(chunk["choices"][0]["delta"].get("tool_calls", ()))


def keeper(folder: Path) -> Keeper:
    return Keeper(Sidecar(folder / "tokens" / "r.bin"))


def kept(folder: Path) -> list[Any]:
    return list(read(folder / "tokens" / "r.bin"))


def conversation(*texts: str) -> list[Mapping[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]


@awaited
async def test_ids_and_log_probabilities_of_every_call_are_kept_as_they_were_sent(tmp_path: Path) -> None:
    async with behind(vllm("Hi.", "Bye."), capture=keeper(tmp_path)) as seat:
        await seat.ask("a")
        await seat.ask("a", "Hi.", "b")
        trace = seat.trace()
    first, second = kept(tmp_path)
    assert (first.call, second.call) == (0, 1)
    assert list(first.prompt) == template(conversation("a"))
    assert list(second.prompt) == template(conversation("a", "Hi.", "b"))
    assert list(second.output) == [*spelt("Bye."), END]
    assert list(second.logprobs) == list(array("f", [-id_ / 7 for id_ in second.output]))
    assert [call.token_break for call in trace.calls] == [False, False]


@awaited
async def test_what_the_program_did_not_ask_for_is_taken_out_of_its_answer(tmp_path: Path) -> None:
    async with behind(vllm("Hi.", "Hi."), capture=keeper(tmp_path)) as seat:
        plain = (await seat.ask("a")).json
        asking = (await seat.ask("b", logprobs=True, top_logprobs=2, return_token_ids=True)).json
        sent = [post.json for post in seat.provider.posts]
    assert "prompt_token_ids" not in plain
    assert {"token_ids", "logprobs"}.isdisjoint(plain["choices"][0])
    assert plain["choices"][0]["message"]["content"] == "Hi."
    assert plain["usage"]["prompt_tokens"] == 10
    assert asking["prompt_token_ids"]
    assert asking["choices"][0]["token_ids"]
    assert asking["choices"][0]["logprobs"]["content"]
    assert (sent[0]["logprobs"], sent[0]["top_logprobs"], sent[0]["return_token_ids"]) == (True, 1, True)
    assert sent[1]["top_logprobs"] == 2


@awaited
async def test_without_capture_nothing_is_asked_for(tmp_path: Path) -> None:
    async with behind(say("Hi.")) as seat:
        await seat.ask("a")
        sent = seat.provider.posts[0].json
        trace = seat.trace()
    assert set(sent) == {"model", "messages"}
    assert trace.calls[0].token_break is None
    assert "token_breaks" not in vitals(trace)


@awaited
async def test_a_program_that_asks_for_a_stream_gets_one_and_the_endpoint_is_asked_for_one_piece(
    tmp_path: Path,
) -> None:
    calls = [
        {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": "ls", "arguments": f'{{"a": {number}}}'},
        }
        for number in (1, 2)
    ]
    script = vllm("Hi.", reasoning_content="Hm.", tool_calls=calls)
    async with behind(script, capture=keeper(tmp_path)) as seat:
        said = await seat.ask("a", stream=True, stream_options={"include_usage": True})
        sent = seat.provider.posts[0].json
        trace = seat.trace()
    events = [line.removeprefix(b"data: ") for line in said.body.splitlines() if line]
    chunks = [json.loads(event) for event in events[:-1]]
    assert events[-1] == b"[DONE]"
    assert said.headers["Content-Type"] == "text/event-stream"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["prompt_tokens"] == 10
    assert sent["stream"] is False
    assert "stream_options" not in sent
    answer = trace.messages[-1]
    assert (answer.text, answer.reasoning) == ("Hi.", "Hm.")
    assert [(call.id, call.arguments) for call in answer.tool_calls] == [
        ("c1", '{"a": 1}'),
        ("c2", '{"a": 2}'),
    ]
    assert [call["index"] for chunk in chunks[:-1] for call in _calls(chunk)] == [0, 1]
    assert trace.calls[0].finish == "tool_calls"
    assert b"token_ids" not in said.body
    assert b"logprobs" not in said.body
    assert len(kept(tmp_path)) == 1


@awaited
async def test_usage_is_counted_also_where_a_stream_has_no_chunk_for_it(tmp_path: Path) -> None:
    async with behind(vllm("Hi."), capture=keeper(tmp_path)) as seat:
        await seat.ask("a", stream=True)
        trace = seat.trace()
    assert (trace.usage.input, trace.usage.output) == (10, 5)


@pytest.mark.parametrize("stream", [False, True])
@awaited
async def test_programs_of_other_dialects_are_translated_although_the_endpoint_speaks_theirs(
    stream: bool, tmp_path: Path
) -> None:
    speaks = {"dialects": ("chat", "responses", "messages")}
    async with behind(vllm("One.", "Two."), upstream=speaks, capture=keeper(tmp_path)) as seat:
        asked = {"model": "shown", "input": "a", "stream": stream}
        responses = await seat.send(asked, path="/v1/responses")
        asked = {"model": "shown", "max_tokens": 9, "messages": conversation("b"), "stream": stream}
        messages = await seat.send(asked, path="/v1/messages")
        trace = seat.trace()
        paths = [post.path for post in seat.provider.posts]
    assert b"One." in responses.body
    assert b"Two." in messages.body
    assert (b"event:" in messages.body) is stream
    assert paths == ["/v1/chat/completions"] * 2
    assert [call.translated for call in trace.calls] == ["chat", "chat"]
    assert [message.text for message in trace.messages if message.sampled] == ["One.", "Two."]
    assert [list(one.output) for one in kept(tmp_path)] == [[*spelt("One."), END], [*spelt("Two."), END]]


@awaited
async def test_a_prompt_that_does_not_extend_the_call_before_is_a_break_and_counted(tmp_path: Path) -> None:
    def trimming(messages: list[Mapping[str, Any]]) -> list[int]:
        return template([{**message, "content": _text(message["content"]).strip()} for message in messages])

    script = vllm(" padded ", "plain", "end", render=trimming)
    async with behind(script, capture=keeper(tmp_path)) as seat:
        await seat.ask("a")
        await seat.ask("a", " padded ", "b")
        await seat.ask("a", " padded ", "b", "plain", "c")
        trace = seat.trace()
    assert [call.token_break for call in trace.calls] == [False, True, False]
    assert [one.broken for one in kept(tmp_path)] == [False, True, False]
    assert vitals(trace)["token_breaks"] == 1
    assert list(kept(tmp_path)[1].prompt) == trimming(conversation("a", " padded ", "b"))


@awaited
async def test_another_sample_of_the_same_prompt_and_another_conversation_are_no_break(
    tmp_path: Path,
) -> None:
    async with behind(vllm("x", "y", "s", "z"), capture=keeper(tmp_path)) as seat:
        await seat.ask("a")
        await seat.ask("a")
        other = {"Authorization": f"Bearer {seat.session.secret('subagent', 'helper')}"}
        await seat.send({"model": "m", "messages": conversation("do this for me")}, **other)
        await seat.ask("a", "y", "b")
        trace = seat.trace()
    assert [call.token_break for call in trace.calls] == [False] * 4


@awaited
async def test_a_call_that_failed_is_not_kept_and_its_repetition_is_kept_once(tmp_path: Path) -> None:
    good = vllm("Hi.")
    replies = [Reply(status=503, body=b'{"error": {"message": "busy"}}'), good]

    def flaky(request: Received) -> Reply:
        entry = replies.pop(0)
        return entry if isinstance(entry, Reply) else entry(request)

    async with behind(flaky, capture=keeper(tmp_path)) as seat:
        said = await seat.ask("a")
        trace = seat.trace()
    assert said.text == "Hi."
    assert [one.status for one in trace.calls[0].tries] == [503, 200]
    assert len(kept(tmp_path)) == 1


@awaited
async def test_sampling_that_the_run_sets_reaches_the_provider_and_a_list_of_dropped_fields_holds(
    tmp_path: Path,
) -> None:
    settings = {"temperature": 0.25, "max_tokens": 7}
    upstream = {"drop": ("user",)}
    async with behind(vllm("Hi."), sampling=settings, upstream=upstream, capture=keeper(tmp_path)) as seat:
        await seat.ask("a", temperature=1, user="me")
        sent = seat.provider.posts[0].json
    assert (sent["temperature"], sent["max_tokens"]) == (0.25, 7)
    assert "user" not in sent


MISSING = {
    "neither `prompt_token_ids`": {},
    "`token_ids` of a choice is not in its answer": {"prompt_token_ids": [1]},
    "`__verbose` has no `prompt`": {"__verbose": {"tokens": [1]}},
    "holds what is no id of a token": {"prompt_token_ids": [1, "2"]},
    "has 1 of 2 ids": {
        "__verbose": {"prompt": "x", "tokens": [1], "tokens_evaluated": 1, "tokens_predicted": 2}
    },
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("words", MISSING)
@awaited
async def test_an_answer_without_ids_is_the_providers_fault_and_says_what_is_missing(
    words: str, stream: bool, tmp_path: Path
) -> None:
    body = json.loads(say("Hi.").body or b"") | MISSING[words]
    async with behind(Reply(body=json.dumps(body).encode()), capture=keeper(tmp_path)) as seat:
        said = await seat.ask("a", stream=stream)
        error = seat.session.last_error
    assert said.status == 400
    assert words in said.json["error"]["message"]
    assert isinstance(error, ProviderError)
    assert error.type == "capture"
    assert kept(tmp_path) == []


@awaited
async def test_an_error_inside_a_success_stays_what_it_is(tmp_path: Path) -> None:
    body = b'{"error": {"message": "the model is gone", "type": "server_error", "code": 500}}'
    async with behind(*[Reply(body=body)] * 3, capture=keeper(tmp_path)) as seat:
        await seat.ask("a", stream=True)
        error = seat.session.last_error
    assert error is not None
    assert "the model is gone" in error.message
    assert error.type != "capture"


def llama(text: str, output: list[int], entries: list[tuple[int, float]]) -> bytes:
    """An answer as llama.cpp's server gives it."""
    body = json.loads(say(text).body or b"")
    content = [{"id": id_, "token": "", "bytes": [], "logprob": value} for id_, value in entries]
    body["choices"][0]["logprobs"] = {"content": content}
    verbose = {"prompt": "<u>a</u>", "tokens": output}
    body["__verbose"] = {**verbose, "tokens_evaluated": 3, "tokens_predicted": len(output)}
    return json.dumps(body).encode()


@awaited
async def test_a_prompt_that_comes_as_text_is_asked_about_beside_the_version(tmp_path: Path) -> None:
    def script(request: Received) -> Reply:
        if request.path == "/tokenize":
            return Reply(body=b'{"tokens": [7, 8, 9]}')
        return Reply(body=llama("Hi.", [41, 42, 43], [(41, -0.5), (43, -0.25)]))

    async with behind(script, capture=keeper(tmp_path)) as seat:
        said = await seat.ask("a")
        asked = seat.provider.posts[1]
    (one,) = kept(tmp_path)
    assert asked.json == {"content": "<u>a</u>", "add_special": True, "parse_special": True}
    assert asked.headers["authorization"] == seat.provider.posts[0].headers["authorization"]
    assert list(one.prompt) == [7, 8, 9]
    assert (one.logprobs[0], one.logprobs[2]) == (-0.5, -0.25)
    assert math.isnan(one.logprobs[1])
    assert "__verbose" not in said.json


@awaited
async def test_a_prompt_whose_ids_are_not_those_that_were_read_is_refused(tmp_path: Path) -> None:
    def script(request: Received) -> Reply:
        ids = b'{"tokens": [7, 8]}'
        return Reply(body=ids if request.path == "/tokenize" else llama("Hi.", [41], [(41, -0.5)]))

    async with behind(script, capture=keeper(tmp_path)) as seat:
        said = await seat.ask("a")
    assert "is 2 tokens, and the endpoint read 3" in said.json["error"]["message"]


NAN = math.nan


@pytest.mark.parametrize(
    ("output", "ids", "expected"),
    [
        ([5, 6, 7], [5, 6, 7], [0.0, 1.0, 2.0]),
        ([5, 6, 7, 8], [5, 8], [0.0, NAN, NAN, 1.0]),
        ([5, 6, 6, 7], [5, 6, 7], [0.0, NAN, NAN, 2.0]),
        ([5], [], [NAN]),
        ([], [], []),
    ],
)
def test_values_stand_beside_their_tokens_where_there_is_one_place_for_them(
    output: list[int], ids: list[int], expected: list[float]
) -> None:
    found = aligned(output, ids, [float(place) for place in range(len(ids))])
    assert [repr(value) for value in found] == [repr(value) for value in expected]


@pytest.mark.parametrize(("output", "ids"), [([5, 6], [6, 5]), ([5, 6], [7]), ([5], [5, 6])])
def test_values_of_other_tokens_are_refused(output: list[int], ids: list[int]) -> None:
    with pytest.raises(Missing):
        aligned(output, ids, [0.0] * len(ids))


def grown(folder: Path, turns: int) -> int:
    """The size of the file of a conversation of so many turns, which is read back and compared."""
    kept_by, prompt, prompts = keeper(folder), [1] * 300, []
    for turn in range(turns):
        output = [turn + 2] * 40
        prompts.append(list(prompt))
        before = kept_by.before(0)
        tokens = Tokens((Choice(0, tuple(output), (0.5,) * len(output)),), tuple(prompt))
        assert kept_by.keep(turn, 0, before, tokens) is False
        prompt += [*output, *[9] * 60]
    kept_by.check()
    assert [list(one.prompt) for one in kept(folder)] == prompts
    return (folder / "tokens" / "r.bin").stat().st_size


def test_the_file_of_a_conversation_grows_with_what_is_new_in_it(tmp_path: Path) -> None:
    half, whole = grown(tmp_path / "half", 200), grown(tmp_path / "whole", 400)
    assert whole <= 1.2 * 2 * half
    assert whole <= 1.2 * 400 * (40 * 8 + 60 * 4)


def test_conversations_that_take_turns_and_histories_that_are_cut_share_what_they_can(
    tmp_path: Path,
) -> None:
    kept_by = keeper(tmp_path)
    system = [7] * 5000
    for turn in range(20):
        for number in range(3):
            prompt = tuple(system + [number] * (turn % 4))
            tokens = Tokens((Choice(0, (turn,), (0.0,)),), prompt)
            kept_by.keep(turn * 3 + number, number, kept_by.before(number), tokens)
    found = kept(tmp_path)
    assert [list(one.prompt)[:5000] for one in found] == [system] * 60
    assert list(found[-1].prompt) == system + [2] * 3
    assert (tmp_path / "tokens" / "r.bin").stat().st_size < 5000 * 4 + 60 * 80


def test_a_conversation_that_waits_for_many_others_is_compared_with_itself(tmp_path: Path) -> None:
    kept_by = keeper(tmp_path)
    said = Tokens((Choice(0, (5,), (0.0,)),), (1, 2, 3))
    kept_by.keep(0, 0, kept_by.before(0), said)
    for number in range(1, 50):
        kept_by.keep(number, number, kept_by.before(number), Tokens(said.choices, (900 + number,)))
    broken = kept_by.keep(50, 0, kept_by.before(0), Tokens(said.choices, (1, 2, 3, 6)))
    assert broken is True
    assert list(kept(tmp_path)[-1].prompt) == [1, 2, 3, 6]


@awaited
async def test_a_program_that_goes_takes_its_call_along(tmp_path: Path) -> None:
    never = threading.Event()
    async with behind(Reply(body=b"{}", hold=never), capture=keeper(tmp_path)) as seat:
        asking = asyncio.ensure_future(seat.ask("a", stream=True))
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: provider.in_flight == 1)
        asking.cancel()
        await asyncio.to_thread(seat.provider.wait_until, lambda provider: provider.gone == 1, 2)
    assert kept(tmp_path) == []


def test_several_choices_of_one_call_are_records_of_it_and_the_next_may_go_on_from_any(
    tmp_path: Path,
) -> None:
    kept_by = keeper(tmp_path)
    choices = (Choice(0, (5,), (0.0,)), Choice(1, (6,), (0.0,)))
    kept_by.keep(0, 0, (), Tokens(choices, (1, 2)))
    broken = kept_by.keep(1, 0, kept_by.before(0), Tokens((Choice(0, (9,), (0.0,)),), (1, 2, 6, 3)))
    assert broken is False
    assert [(one.call, one.choice, list(one.prompt), list(one.output)) for one in kept(tmp_path)] == [
        (0, 0, [1, 2], [5]),
        (0, 1, [1, 2], [6]),
        (1, 0, [1, 2, 6, 3], [9]),
    ]


def one_record(folder: Path) -> Path:
    kept_by = keeper(folder)
    kept_by.keep(0, None, (), Tokens((Choice(0, (5, 6), (-0.5, NAN)),), (1, 2, 3)))
    kept_by.close()
    return folder / "tokens" / "r.bin"


def test_the_file_is_laid_out_as_the_page_says(tmp_path: Path) -> None:
    data = one_record(tmp_path).read_bytes()
    assert data[:16] == b"hotswap\0" + struct.pack("<II", 1, 0)
    size, _ = struct.unpack_from("<II", data, 16)
    assert size == len(data) - 24
    assert struct.unpack_from("<7I", data, 24) == (0, 0, 0, 0, 0, 3, 2)
    assert struct.unpack_from("<5I", data, 52) == (1, 2, 3, 5, 6)
    assert struct.unpack_from("<f", data, 72) == (-0.5,)


def test_a_record_that_a_crash_tore_is_passed_over(tmp_path: Path) -> None:
    path = one_record(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[16:-1])
    assert len(list(read(path))) == 1


@pytest.mark.parametrize("change", [lambda data: b"{}" + data, lambda data: data[:-1] + b"\1", lambda _: b""])
def test_what_is_no_such_file_or_damaged_is_refused(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = one_record(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(StoreError, match=r"r\.bin"):
        list(read(path))


def test_what_an_earlier_try_left_is_overwritten(tmp_path: Path) -> None:
    one_record(tmp_path)
    keeper(tmp_path).close()
    assert kept(tmp_path) == []


@awaited
async def test_tokens_that_cannot_be_written_are_a_fault_and_no_silence(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path / "tokens" / "r.bin")
    async with behind(vllm("Hi.", "Bye."), capture=Keeper(sidecar)) as seat:
        await seat.ask("a")
        sidecar.close()  # from here on the system refuses to write
        said = await seat.ask("a", "Hi.", "b")
        with pytest.raises(StoreError, match=r"cannot write .*r\.bin"):
            seat.trace()
    assert said.text == "Bye."
    assert len(kept(tmp_path)) == 1


def test_a_run_keeps_a_file_for_each_rollout_and_shows_its_breaks(tmp_path: Path) -> None:
    with Provider(vllm(*["Rome"] * 4)) as provider:
        model = f"scripted@{provider.url}"
        done = evaluate(tmp_path, "capitals", "-m", model, "-n", "2", "-k", "2", "--capture", "tokens")
    assert done.code == 0, done.stderr
    assert {path.stem for path in (done.run / "tokens").iterdir()} == {trace["id"] for trace in done.traces}
    assert [len(list(read(path))) for path in (done.run / "tokens").iterdir()] == [1] * 4
    assert done.metrics["cells"][0]["metrics"]["token_breaks"]["mean"] == 0
    assert "token_breaks" in done.stdout
    assert 'capture = "tokens"' in (done.run / "eval.toml").read_text()


def test_a_rollout_whose_endpoint_gives_no_ids_is_an_error_of_the_provider(tmp_path: Path) -> None:
    with Provider(lambda _: say("Paris")) as provider:
        done = evaluate(tmp_path, "capitals", "-m", f"plain@{provider.url}", "-n", "1", "--capture", "tokens")
    (trace,) = done.traces
    assert done.code == 3
    assert trace["outcome"] == "error"
    assert (trace["error"]["blame"], trace["error"]["type"]) == ("provider", "capture")
    assert "prompt_token_ids" in trace["error"]["message"]


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("openai/gpt-5-mini", "its chat route gives no ids"),
        ("anthropic/claude-sonnet-4-5", "its chat route gives no ids"),
        ("claude@http://127.0.0.1:9?dialect=messages", "this one speaks messages"),
    ],
)
def test_a_pairing_that_cannot_give_ids_is_refused_before_the_run(
    model: str, why: str, tmp_path: Path
) -> None:
    keys = {"OPENAI_API_KEY": "sk-not-a-key", "ANTHROPIC_API_KEY": "sk-not-a-key"}
    done = evaluate(tmp_path, "capitals", "-m", model, "--capture", "tokens", env=keys)
    assert done.code == 2
    assert why in done.stderr
    assert "--capture tokens" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_capture_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    done = evaluate(tmp_path, "capitals", "-m", "smollm2", "--capture", "logits")
    assert done.code == 2
    assert "capture = logits: expected tokens, or none" in done.stderr


def test_a_run_whose_tokens_cannot_be_written_stops_and_says_so(tmp_path: Path) -> None:
    place = tmp_path / "runs" / "mine"
    place.mkdir(parents=True)
    (place / "tokens").write_text("a file where the folder should be")
    with Provider(vllm("Rome")) as provider:
        words = ("-m", f"scripted@{provider.url}", "-n", "1", "--capture", "tokens", "-o", str(place))
        done = evaluate(tmp_path, "capitals", *words)
    assert done.code == 3
    assert "tokens" in done.stderr + done.stdout
    assert "cannot write" in done.stderr + done.stdout


def test_a_recorded_run_gives_no_ids_and_is_refused(tmp_path: Path) -> None:
    with Provider(lambda _: say("Paris")) as provider:
        first = evaluate(tmp_path, "capitals", "-m", f"plain@{provider.url}", "-n", "1")
    done = evaluate(tmp_path, "capitals", "-m", "replay:latest", "-n", "1", "--capture", "tokens")
    assert first.code == 0
    assert done.code == 2
    assert "what was recorded has no ids of tokens" in done.stderr
