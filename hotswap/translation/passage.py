"""What lies between reading an answer and writing it, whatever the dialects: tools get their names back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from hotswap.translation.names import Names
from hotswap.translation.pivot import (
    Answered,
    Begun,
    Call,
    Closed,
    Ended,
    Failed,
    Grew,
    Opened,
    Part,
    Piece,
    Thinking,
    reworded,
    words,
)


class Passage:
    """The way of one answer, piece by piece."""

    def __init__(self, names: Names, thoughts: bool, unnamed: Callable[[], Begun], dropped: set[str]) -> None:
        self._names = names
        self._thoughts = thoughts
        self._unnamed = unnamed
        """Gets what the answer is called where the endpoint does not say."""
        self._dropped = dropped
        self._begun = False
        self._calls = False
        self._held: Part | None = None
        """A part that is not open for the program: because it has no words yet, or until it is whole."""

    def through(self, pieces: Iterable[Piece]) -> list[Piece]:
        out: list[Piece] = []
        for piece in pieces:
            if not self._begun and not isinstance(piece, Failed):
                begun = piece if isinstance(piece, Begun) else Begun()
                self._begun = True
                out.append(self._named(begun))
            if not isinstance(piece, Begun):
                out += self._pass(piece)
        return out

    def _named(self, begun: Begun) -> Begun:
        if begun.id and begun.model and begun.created:
            return begun
        other = self._unnamed()
        return Begun(begun.id or other.id, begun.model or other.model, begun.created or other.created)

    def _pass(self, piece: Piece) -> list[Piece]:
        if isinstance(piece, Opened):
            return self._open(piece.part)
        if isinstance(piece, Grew):
            return self._grow(piece)
        if isinstance(piece, Closed):
            return self._close(piece.part)
        return [self._end(piece)] if isinstance(piece, Ended) else [piece]

    def _open(self, part: Part) -> list[Piece]:
        self._held = part
        if not isinstance(part, Call):
            return []
        self._calls = True
        if self._names.changes(part):
            return []
        self._held = None
        return [Opened(self._names.restore(part))]

    def _grow(self, grew: Grew) -> list[Piece]:
        part, self._held = self._held, None
        if part is None:
            return [grew]
        if isinstance(part, Call) or self._hides(part):
            self._held = part
            return []
        return [Opened(part), grew]

    def _hides(self, part: Part) -> bool:
        """A program that did not ask for thoughts may not be ready for them."""
        return isinstance(part, Thinking) and not self._thoughts

    def _close(self, part: Part) -> list[Piece]:
        held, self._held = self._held, None
        if isinstance(part, Call):
            return self._close_call(part, held)
        if held is None:
            return [Closed(part)]
        if words(part):
            self._dropped.add("thinking")
        return []

    def _close_call(self, part: Call, held: Part | None) -> list[Piece]:
        whole = self._names.restore(part)
        filled: list[Piece] = []
        if not whole.arguments and whole.kind != "custom":
            whole = replace(whole, arguments="{}")
            filled = [Grew("{}")] if held is None else []
        if held is None:
            return [*filled, Closed(whole)]
        grew = [Grew(whole.arguments)] if whole.arguments else []
        return [Opened(replace(whole, arguments="")), *grew, Closed(whole)]

    def _end(self, ended: Ended) -> Ended:
        if ended.usage is None:
            self._dropped.add("usage")
        called = ended.finish in ("stop", "other") and self._calls
        return replace(ended, finish="tool_calls") if called else ended


def taken_apart(answered: Answered) -> list[Piece]:
    """An answer in one piece as the stream that would have said it."""
    pieces: list[Piece] = [Begun(answered.id, answered.model, answered.created)]
    for part in answered.parts:
        said = words(part)
        pieces += [Opened(reworded(part, "")), *([Grew(said)] if said else []), Closed(part)]
    return [*pieces, Ended(answered.finish, answered.usage, answered.stop_sequence)]


def put_together(pieces: Iterable[Piece]) -> Answered:
    """The answer in one piece that a stream amounts to."""
    answered = Answered()
    parts: list[Part] = []
    for piece in pieces:
        if isinstance(piece, Begun):
            answered = replace(answered, id=piece.id, model=piece.model, created=piece.created)
        elif isinstance(piece, Closed):
            parts.append(piece.part)
        elif isinstance(piece, Ended):
            answered = replace(
                answered, finish=piece.finish, usage=piece.usage, stop_sequence=piece.stop_sequence
            )
    return replace(answered, parts=tuple(parts))
