"""The order that APIs demand of a conversation, whatever order a program sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from hotswap.translation.pivot import Call, Part, Result, Text, Turn

T = TypeVar("T")


def settle(turns: Sequence[Turn]) -> list[Turn]:
    """Put the results of an answer's calls right behind it, in one turn of their own; what stood between follows."""
    settled: list[Turn] = []
    followers: list[Turn] = []
    for turn in turns:
        if turn.role == "assistant":
            _place(settled, followers)
            followers = []
            settled.append(turn)
        else:
            followers.append(turn)
    _place(settled, followers)
    return settled


def _place(settled: list[Turn], followers: Sequence[Turn]) -> None:
    calls = {part.id for part in settled[-1].parts if isinstance(part, Call)} if settled else set()
    results = tuple(part for turn in followers for part in turn.parts if _answers(part, calls))
    if results:
        settled.append(Turn("tool", results))
    for turn in followers:
        rest = tuple(part for part in turn.parts if not _answers(part, calls))
        if rest:
            settled.append(Turn(turn.role, rest))


def _answers(part: Part, calls: set[str]) -> bool:
    return isinstance(part, Result) and part.call_id in calls


def merge(turns: Iterable[Turn]) -> list[Turn]:
    """Make one turn of neighbours with the same role."""
    merged: list[Turn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role:
            merged[-1] = Turn(turn.role, (*merged[-1].parts, *turn.parts))
        else:
            merged.append(turn)
    return merged


def preamble(turns: Sequence[Turn]) -> tuple[list[Turn], list[Turn]]:
    """Split the instructions at the beginning from the conversation."""
    first = next((place for place, turn in enumerate(turns) if not instructs(turn)), len(turns))
    return list(turns[:first]), list(turns[first:])


def instructs(turn: Turn) -> bool:
    return turn.role in ("system", "developer")


def spoken(parts: Iterable[Part]) -> list[str]:
    """The texts among the parts that are not empty."""
    return [part.text for part in parts if isinstance(part, Text) and part.text]


def of_type(parts: Iterable[Part], kind: type[T]) -> list[T]:
    return [part for part in parts if isinstance(part, kind)]


def shown_after(results: Iterable[Result]) -> Turn | None:
    """The user's turn that shows images and documents of results, where the results themselves cannot hold them."""
    parts: list[Part] = []
    for result in results:
        if result.media:
            parts += (Text(f"From the result of the tool call {result.call_id}:"), *result.media)
    return Turn("user", tuple(parts)) if parts else None
