"""An answer as words and sentences, with the cities and countries that it mentions.

Words are compared folded (small letters, no accents or apostrophes): `Bogota`, `BOGOTÁ` and `Bogotá` are one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from hotswap.tasksets._places import Country, countries, other_cities

Kind = Literal["word", "right", "city", "own", "country"]
"""`right` is an accepted name of the capital, `own` a name of the country that was asked about."""

APOSTROPHES = "'\u2019\u02bc`\u00b4"
WORD = re.compile(rf"[^\W_]+(?:[{APOSTROPHES}][^\W_]+)*")
MARKUP = re.compile(r"\\(?:boxed|text|textbf|mathrm)\b|[*_#\"\u201c\u201d{}$\\]")
BREAKS = frozenset({"but", "however", "while", "whereas", "although", "though"})
"""Words that begin a new part of a sentence."""
LONGEST_NAME = 6
"""Words in the longest name of a place."""
LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "\u0131": "i", "ð": "d", "þ": "th", "ß": "ss", "æ": "ae", "œ": "oe"}
)


@dataclass(frozen=True)
class Word:
    """A word of the answer, or the several words that name one place."""

    text: str
    """Folded."""
    original: str
    gap: str
    """What stands between the word before and this one."""
    kind: Kind = "word"


def words(answer: str, country: Country) -> list[Word]:
    """Cut an answer into words and names of places. The last is empty: its gap is what follows the others."""
    text = MARKUP.sub(" ", unicodedata.normalize("NFC", answer))
    single, end = _single_words(text)
    small = not any(character.isupper() for character in text)
    places = _places(country)
    found = []
    at = 0
    while at < len(single):
        length, kind = _place(single[at : at + LONGEST_NAME], places, small)
        found.append(_joined(single[at : at + length], kind))
        at += length
    return [*found, Word("", "", text[end:])]


def _single_words(text: str) -> tuple[list[Word], int]:
    found = []
    end = 0
    for match in WORD.finditer(text):
        found.append(Word(fold(match[0]), match[0], text[end : match.start()]))
        end = match.end()
    return found, end


def _place(ahead: Sequence[Word], places: Mapping[str, Kind], small: bool) -> tuple[int, Kind]:
    """Get how many words the longest name of a place has that the words ahead begin with, and its kind."""
    for length in range(len(ahead), 0, -1):
        kind = places.get(" ".join(word.text for word in ahead[:length]))
        gaps = [word.gap for word in ahead[1:length]]
        together = r"[ .,\-\u2010-\u2015]*" if kind == "right" else r"[ .\-\u2010-\u2015]*"
        # `male`, `us` and `hue` are words, unless all of the answer is in small letters
        proper = kind == "right" or small or ahead[0].original[0].isupper()
        if kind and proper and all(re.fullmatch(together, gap) for gap in gaps):
            return length, kind
    return 1, "word"


def _joined(parts: Sequence[Word], kind: Kind) -> Word:
    original = parts[0].original + "".join(part.gap + part.original for part in parts[1:])
    return Word(" ".join(part.text for part in parts), original, parts[0].gap, kind)


@cache
def _places(country: Country) -> dict[str, Kind]:
    """Every name of a place, folded, with its kind for a question about `country`."""
    found: dict[str, Kind] = {}
    _add(found, other_cities(), "city")
    for other in countries():
        _add(found, other.capitals, "city")
    for other in countries():
        _add(found, other.names, "country")
    _add(found, country.names, "own")
    _add(found, country.capitals, "right")
    return found


def _add(found: dict[str, Kind], names: Iterable[str], kind: Kind) -> None:
    for name in names:
        found[" ".join(fold(word) for word in WORD.findall(name))] = kind


def fold(word: str) -> str:
    """Get a word in small letters, without accents, apostrophes and a possessive s."""
    word = re.sub(rf"[{APOSTROPHES}]s$", "", word.casefold())
    word = re.sub(rf"[{APOSTROPHES}]", "", word)
    letters = unicodedata.normalize("NFKD", word)
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).translate(LETTERS)


class Text:
    """The words of an answer, and where each one's sentence and scope begin and end."""

    def __init__(self, found: Sequence[Word]) -> None:
        self.words = found
        self.sentences = _spans(found, _ends_sentence)
        self.scopes = _spans(found, lambda before, word: _ends_sentence(before, word) or _ends_scope(word))
        self.mentions = [at for at, word in enumerate(found) if word.kind in ("right", "city")]

    def before(self, at: int, spans: Sequence[range]) -> str:
        """The text of the scope or sentence before a word."""
        return self.text(range(spans[at].start, at))

    def after(self, at: int, spans: Sequence[range]) -> str:
        """The text of the scope or sentence after a word."""
        return self.text(range(at + 1, spans[at].stop))

    def text(self, span: range) -> str:
        """The words of a span, with a space between each two."""
        return " ".join(self.words[at].text for at in span if self.words[at].text)


def _spans(found: Sequence[Word], ends: Callable[[Word, Word], bool]) -> list[range]:
    """Get for each word the span that it belongs to; `ends(before, word)` says where one ends."""
    starts = [at for at in range(len(found)) if at == 0 or ends(found[at - 1], found[at])]
    spans: list[range] = []
    for start, stop in zip(starts, [*starts[1:], len(found)], strict=True):
        spans += [range(start, stop)] * (stop - start)
    return spans


def _ends_sentence(before: Word, word: Word) -> bool:
    is_initial = re.search(r"(?:^|[\W_])[^\W\d_]$", before.original)  # the point in Washington D.C.
    if is_initial and word.gap.startswith(".") and "\n" not in word.gap:
        return False
    return bool(re.search(r"[.!?;\n]", word.gap))


def _ends_scope(word: Word) -> bool:
    return bool(re.search(r"[,:()\[\]\u2013\u2014]|(?:^|\s)-+(?:\s|$)", word.gap)) or word.text in BREAKS
