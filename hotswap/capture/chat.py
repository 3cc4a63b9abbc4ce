"""What a chat route is asked for besides, and how the ids of tokens are read from its answer.

The fields that llama.cpp and vLLM know are sent to both: each leaves alone what it does not know. An answer is
asked for in one piece: in a stream llama.cpp leaves out the end of a turn, and every token that is not the last
of a character.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

ADDED: Mapping[str, Any] = {
    "logprobs": True,
    "return_token_ids": True,  # vLLM: `prompt_token_ids`, and `token_ids` in each choice
    "return_tokens": True,  # llama.cpp: the ids in `__verbose`
    "verbose": True,  # llama.cpp: `__verbose`, which has the prompt as it was put together
}
HIGHEST = 2**32 - 1
"""Of an id."""
BOTH = (
    "neither `prompt_token_ids` (vLLM, from 0.10.2 on) nor `__verbose` (llama.cpp's server) is in its answer"
)


class Missing(Exception):
    """An answer does not have all that is to be captured. The message says what is not there."""


@dataclass(frozen=True)
class Asking:
    """How a request is changed so that its answer has ids, and what of that answer the program did not ask for."""

    added: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    """Fields of an answer and of its choices."""
    streams: bool = False
    usage_chunk: bool = False
    """Whether the stream is to have its usage in a chunk of its own."""


@dataclass(frozen=True)
class Choice:
    """What the model wrote."""

    index: int
    output: Sequence[int]
    logprobs: Sequence[float]
    """One a token; NaN where the endpoint gave none."""


@dataclass(frozen=True)
class Tokens:
    """The ids of one answer."""

    choices: tuple[Choice, ...]
    prompt: Sequence[int] | None = None
    """Null where the endpoint gave the prompt as a text that it has to be asked about."""
    text: str = ""
    counted: int | None = None
    """Tokens of the prompt by the endpoint's own account."""

    def resolved(self, ids: Any) -> Tokens:
        """Get the same with the ids of its text. Raises Missing where they are not those that were read."""
        prompt = _ids(ids, "`tokens` of its route /tokenize")
        if len(prompt) != self.counted:
            said = f"the prompt's text is {len(prompt)} tokens, and the endpoint read {self.counted}"
            raise Missing(f"{said}: the ids of what is no text (images, sound) cannot be had")
        return replace(self, prompt=prompt)


def ask(fields: Mapping[str, Any]) -> Asking:
    """Get what is changed in a request."""
    added, hidden = dict(ADDED), []
    if fields.get("logprobs") is not True:
        hidden.append("logprobs")
    if "logprobs" in hidden or fields.get("top_logprobs") == 0:
        added["top_logprobs"] = 1  # llama.cpp: without it 20, and with 0 none at all
    hidden += [] if fields.get("return_token_ids") else ["prompt_token_ids", "token_ids"]
    hidden += [] if fields.get("verbose") else ["__verbose"]
    streams = fields.get("stream") is True
    options = fields.get("stream_options")
    usage_chunk = isinstance(options, dict) and bool(options.get("include_usage"))
    if streams:
        added["stream"] = False
    added = {name: value for name, value in added.items() if fields.get(name) != value}
    left_out = tuple(name for name in ("stream_options",) if name in fields)
    return Asking(added, left_out, tuple(hidden), streams, usage_chunk)


def is_answer(value: Any) -> bool:
    """Whether a body is an answer that could have ids, and no error."""
    return isinstance(value, dict) and not value.get("error") and bool(_choices(value))


def clean(value: Mapping[str, Any], asking: Asking) -> dict[str, Any]:
    """Get an answer without what the program did not ask for."""
    whole = {name: part for name, part in value.items() if name not in asking.hidden}
    choices = (
        {name: part for name, part in choice.items() if name not in asking.hidden}
        for choice in _choices(value)
    )
    return {**whole, "choices": list(choices)}


def read_tokens(value: Mapping[str, Any]) -> Tokens:
    """Read the ids of an answer. Raises Missing."""
    verbose = value.get("__verbose")
    if value.get("prompt_token_ids") is not None:
        prompt = _ids(value["prompt_token_ids"], "`prompt_token_ids`")
        return Tokens(tuple(_given(choice) for choice in _choices(value)), prompt)
    if isinstance(verbose, dict):
        return _spelt_out(value, verbose)
    raise Missing(BOTH)


def _given(choice: Mapping[str, Any]) -> Choice:
    """As vLLM gives it: one log-probability for each id."""
    output = _ids(choice.get("token_ids"), "`token_ids` of a choice")
    entries = _entries(choice)
    if len(entries) != len(output):
        raise Missing(f"`logprobs` of a choice has {len(entries)} entries for {len(output)} ids")
    return Choice(_index(choice), output, tuple(_logprob(entry) for entry in entries))


def _spelt_out(value: Mapping[str, Any], verbose: Mapping[str, Any]) -> Tokens:
    """As llama.cpp gives it: the prompt as text, ids for all that was written, and log-probabilities for most."""
    choices, text, counted = _choices(value), verbose.get("prompt"), verbose.get("tokens_evaluated")
    if len(choices) != 1:
        raise Missing(f"`__verbose` is there once, for {len(choices)} choices")
    if not isinstance(text, str) or not isinstance(counted, int):
        raise Missing("`__verbose` has no `prompt` and `tokens_evaluated`")
    output = _ids(verbose.get("tokens"), "`__verbose.tokens`")
    written = verbose.get("tokens_predicted")
    if isinstance(written, int) and written != len(output):
        raise Missing(f"`__verbose.tokens` has {len(output)} of {written} ids")
    entries = _entries(choices[0])
    found = _ids([entry.get("id") for entry in entries], "`id` of each entry of `logprobs`")
    logprobs = aligned(output, found, [_logprob(entry) for entry in entries])
    return Tokens((Choice(_index(choices[0]), output, logprobs),), None, text, counted)


def aligned(output: Sequence[int], ids: Sequence[int], values: Sequence[float]) -> tuple[float, ...]:
    """Put each value beside its token, where there is one place for it alone; NaN elsewhere.

    llama.cpp gives no value for a token that ends within a character. Raises Missing where the ids are not
    among the output's, in their order.
    """
    if len(output) == len(ids):
        first = last = list(range(len(ids)))
    else:
        first = _places(output, ids)
        last = [len(output) - 1 - place for place in reversed(_places(output[::-1], ids[::-1]))]
    placed = [math.nan] * len(output)
    for at, other, id_, value in zip(first, last, ids, values, strict=True):
        if output[at] != id_:
            raise Missing("the ids in `logprobs` are not those in `__verbose.tokens`")
        if at == other:
            placed[at] = value
    return tuple(placed)


def _places(output: Sequence[int], ids: Sequence[int]) -> list[int]:
    """The first place of each id, after that of the one before."""
    places, at = [], 0
    for id_ in ids:
        while at < len(output) and output[at] != id_:
            at += 1
        if at == len(output):
            raise Missing("the ids in `logprobs` are not those in `__verbose.tokens`")
        places.append(at)
        at += 1
    return places


def _choices(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    choices = value.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _entries(choice: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The log-probabilities of a choice; an answer without tokens has none."""
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return [entry for entry in content if isinstance(entry, dict)] if isinstance(content, list) else []


def _index(choice: Mapping[str, Any]) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) and 0 <= index <= HIGHEST else 0


def _ids(value: Any, where: str) -> Sequence[int]:
    if not isinstance(value, list):
        raise Missing(f"{where} is not in its answer")
    try:
        return array("I", value)
    except (TypeError, OverflowError) as error:
        raise Missing(f"{where} holds what is no id of a token") from error


def _logprob(entry: Mapping[str, Any]) -> float:
    value = entry.get("logprob")
    return float(value) if isinstance(value, int | float) else math.nan
