"""What went wrong in a recorded run goes wrong again when it is replayed, and is nobody else's fault then."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from _kit.behind import QUICK, Seat, awaited, behind
from _kit.dialects import answer_of, ask, each_dialect, on
from _kit.provider import Script, fail, say

from hotswap.exchanges.recorded import read
from hotswap.exchanges.recorder import About, Recorder
from hotswap.masking import Masker
from hotswap.proxy.chaos import KINDS, Chaos
from hotswap.replay.comparing import Rules
from hotswap.replay.matching import Deck
from hotswap.replay.serving import Player

ABOUT = About("01R", "quiz/loop/small/local", "quiz", "loop", "local", "small", "small-1", "fr", 0)
AT_ONCE = replace(QUICK, retries=0, timeout_s=0.4, quiet_s=0)
OWN_TIMES = (
    "started",
    "duration_s",
    "first_byte_s",
    "cost_usd",
    "replayed",
    "model",
    "translated",
    "dropped",
    "sampling",
)


@asynccontextmanager
async def recorded(folder: Path, *script: Script, **request: Any) -> AsyncIterator[Seat]:
    """A session that is recorded in `folder`."""
    recorder = Recorder(folder / "r.zst", ABOUT, Masker().raw)
    async with behind(*script, record=recorder.append, **request) as seat:
        yield seat
    recorder.close()


def replayed(folder: Path, dialect: str, **request: Any) -> Any:
    """A session that is answered from what was recorded there, and from nowhere else."""
    found = read(folder / "r.zst")
    assert found is not None
    player = Player(Deck(found.exchanges, Rules(), False, "task 'fr' of quiz--1"), False)
    return behind(upstream=on(dialect, url="", key=None), source=player, calls=AT_ONCE, **request)


async def attempt(seat: Seat, dialect: str, words: str, stream: bool) -> tuple[Any, ...]:
    """Ask; get what the program sees of it."""
    try:
        said = await ask(seat, dialect, words, stream)
    except aiohttp.ClientError as error:
        return ("broken", type(error).__name__)
    return (said.status, said.headers.get("Retry-After"), said.body)


def told(seat: Seat) -> list[Any]:
    """What the trace says of the calls, without times and what a replay says of itself."""
    trace = seat.trace()
    calls = []
    for call in trace.calls:
        record = {name: value for name, value in asdict(call).items() if name not in OWN_TIMES}
        record["tries"] = [(one.status, one.error) for one in call.tries]
        record["outputs"] = [trace.messages[node].text for node in call.outputs]
        calls.append(record)
    error = seat.session.last_error
    return [*calls, [(node.role, node.text) for node in trace.main], error and asdict(error)]


@each_dialect
@awaited
async def test_every_misbehaviour_comes_again_without_being_asked_for(dialect: str, tmp_path: Path) -> None:
    async def both(kind: str, stream: bool) -> None:
        folder = tmp_path / f"{kind}-{stream}"
        chaos = Chaos({kind: 1.0})
        answer = answer_of(dialect, stream)
        async with recorded(folder, *[answer] * 2, upstream=on(dialect), calls=AT_ONCE, chaos=chaos) as seat:
            then = [await attempt(seat, dialect, "hi", stream)]
            before = told(seat)
            chaos.shares = {}
            then.append(await attempt(seat, dialect, "hi", stream) if kind != "slow" else ())
            recovered = told(seat)
        async with replayed(folder, dialect) as seat:
            now = [await attempt(seat, dialect, "hi", stream)]
            assert told(seat) == before, kind
            now.append(await attempt(seat, dialect, "hi", stream) if kind != "slow" else ())
            assert told(seat) == recovered, kind
            assert seat.trace().calls[0].replayed
        assert now == then, kind
        assert before[0]["fault"] == kind
        assert (before[0]["error"] or {}).get("type") == (None if kind == "slow" else "chaos")

    await asyncio.gather(*(both(kind, stream) for kind in KINDS for stream in (True, False)))


@pytest.mark.parametrize("stream", [True, False])
@each_dialect
@awaited
async def test_a_translated_answer_that_was_cut_is_counted_again_as_it_was(
    dialect: str, stream: bool, tmp_path: Path
) -> None:
    endpoint = "messages" if dialect == "chat" else "chat"
    chaos = Chaos({"cut": 1.0})
    answer = answer_of(endpoint, stream)
    async with recorded(tmp_path, *[answer] * 2, upstream=on(endpoint), calls=AT_ONCE, chaos=chaos) as seat:
        then = [await attempt(seat, dialect, "hi", stream)]
        chaos.shares = {}
        then.append(await attempt(seat, dialect, "hi", stream))
        before = told(seat)
    async with replayed(tmp_path, dialect) as seat:
        assert [await attempt(seat, dialect, "hi", stream) for _ in range(2)] == then
        assert told(seat) == before
    assert before[0]["usage"]["input"]


@pytest.mark.parametrize("stream", [True, False])
@each_dialect
@awaited
async def test_what_the_provider_did_wrong_is_told_again_as_it_was(
    dialect: str, stream: bool, tmp_path: Path
) -> None:
    answer = answer_of(dialect, stream)
    short = len(answer.chunks or ()) - 1
    faults: dict[str, list[Script]] = {
        "cut": [replace(answer, cut=short if stream else 20)],
        "hung": [replace(answer, wait_s=30)],
        "dropped": [replace(answer, cut=0)],
        "limited": [fail(429, "slow down", headers={"retry-after": "0.01"}), answer],
        "limited for good": [fail(429, "slow down", headers={"retry-after": "0.01"})] * 2,
        "no JSON": [replace(answer, body=b"<html>", chunks=None)],
    }
    for name, script in faults.items():
        policy = replace(AT_ONCE, retries=1 if "limited" in name else 0)
        folder = tmp_path / name
        async with recorded(folder, *script, upstream=on(dialect), calls=policy) as seat:
            then = await attempt(seat, dialect, "hi", stream)
            before = told(seat)
        async with replayed(folder, dialect) as seat:
            assert await attempt(seat, dialect, "hi", stream) == then, name
            assert told(seat) == before, name
        assert len(before[0]["tries"]) == (2 if "limited" in name else 1)


@each_dialect
@awaited
async def test_a_provider_that_refused_the_connection_is_as_unreachable_again(
    dialect: str, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        async with recorded(tmp_path, upstream=on(dialect, url=nobody), calls=AT_ONCE) as seat:
            then = await attempt(seat, dialect, "hi", False)
            before = told(seat)
    async with replayed(tmp_path, dialect) as seat:
        assert await attempt(seat, dialect, "hi", False) == then
        assert told(seat) == before
    assert before[-1]["type"] == "connection"


@pytest.mark.parametrize("stream", [True, False])
@awaited
async def test_misbehaviour_on_top_of_a_replay_takes_nothing_from_the_recording(
    stream: bool, tmp_path: Path
) -> None:
    async with recorded(tmp_path, say("hello"), calls=AT_ONCE) as seat:
        then = await attempt(seat, "chat", "hi", stream)
    for kind in ("500", "cut", "drop"):
        chaos = Chaos({kind: 1.0})
        async with replayed(tmp_path, "chat", chaos=chaos) as seat:
            assert await attempt(seat, "chat", "hi", stream) != then
            [call] = seat.trace().calls
            assert (call.fault, call.error and call.error.type) == (kind, "chaos")
            chaos.shares = {}
            assert await attempt(seat, "chat", "hi", stream) == then
            [call] = seat.trace().calls
            assert (call.error, seat.session.turns) == (None, 1)


@awaited
async def test_a_recording_without_verdicts_is_judged_by_what_the_program_got(tmp_path: Path) -> None:
    def old(tape: Any) -> None:
        recorder.append(replace(tape, verdict=None))

    recorder = Recorder(tmp_path / "r.zst", ABOUT, Masker().raw)
    async with behind(fail(401, "who are you"), say("hello"), record=old, calls=AT_ONCE) as seat:
        await seat.ask("hi")
        await seat.ask("more")
    recorder.close()
    async with replayed(tmp_path, "chat") as seat:
        assert json.loads((await seat.ask("hi")).body)["error"]["message"] == "who are you"
        await seat.ask("more")
        refused, answered = seat.trace().calls
    assert refused.error is not None
    assert (refused.error.blame, refused.error.type, answered.error) == ("provider", "auth", None)
