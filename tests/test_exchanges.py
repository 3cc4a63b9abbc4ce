"""The raw exchanges of a rollout: nothing is lost, no secret is in them, and what is sent again costs nothing."""

import asyncio
import base64
import gzip
import json
import random
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zstandard import ZstdCompressor

from hotswap.errors import StoreError, UsageError
from hotswap.exchanges.cassette import Recording, open_recording, save
from hotswap.exchanges.recorded import Exchange, Recorded, frames, read, read_about
from hotswap.exchanges.recorder import About, Recorder
from hotswap.exchanges.recorders import Recorders
from hotswap.exchanges.similar import Sent, differ, edits, moved_lengths
from hotswap.masking import Masker
from hotswap.proxy.tape import Asked, Tape

SECRET = "canary-value-0001"
MASK = Masker({"MY_TOKEN": SECRET}).raw
ABOUT = About("01R", "quiz/loop/small/local", "quiz", "loop", "local", "small", "small-1", "fr", 0)


def tape(body: Any, *chunks: bytes, at: float = 0.0, **more: Any) -> Tape:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    asked = Asked("POST", "/v1/chat/completions", body=data, dialect="chat", call=0, **more.pop("asked", {}))
    timed = [(0.1 * place, chunk) for place, chunk in enumerate(chunks or (b'{"ok": true}',))]
    return Tape(asked, at, 200, (("Content-Type", "text/event-stream"),), timed, **more)


def record(path: Path, *tapes: Tape, mask: Any = MASK) -> Recorded:
    recorder = Recorder(path, ABOUT, mask)
    for each in tapes:
        recorder.append(each)
    recorder.close()
    found = read(path)
    assert found is not None
    return found


def conversation(turns: int, size: int = 2000, tools: int = 3000) -> list[bytes]:
    """The requests of a conversation that grows by two messages a turn, with the tools behind it."""
    draw = random.Random(0)

    def text() -> str:
        return "".join(draw.choice("abcdefghij klmnop\n") for _ in range(size // 2))

    behind = "".join(draw.choice("0123456789abcdef") for _ in range(tools))
    messages, bodies = [{"role": "system", "content": text()}], []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{turn} {text()}"})
        bodies.append(json.dumps({"messages": messages, "tools": [behind], "stream": True}).encode())
        messages.append({"role": "assistant", "content": text()})
    return bodies


def test_an_exchange_comes_back_as_it_was(tmp_path: Path) -> None:
    sent = tape({"messages": []}, b"data: 1\n\n", b"da", b"ta: 2\n\n", at=5.0, cut=True, fault="slow")
    (back,) = record(tmp_path / "r.zst", sent).exchanges
    assert (back.body, back.answer) == (sent.asked.body, b"data: 1\n\ndata: 2\n\n")
    assert back.chunks == ((0.0, b"data: 1\n\n"), (0.1, b"da"), (0.2, b"ta: 2\n\n"))
    assert (back.started, back.status, back.cut, back.fault) == (5.0, 200, True, "slow")
    assert (back.method, back.path, back.dialect, back.agent) == (
        "POST",
        "/v1/chat/completions",
        "chat",
        "main",
    )
    assert back.headers == (("Content-Type", "text/event-stream"),)


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br"])
def test_a_packed_answer_is_kept_unpacked_so_that_what_is_secret_in_it_is_masked(
    tmp_path: Path, coding: str
) -> None:
    plain = f"data: {SECRET}\n\n".encode() * 3
    packed = {"gzip": gzip.compress, "zstd": ZstdCompressor().compress, "br": bytes}[coding](plain)
    sent = tape({"messages": []}, packed[:20], packed[20:])
    sent.headers = (("Content-Type", "text/event-stream"), ("content-encoding", coding))
    [back] = record(tmp_path / "r.zst", sent).exchanges
    assert back.answer == b"data: [secret:MY_TOKEN]\n\n" * 3
    assert len(back.chunks) == 2
    assert (dict(back.headers).get("content-encoding") == "br") == (coding == "br")
    assert b"".join(data for _, data in sent.chunks) == packed


def test_what_is_packed_and_cannot_be_unpacked_is_kept_as_it_came(tmp_path: Path) -> None:
    sent = tape({"messages": []}, b"this is no gzip")
    sent.headers = (("Content-Encoding", "gzip"),)
    [back] = record(tmp_path / "r.zst", sent).exchanges
    assert (back.answer, back.headers) == (b"this is no gzip", sent.headers)


def test_a_conversation_comes_back_whole_though_only_what_is_new_is_kept(tmp_path: Path) -> None:
    bodies = conversation(50)
    back = record(tmp_path / "r.zst", *(tape(body, at=float(at)) for at, body in enumerate(bodies)))
    assert [exchange.body for exchange in back.exchanges] == bodies
    assert back.exchanges[20].body == bodies[20]


def test_400_turns_take_no_more_than_a_fifth_above_linear(tmp_path: Path) -> None:
    bodies = conversation(400)
    recorder = Recorder(tmp_path / "r.zst", ABOUT, MASK)
    sizes = []
    for body in bodies:
        recorder.append(tape(body, b'data: {"text": "' + body[-5200:-3200] + b'"}\n\n'))
        sizes.append((tmp_path / "r.zst").stat().st_size)
    recorder.close()
    first, last = sizes[199] - sizes[99], sizes[399] - sizes[299]
    assert last < 1.2 * first
    assert sizes[-1] < 400 * 2000  # neither what was said before nor the tools behind it are kept again


def test_two_conversations_at_a_time_are_each_kept_against_themselves(tmp_path: Path) -> None:
    one = conversation(30)
    other = [body.replace(b"system", b"System").replace(b"a", b"A") for body in conversation(30)]
    bodies = [body for pair in zip(one, other, strict=True) for body in pair]
    path = tmp_path / "r.zst"
    back = record(path, *(tape(body, at=float(at)) for at, body in enumerate(bodies)))
    assert [exchange.body for exchange in back.exchanges] == bodies
    assert path.stat().st_size < 3 * 30 * 2000


def test_a_torn_tail_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "r.zst"
    bodies = conversation(5)
    record(path, *(tape(body, at=float(at)) for at, body in enumerate(bodies)))
    whole = path.read_bytes()
    for lost in (1, 20, len(whole) // 2):
        path.write_bytes(whole[:-lost])
        back = read(path)
        assert back is not None
        kept = [exchange.body for exchange in back.exchanges]
        assert kept == bodies[: len(kept)]
        assert len(kept) < 5
    path.write_bytes(whole[:10])
    assert read(path) is None
    assert read_about(path) is None


def test_a_further_try_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "r.zst"
    record(path, tape({"messages": [1]}), tape({"messages": [2]}))
    back = record(path, tape({"messages": [3]}))
    assert [exchange.body for exchange in back.exchanges] == [b'{"messages": [3]}']


@pytest.mark.parametrize("place", ["body", "answer", "headers", "query", "path"])
def test_a_declared_secret_is_masked_wherever_it_stands(tmp_path: Path, place: str) -> None:
    said: dict[str, Any] = (
        {"messages": [{"role": "user", "content": f"it is {SECRET}."}]} if place == "body" else {}
    )
    asked: dict[str, Any] = {"headers": [("X-Note", SECRET)]} if place == "headers" else {}
    asked |= {"query": f"a={SECRET}"} if place == "query" else {}
    sent = tape(said, f"data: {SECRET}\n\n".encode() if place == "answer" else b"fine", asked=asked)
    if place == "path":
        sent = tape({}, asked={})
        sent.asked = Asked("POST", f"/v1/{SECRET}", body=b"{}")
    record(tmp_path / "r.zst", sent)
    data = frames(tmp_path / "r.zst")
    assert SECRET.encode() not in data
    assert b"[secret:MY_TOKEN]" in data


def test_headers_and_parameters_that_carry_keys_are_not_kept(tmp_path: Path) -> None:
    names = [
        "Authorization",
        "x-api-key",
        "X-Goog-Api-Key",
        "api-key",
        "Cookie",
        "Proxy-Authorization",
        "X-Auth-Token",
    ]
    headers = [(name, "canary-0002") for name in names] + [("Accept", "*/*")]
    sent = tape({}, asked={"headers": headers, "query": "key=canary-0003&alt=sse"})
    sent.headers = (("Set-Cookie", "canary-0004"), ("X-Request-Id", "r1"))
    (back,) = record(tmp_path / "r.zst", sent, mask=Masker().raw).exchanges
    assert b"canary" not in frames(tmp_path / "r.zst")
    assert back.asked == (("Accept", "*/*"),)
    assert back.headers == (("X-Request-Id", "r1"),)
    assert back.query == "?alt=sse"


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_a_secret_across_chunks_is_masked_and_the_others_keep_their_time(tmp_path: Path, size: int) -> None:
    whole = f'data: {{"text": "before"}}\n\ndata: {{"text": "{SECRET}"}}\n\ndata: [DONE]\n\n'.encode()
    chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
    (back,) = record(tmp_path / "r.zst", tape({}, *chunks)).exchanges
    assert back.answer == whole.replace(SECRET.encode(), b"[secret:MY_TOKEN]")
    assert [at for at, _ in back.chunks] == [round(0.1 * place, 4) for place in range(len(chunks))]
    untouched = [
        place for place, chunk in enumerate(chunks) if (place + 1) * size <= whole.index(SECRET.encode())
    ]
    assert [back.chunks[place][1] for place in untouched] == [chunks[place] for place in untouched]


messages = st.lists(
    st.sampled_from(
        [
            "hello",
            SECRET,
            f"x {SECRET} y",
            "API_KEY=abcdefgh123 and more",
            'a "quoted" one',
            "{",
            '{"',
            "}]",
            "é\u2028",
        ]
    ),
    max_size=12,
)


@given(messages, messages, st.integers(0, 12), st.booleans())
@settings(max_examples=300, deadline=None)
def test_whatever_is_shared_a_request_is_stored_as_it_is_masked(
    old: Sequence[str], new: Sequence[str], kept: int, flat: bool
) -> None:
    """The cut between what is shared and what is new never falls into a secret."""

    def body(texts: Sequence[str]) -> bytes:
        items: list[Any] = [text if flat else {"role": "user", "content": text} for text in texts]
        return json.dumps(
            {"model": "m", "messages": items, "tools": [{"name": "t" * 80}], "stream": True}
        ).encode()

    raws = [body(old), body([*old[:kept], *new]), body([*old[:kept], *new, *old])]
    base: Sent | None = None
    stored: dict[int, bytes] = {}
    for number, raw in enumerate(raws):
        found = differ(number, raw, base, base.common(raw) if base else 0, MASK)
        if found.base is None:
            stored[number] = found.new
        else:
            earlier = stored[found.base[0]]
            stored[number] = earlier[: found.base[1]] + found.new + earlier[len(earlier) - found.base[2] :]
        assert stored[number] == MASK(raw)
        base = found.sent


@given(
    st.lists(st.sampled_from([SECRET, "some text ", "x", SECRET[:5], SECRET[5:]]), max_size=10), st.randoms()
)
@settings(max_examples=300, deadline=None)
def test_however_an_answer_is_cut_its_masked_pieces_add_up(parts: Sequence[str], draw: random.Random) -> None:
    whole = "".join(parts).encode()
    cuts = sorted(draw.choices(range(len(whole) + 1), k=5))
    lengths = [end - start for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    masked = MASK(whole)
    moved = moved_lengths(lengths, edits(whole, masked))
    assert sum(moved) == len(masked)
    assert min(moved) >= 0


def test_a_large_exchange_is_kept_in_a_thread_and_is_there_in_the_end(tmp_path: Path) -> None:
    body = json.dumps({"messages": [{"content": "x" * 3_000_000 + SECRET}]}).encode()

    async def run() -> None:
        recorder = Recorder(tmp_path / "r.zst", ABOUT, MASK)
        recorder.append(tape(body))
        recorder.append(tape({"messages": []}, at=1.0))
        recorder.close()

    asyncio.run(run())
    back = read(tmp_path / "r.zst")
    assert back is not None
    assert [len(exchange.body) for exchange in back.exchanges] == [len(MASK(body)), len(b'{"messages": []}')]


def test_a_full_disk_is_said_when_the_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "r.zst"
    path.symlink_to("/dev/full")
    with pytest.raises(StoreError, match="No space left"):
        Recorder(path, ABOUT, MASK).close()


def test_memory_stays_small_at_128_rollouts_at_a_time(tmp_path: Path) -> None:
    body, answer = conversation(1)[0], b"data: {}\n\n" * 20
    Recorder(tmp_path / "first.zst", ABOUT, MASK).close()
    tracemalloc.start()
    recorders = [Recorder(tmp_path / f"{number}.zst", ABOUT, MASK) for number in range(128)]
    for _ in range(3):
        for recorder in recorders:
            recorder.append(tape(body, answer))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for recorder in recorders:
        recorder.close()
    assert peak < 128 * 40_000


def test_a_small_exchange_costs_little(tmp_path: Path) -> None:
    """A generous bound on a loaded machine; what it is at rest, benchmarks say."""
    recorder = Recorder(tmp_path / "r.zst", ABOUT, MASK)
    sent = tape(
        {"messages": [{"role": "user", "content": "What is the capital of France?"}]}, b'{"text": "Paris"}'
    )
    recorder.append(sent)
    began = time.process_time()
    for _ in range(1000):
        recorder.append(sent)
    assert time.process_time() - began < 0.5
    recorder.close()


def test_the_key_that_a_program_was_given_is_masked_beside_the_secrets_of_the_run(tmp_path: Path) -> None:
    recorders = Recorders(tmp_path, Masker({"MY_TOKEN": SECRET}), on=True)
    keep = recorders.open(ABOUT)
    assert keep is not None
    recorders.hide("01R", "canary-session-0005")
    packed = [base64.b64encode(bytes(before) + b"canary-session-0005").decode() for before in range(3)]
    keep(tape({"messages": ["canary-session-0005", SECRET, *packed]}, b"canary-", b"session-0005"))
    recorders.close_all()
    data = frames(tmp_path / "exchanges" / "01R.zst")
    assert b"canary" not in data
    assert data.count(b"[secret:session]") == 5
    assert Recorders(tmp_path, Masker(), on=False).open(ABOUT) is None


def test_a_turn_costs_no_more_at_the_end_of_a_long_conversation_than_its_bytes(tmp_path: Path) -> None:
    """Work on what is new is the same at each turn; what grows is one comparison of bytes."""
    bodies = conversation(400)
    recorder = Recorder(tmp_path / "r.zst", ABOUT, MASK)
    times = []
    for body in bodies:
        began = time.process_time()
        recorder.append(tape(body))
        times.append(time.process_time() - began)
    recorder.close()
    assert sorted(times[-50:])[25] < 10 * sorted(times[50:100])[25]


def run_with(folder: Path, *tasks: str) -> Recording:
    """A run directory with one recorded rollout for each task."""
    from _kit.traces import scored

    from hotswap.store import RunDirectory, RunInfo

    with RunDirectory.create(folder / "runs" / "quiz--1", RunInfo("quiz--1", "", {})) as run:
        for task in tasks:
            trace = scored(task)
            run.append(trace)
            about = About(**{**ABOUT.__dict__, "rollout": trace.id, "task": task})
            recorder = Recorder(run.path / "exchanges" / f"{trace.id}.zst", about, MASK)
            for at, body in enumerate(conversation(5)):
                recorder.append(tape(body.replace(b"system", task.encode()), at=float(at)))
            recorder.close()
    return open_recording("quiz--1", folder / "runs")


def contents(recording: Recording) -> dict[str, list[bytes]]:
    return {kept.about.task: [one.body for one in bodies(recording, kept)] for kept in recording.rollouts}


def bodies(recording: Recording, kept: Any) -> Sequence[Exchange]:
    return recording.load(kept).exchanges


def test_a_run_in_one_file_holds_what_the_run_does_and_is_small(tmp_path: Path) -> None:
    recording = run_with(tmp_path, "fr", "it", "de")
    size = save(recording, tmp_path / "quiz.rec")
    back = open_recording(str(tmp_path / "quiz.rec"), tmp_path / "runs")
    assert back.name == "quiz--1"
    assert contents(back) == contents(recording)
    assert [(kept.about.task, kept.exchanges, kept.dialects) for kept in back.rollouts] == [
        (task, 5, ("chat",)) for task in sorted(("fr", "it", "de"))
    ]
    assert [kept.about for kept in back.rollouts] == [kept.about for kept in recording.rollouts]
    alone = sum(path.stat().st_size for path in (recording.path / "exchanges").iterdir())
    assert size < alone / 2


def test_a_run_without_exchanges_and_a_file_that_is_none_are_refused(tmp_path: Path) -> None:
    path = run_with(tmp_path, "fr").path
    (path / "exchanges" / "01FR0.zst").unlink()
    with pytest.raises(UsageError, match="no recorded exchanges"):
        open_recording("quiz--1", tmp_path / "runs")
    (path / "exchanges").rmdir()
    with pytest.raises(UsageError, match="--raw off"):
        open_recording("quiz", tmp_path / "runs")
    (tmp_path / "other").write_text("text")
    with pytest.raises(UsageError, match="holds no recorded exchanges"):
        open_recording(str(tmp_path / "other"), tmp_path / "runs")
    with pytest.raises(UsageError, match="no run 'gone'"):
        open_recording("gone", tmp_path / "runs")
