"""The real agent programs, started by hand behind the proxy: `codex` and `claude`, as their packages bring them.

They are looked for in the folder that HOTSWAP_TEST_AGENTS names (its `node_modules/.bin`), then on the PATH.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from _kit.behind import Seat
from _kit.provider import Reply

LIMIT_S = 120


def find(name: str) -> str | None:
    """Get the path of a program; null where it is not on this machine."""
    folder = os.environ.get("HOTSWAP_TEST_AGENTS")
    path = f"{folder}/node_modules/.bin{os.pathsep}{os.environ['PATH']}" if folder else None
    return shutil.which(name, path=path)


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test where a program is missing."""
    return pytest.mark.skipif(
        find(name) is None, reason=f"no {name}: npm install it, and name the folder in HOTSWAP_TEST_AGENTS"
    )


@dataclass(frozen=True)
class Ran:
    """How a program ended."""

    exit: int | None
    output: str
    errors: str
    elapsed_s: float


async def run(argv: Sequence[str], folder: Path, env: Mapping[str, str], prompt: str) -> Ran:
    """Run a program to its end in an environment of its own. Killed after a while, so that a test ends."""
    started = time.monotonic()
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "LANG": "C.UTF-8", **env}
    (folder / "work").mkdir(parents=True, exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=folder / "work",
        env=clean,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate(prompt.encode())
    except BaseException:
        os.killpg(process.pid, 9)
        raise
    return Ran(process.returncode, out.decode(), err.decode(), time.monotonic() - started)


async def codex(seat: Seat, folder: Path, prompt: str, **settings: Any) -> Ran:
    """Run Codex on a prompt, with further entries of its configuration by dotted name (dots written as `__`)."""
    home = folder / "home" / ".codex"
    home.mkdir(parents=True, exist_ok=True)
    given = {
        "model": "some-model",
        "model_provider": "eval",
        "approval_policy": "never",
        "sandbox_mode": "danger-full-access",
        "check_for_update_on_startup": False,
        "web_search": "disabled",
        "model_providers.eval.name": "eval",
        "model_providers.eval.base_url": f"{seat.url}/v1",
        "model_providers.eval.env_key": "EVAL_KEY",
        "model_providers.eval.wire_api": "responses",
        "features.unbounded_connection_retries": False,
        "features.shell_snapshot": False,
        "history.persistence": "none",
        "analytics.enabled": False,
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    flags = [word for name, value in given.items() for word in ("-c", f"{name}={json.dumps(value)}")]
    argv = [str(find("codex")), "exec", "--skip-git-repo-check", "--ephemeral", "--json", *flags, "-"]
    return await run(argv, folder, {"CODEX_HOME": str(home), "EVAL_KEY": seat.session.secret()}, prompt)


async def claude(seat: Seat, folder: Path, prompt: str, **env: str) -> Ran:
    """Run Claude Code on a prompt, with further variables of its environment."""
    given = {
        "CLAUDE_CONFIG_DIR": str(folder / "home" / ".claude"),
        "ANTHROPIC_BASE_URL": seat.url,
        "ANTHROPIC_API_KEY": seat.session.secret(),
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        **env,
    }
    argv = [
        str(find("claude")), "-p", "--dangerously-skip-permissions", "--model", "some-model",
        "--strict-mcp-config", "--no-session-persistence", "--output-format", "stream-json", "--verbose",
    ]  # fmt: skip
    return await run(argv, folder, given, prompt)


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
