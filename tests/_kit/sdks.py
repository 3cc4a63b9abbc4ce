"""Programs that call a model with the official SDKs, each in its own dialect, and say what they got in one form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai
from openai.lib.streaming.chat import ChatCompletionStreamState

__all__ = ["Got", "converse"]

TOOLS = {
    "read": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    "now": {"type": "object", "properties": {}},
}


@dataclass
class Got:
    """An answer as the SDK understood it."""

    text: str
    thinking: str
    calls: list[tuple[str, str, dict[str, Any]]]
    finish: str
    id: str
    model: str
    usage: dict[str, Any]
    items: list[Any] = field(default_factory=list)
    """What the program puts into its history."""
    kinds: list[str] = field(default_factory=list)
    """The events of the stream, in order."""


@dataclass(frozen=True)
class Wish:
    """What a program asks for in a call."""

    url: str
    key: str
    prompt: str
    turns: Sequence[tuple[Got, Mapping[str, str]]]
    stream: bool
    tools: Mapping[str, Any]
    limit: int


async def converse(
    dialect: str,
    url: str,
    key: str,
    prompt: str,
    turns: Sequence[tuple[Got, Mapping[str, str]]] = (),
    *,
    stream: bool,
    tools: Mapping[str, Any] = TOOLS,
    limit: int = 500,
) -> Got:
    """Ask, with the answers that were got before and the results of their calls as history."""
    program = {"chat": _chat, "messages": _messages, "responses": _responses}[dialect]
    return await program(Wish(url, key, prompt, turns, stream, tools, limit))


async def _chat(wish: Wish) -> Got:
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": wish.prompt},
    ]
    for got, results in wish.turns:
        messages += got.items
        messages += [{"role": "tool", "tool_call_id": id, "content": said} for id, said in results.items()]  # noqa: A001
    offered = [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in wish.tools.items()
    ]
    asked = {
        "model": "shown",
        "messages": messages,
        "tools": offered,
        "max_tokens": wish.limit,
        "temperature": 0.5,
    }
    kinds: list[str] = []
    async with openai.AsyncOpenAI(base_url=f"{wish.url}/v1", api_key=wish.key, max_retries=0) as client:
        if not wish.stream:
            answer = await client.chat.completions.create(**asked)
        else:
            state = ChatCompletionStreamState()
            chunks = await client.chat.completions.create(
                **asked, stream=True, stream_options={"include_usage": True}
            )
            async for chunk in chunks:
                kinds += [
                    name for choice in chunk.choices for name, value in choice.delta if value is not None
                ]
                state.handle_chunk(chunk)
            answer = state.current_completion_snapshot  # the final one is refused where a limit cut it
    [choice] = answer.choices
    said = choice.message
    return Got(
        text=said.content or "",
        thinking=getattr(said, "reasoning_content", None) or "",
        calls=[
            (call.id, call.function.name, json.loads(call.function.arguments))
            for call in said.tool_calls or ()
        ],
        finish=choice.finish_reason,
        id=answer.id,
        model=answer.model,
        usage=answer.usage.model_dump(exclude_none=True),
        items=[said.model_dump(exclude_none=True, exclude={"parsed"})],
        kinds=kinds,
    )


async def _messages(wish: Wish) -> Got:
    messages: list[Any] = [{"role": "user", "content": wish.prompt}]
    for got, results in wish.turns:
        messages.append({"role": "assistant", "content": got.items})
        shown = [{"type": "tool_result", "tool_use_id": id, "content": said} for id, said in results.items()]  # noqa: A001
        messages.append({"role": "user", "content": shown})
    offered = [{"name": name, "input_schema": schema} for name, schema in wish.tools.items()]
    thinking = {"type": "adaptive"}
    asked = {
        "model": "shown",
        "max_tokens": wish.limit,
        "system": "Be brief.",
        "messages": messages,
        "tools": offered,
    }
    kinds: list[str] = []
    async with anthropic.AsyncAnthropic(base_url=wish.url, api_key=wish.key, max_retries=0) as client:
        if not wish.stream:
            answer = await client.messages.create(**asked, thinking=thinking)
        else:
            async with client.messages.stream(**asked, thinking=thinking) as events:
                async for event in events:
                    kinds.append(event.type)
                answer = await events.get_final_message()
    return Got(
        text="".join(block.text for block in answer.content if block.type == "text"),
        thinking="".join(block.thinking for block in answer.content if block.type == "thinking"),
        calls=[(block.id, block.name, block.input) for block in answer.content if block.type == "tool_use"],
        finish=answer.stop_reason,
        id=answer.id,
        model=answer.model,
        usage=answer.usage.model_dump(exclude_none=True),
        items=[block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in answer.content],
        kinds=kinds,
    )


async def _responses(wish: Wish) -> Got:
    items: list[Any] = [{"role": "user", "content": wish.prompt}]
    for got, results in wish.turns:
        items += got.items
        items += [
            {"type": "function_call_output", "call_id": called, "output": said}
            for called, said in results.items()
        ]
    offered = [
        {"type": "function", "name": name, "parameters": schema, "strict": False}
        for name, schema in wish.tools.items()
    ]
    asked = {
        "model": "shown",
        "input": items,
        "instructions": "Be brief.",
        "tools": offered,
        "max_output_tokens": wish.limit,
    }
    kinds: list[str] = []
    ended: Any = None
    async with openai.AsyncOpenAI(base_url=f"{wish.url}/v1", api_key=wish.key, max_retries=0) as client:
        if not wish.stream:
            answer = await client.responses.create(**asked)
        else:
            async with client.responses.stream(**asked) as events:
                async for event in events:
                    kinds.append(event.type)
                    ended = event if event.type in ("response.completed", "response.incomplete") else ended
                answer = ended.response
    thoughts = [item for item in answer.output if item.type == "reasoning"]
    calls = [item for item in answer.output if item.type == "function_call"]
    return Got(
        text=answer.output_text,
        thinking="".join(part.text for item in thoughts for part in item.summary),
        calls=[(item.call_id, item.name, json.loads(item.arguments)) for item in calls],
        finish=answer.status,
        id=answer.id,
        model=answer.model,
        usage=answer.usage.model_dump(exclude_none=True),
        items=[item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output],
        kinds=kinds,
    )
