r"""Reading the numbers that a text names, as a person would.

    $1,234.50   1 234   -5   3/4   18.   18 cm^2   \boxed{18}   1.2 \times 10^3

Decided, because it could be read otherwise:

    1.234        one and 234 thousandths: one point is a decimal point (1.234.567 and 1.234,56 are grouped)
    1,5          two numbers: a comma divides groups of three digits (and 1,00,000, as in India)
    1 234        one number: groups of exactly three digits
    50%          50
    10-12        10 and 12, not minus 12: a sign follows a space, a bracket, `=`, `:` and the like
    2 1/2        two and a half; but 12/25/2020 is no fraction
    3 thousand   3: number words are not read
    cm^2, m2     no number: the digit belongs to a unit or a word
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

MOST_DIGITS = 400
"""A longer number is no answer: a model that cannot stop wrote it."""

MOST_READ = 10_000
"""Characters, from the end, in which the last number is looked for."""

DASH, APOSTROPHE = "-\u2013", "'\u2019"  # as a keyboard has it, and as a typesetter does
NUMBER = re.compile(
    rf"""
    (?:
        (?<![^\s(\[{{=:*~≈,;|_"`>{APOSTROPHE}])(?P<sign>[{DASH}])
      | (?<![^\W_])(?<![0-9]\.)
    )
    (?:
        (?<![0-9]/)(?:(?P<whole>[0-9]+)[ ]+)?(?P<over>[0-9]+)[ ]?/[ ]?(?P<under>0*[1-9][0-9]*)
        (?![0-9/]|\.[0-9])
      | (?P<indian>[0-9]{{1,2}}(?:,[0-9]{{2}})+,[0-9]{{3}}(?:\.[0-9]+)?)(?![0-9])
      | (?P<commas>[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]+)?)(?![0-9])
      | (?P<spaces>[0-9]{{1,3}}(?:[ ][0-9]{{3}}|[{APOSTROPHE}][0-9]{{3}})+(?:\.[0-9]+)?)(?![0-9])
      | (?P<points>[0-9]{{1,3}}(?:\.[0-9]{{3}})+,[0-9]+ | [0-9]{{1,3}}(?:\.[0-9]{{3}}){{2,}})(?![0-9])
      | (?P<plain>[0-9]+(?:\.[0-9]+)? | (?<!\.)\.[0-9]+)(?:[eE](?P<power>[+-]?[0-9]{{1,3}})(?![^\W_]))?
    )
    """,
    re.VERBOSE,
)

TIMES_TEN_TO = (
    r"(?:\s*(?:\u00d7|\\times|\\cdot|\*)\s*|(?<![^\W_])(?<![0-9][.,^]))10\s*\^\s*\{?(-?[0-9]{1,3})\}?"
)
REWRITES = [
    (re.compile(pattern), into)
    for pattern, into in (
        (r"[\u00a0\u2009\u202f]", " "),
        ("\u2212", "-"),
        (r"\\[dt]?frac\s*\{\s*([0-9]+)\s*\}\s*\{\s*([0-9]+)\s*\}", r"\1/\2"),
        (r"\{,\}", ","),  # LaTeX's 1{,}234
        (r"(?<=[0-9])\\[,;:! ](?=[0-9])", ""),  # and its 1\,234
        (r"\\(?=[$%])", ""),
        (TIMES_TEN_TO, r"e\1"),
        (r"(?<![^\W_])e(-?[0-9]{1,3})(?![^\W_])", r"1e\1"),  # a bare 10^3
        (r"(?<=[^\W\d_])\s?\^\s*\{?-?[0-9]+\}?", ""),  # the 2 of cm^2
        (r"\b(?:US|USD|EUR|GBP|CAD|AUD|INR|Rs\.?)\s?(?=[-$€£¥₹0-9.])", " "),
        (r"(?<=-)[$€£¥₹]\s?", ""),
        (r"[$€£¥₹]", " "),
    )
]


@dataclass(frozen=True)
class Number:
    """A number in a text: as it was written, and its value."""

    text: str
    value: Fraction


def last_number(text: str) -> Number | None:
    r"""Get the last number of the last `\boxed{...}` that has one, or else of the whole text."""
    text = text[-MOST_READ:]
    for part in (*reversed(boxed(text)), text):
        matches = [match for match in NUMBER.finditer(_plain(part)) if len(match[0]) <= MOST_DIGITS]
        if matches:
            return Number(matches[-1][0].replace("\u2013", "-"), _value(matches[-1]))
    return None


def number_of(value: Any) -> Number | None:
    """Get the number that an expected answer is: a number, or a text that names one."""
    if isinstance(value, bool) or value is None:
        return None
    return last_number(value if isinstance(value, str) else repr(value))


def boxed(text: str) -> list[str]:
    r"""Get the contents of each LaTeX `\boxed{...}` that is closed, in the order in which they end."""
    found = []
    starts: list[
        int | None
    ] = []  # of each open brace: where a box's contents begin, or none for another brace
    for brace in re.finditer(r"(\\f?box(?:ed)?\s*\{)|[{}]", text):
        if brace[0] != "}":
            starts.append(brace.end() if brace[1] else None)
        elif starts:
            start = starts.pop()
            if start is not None:
                found.append(text[start : brace.start()])
    return found


def _value(match: re.Match[str]) -> Fraction:
    if match["over"]:
        size = int(match["whole"] or 0) + Fraction(int(match["over"]), int(match["under"]))
    elif match["points"]:
        size = Fraction(match["points"].replace(".", "").replace(",", "."))
    else:
        digits = match["indian"] or match["commas"] or match["spaces"] or match["plain"]
        size = Fraction(re.sub(rf"[, {APOSTROPHE}]", "", digits)) * Fraction(10) ** int(match["power"] or 0)
    return -size if match["sign"] else size


def _plain(text: str) -> str:
    """The same text with digits, spaces, signs and powers written in one way, and without currencies."""
    if not text.isascii():
        text = "".join(_plain_character(character) for character in text)
    for pattern, into in REWRITES:
        text = pattern.sub(into, text)
    return text


def _plain_character(character: str) -> str:
    if character.isascii():
        return character
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    form = unicodedata.normalize("NFKC", character)
    return f" {form.replace('⁄', '/')}" if "⁄" in form and form != "⁄" else character  # noqa: RUF001
