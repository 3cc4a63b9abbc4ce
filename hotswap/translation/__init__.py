"""Translation between wire formats, for a program whose dialect the endpoint does not speak.

    translated = between("messages", "chat").open(fields, "some-model", stream=True)
    translated.fields, translated.tail          # what the endpoint is asked, and where
    translated.feed(event), translated.finish() # its stream, in the program's dialect
    translated.whole(body)                      # or its answer in one piece
    translated.dropped                          # what could not be said
    translated.begin()                          # another answer to the same request follows

Everything goes through a neutral middle (`pivot`), so that a dialect is one file in `requests/` and one in `answers/`,
and knows no other. What crosses: texts, instructions in their places, images and documents, tools with their calls and
results, what the model thinks, in words, settings that both sides have, stop reasons, refusals, usage, errors.

What the other side has no words for is dropped and named in `dropped`, or refused with `Untranslatable` where dropping
it would change the meaning:

* Signatures and encrypted thinking mean nothing elsewhere. Words that were thought earlier go to chat, as
  `reasoning_content`; Anthropic and OpenAI's Responses do not take them back without their seals.
* A custom tool is a function with one text, `input`; a tool in a namespace is a function whose name holds the
  namespace; both come back as they were. Tools that a provider runs itself (web search and the like) are dropped; where
  the model must call one of them, the request is refused, and so are tools of the program's that its provider's models
  alone know (a computer, a text editor).
* Results of tools follow their calls. Where they can hold no images, a user's message after them does. Where there is
  no flag for a failed tool, its text begins with `Error: `.
* Instructions amid a conversation go to Anthropic as a user's text, in `<system-reminder>` tags.
* Anthropic demands a limit of tokens: 32,000 where the program sets none.
* A program that speaks messages or Gemini sees what the model thinks only where it asked to.
* What lies on a provider's server (an earlier response, a file) is refused, and so are stop sequences where the
  endpoint has none, several answers to one call, log-probabilities, biases of tokens, sound, and a form of the answer
  that the endpoint cannot be held to.
* Where the endpoint does not count tokens, a program that speaks messages, which adds numbers up, reads zeros.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from hotswap.dialects import Event, known
from hotswap.messages import Usage
from hotswap.translation import answers, requests
from hotswap.translation.names import Names
from hotswap.translation.passage import Passage, put_together, taken_apart
from hotswap.translation.pivot import Begun, Failed, Piece
from hotswap.translation.pivot import Untranslatable as Untranslatable
from hotswap.translation.reading import must_call


class Translated:
    """One call: its request for the endpoint, and its answer for the program."""

    def __init__(
        self, program: str, endpoint: str, fields: Mapping[str, Any], model: str, stream: bool
    ) -> None:
        self._unsaid: set[str] = set()
        self._program = program
        self._given = fields
        self._model = model
        self._opened = int(time.time())
        self._answers = _answers(endpoint)
        self._asked = asked = _requests(program).read(fields, self._unsaid)
        must_call(asked)
        target = _requests(endpoint)
        self._names = Names(asked.tools, target.KINDS)
        self.fields: dict[str, Any] = {
            "model": model,
            **target.write(asked, self._names, self._unsaid),
            "stream": stream,
        }
        """The request for the endpoint."""
        if stream and endpoint == "chat":
            self.fields["stream_options"] = {"include_usage": True}
        self.tail: str = target.TAIL
        """The endpoint's route below its base address."""
        self.begin()

    def begin(self) -> Translated:
        """Forget what has come of an answer: the request is sent again, and another one follows."""
        self._dropped = set(self._unsaid)
        self._passage = Passage(self._names, self._asked.thoughts, self._unnamed, self._dropped)
        self._reader = self._answers.Reader(self._dropped)
        self._writer = _answers(self._program).Writer(self._asked)
        self.content_type: str = self._writer.content_type
        """Of the stream that the program gets."""
        self._failed = False
        self._counted: Usage | None = None
        return self

    @property
    def dropped(self) -> tuple[str, ...]:
        """What could not be said so far, by name; answers can add to it."""
        return tuple(sorted(self._dropped))

    def whole(self, body: bytes) -> bytes:
        """Get an answer in one piece in the program's dialect; what is none becomes an error's body."""
        answered = self._answers.read(body, self._dropped)
        if isinstance(answered, Failed):
            return known()[self._program].write_error(500, answered.type, answered.message)
        self._counted = answered.usage
        passed = put_together(self._passage.through(taken_apart(answered)))
        return answers.encode(_answers(self._program).write(passed))

    @property
    def usage(self) -> Usage:
        """What the endpoint has counted so far: some programs are told nothing of it, others zeros."""
        return self._counted or self._reader.usage or Usage()

    def feed(self, event: Event) -> bytes:
        """Get what the program is sent for the endpoint's next event; often nothing. Never raises."""
        return self._write(self._reader.feed(event))

    def finish(self) -> bytes:
        """Get what is still to be sent when the endpoint's stream is over; nothing where it broke off."""
        return self._write(self._reader.finish())

    def _write(self, pieces: list[Piece]) -> bytes:
        written = b""
        for piece in () if self._failed else self._passage.through(pieces):
            if isinstance(piece, Failed):
                self._failed = True
                return written + known()[self._program].write_error_event(piece.type, piece.message)
            written += self._writer.write(piece)
        return written

    def _unnamed(self) -> Begun:
        """What an answer is called where the endpoint does not say: the same for the same request."""
        digest = hashlib.sha256(json.dumps(self._given, sort_keys=True).encode()).hexdigest()
        model = self._model or str(self._given.get("model") or "")
        return Begun(digest[:24], model, self._opened)


class Translation:
    """How calls of one dialect are made in another."""

    def __init__(self, program: str, endpoint: str) -> None:
        self.program = program
        self.endpoint = endpoint

    def open(self, fields: Mapping[str, Any], model: str, stream: bool) -> Translated:
        """Translate one request; raise `Untranslatable` where that would change what it means."""
        return Translated(self.program, self.endpoint, fields, model, stream)


def between(program: str, endpoint: str) -> Translation | None:
    """Get the translation for a program's dialect and an endpoint's; null where there is none."""
    written = {module.name for module in pkgutil.iter_modules(requests.__path__)}
    if program == endpoint or not {program, endpoint} <= written or not hasattr(_requests(endpoint), "write"):
        return None
    return Translation(program, endpoint)


@cache
def _requests(name: str) -> Any:
    return importlib.import_module(f"{requests.__name__}.{name}")


@cache
def _answers(name: str) -> Any:
    return importlib.import_module(f"{answers.__name__}.{name}")
