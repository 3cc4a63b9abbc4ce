"""The scorers that a taskset can ask for by name: each makes a Score of what was said and what is expected.

Where a list is expected, any one of its values is right (but for `json`, where a list is a value of its own).
What stands between <think> and </think> before the answer was not said to the user, and is left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hotswap.contracts.taskset import Score
from hotswap.errors import UsageError
from hotswap.tasksets._columns import as_text
from hotswap.tasksets._numbers import boxed, last_number, number_of
from hotswap.tasksets._rows import RowError, parse_json

JOINT = r"(?:,|/|\bor\b|\band\b)"
LONE_LETTER = (
    r"(?<![\w'.])([B-HJ-Z])(?![\w'])"  # A and I are words, but not in brackets or in a list of letters
    rf"|\(([AI])\)|\b([AI])(?=\s*{JOINT}\s*[(\[]?[A-Z]\b)|(?<=or )([AI])\b|(?<=and )([AI])\b"
)

SHOWN = 200
"""Characters of an answer that a score quotes."""


@dataclass(frozen=True)
class Options:
    """What a person can set about a scorer."""

    pattern: str | None = None
    ignore_case: bool = False


@dataclass(frozen=True)
class Scorer:
    """A scorer with what it needs: an expected value, and which options mean anything to it."""

    score: Callable[[str, Any, Options], Score]
    check: Callable[[Any, Options], str | None] = lambda expected, options: None  # noqa: ARG005
    """Says what is wrong with an expected value; null where it can be scored against."""
    options: tuple[str, ...] = ()
    needs_answer: bool = True


def said(text: str | None) -> str:
    """Get what the model said to the user: the answer without the thoughts before it, finished or not."""
    rest = (text or "").strip()
    while rest.startswith("<think>"):
        rest = rest.partition("</think>")[2].strip()
    thoughts, end, answer = rest.partition("</think>")  # some templates swallow the tag that opens it
    return answer.strip() if end and "<think>" not in thoughts else rest


def _exact(answer: str, expected: Any, options: Options) -> Score:
    """The whole answer is the expected text; space around it does not count."""
    wanted = [_even(text, options) for text in _accepted(expected)]
    right = _even(answer, options) in wanted
    return Score(
        float(right), None if right else "the answer is not the expected text", answer[:SHOWN], expected
    )


def _contains(answer: str, expected: Any, options: Options) -> Score:
    """The expected text stands in the answer as words of its own: 7 is not in 17 or 7.5."""
    for text in _accepted(expected):
        whole = rf"(?<!\w)(?<![0-9][.,]){re.escape(_even(text, options))}(?!\w)(?![.,][0-9])"
        if _even(text, options) and re.search(whole, _even(answer, options)):
            return Score(1.0, None, text, expected)
    return Score(0.0, "the expected text is not in the answer", None, expected)


def _last_number(answer: str, expected: Any, options: Options) -> Score:  # noqa: ARG001
    """The last number of the answer equals the expected one."""
    found = last_number(answer)
    if found is None:
        return Score(0.0, "no number in the answer", None, expected)
    right = any(
        wanted is not None and wanted.value == found.value for wanted in map(number_of, _listed(expected))
    )
    return Score(float(right), None if right else "the last number is another one", found.text, expected)


def _choice(answer: str, expected: Any, options: Options) -> Score:  # noqa: ARG001
    """The letter that the answer chooses is the expected one."""
    letter = chosen_letter(answer)
    if letter is None:
        return Score(0.0, "no single letter is chosen", None, expected)
    right = letter in [_letter(value) for value in _listed(expected)]
    return Score(float(right), None if right else "another letter is chosen", letter, expected)


def _regex(answer: str, expected: Any, options: Options) -> Score:
    """The pattern's last match, or its group, is the expected text; where none is expected, it matches."""
    pattern = options.pattern if options.pattern is not None else as_text(expected)
    found = list(re.finditer(pattern, answer, _flags(options)))
    if not found:
        return Score(0.0, f"no match of {pattern!r}", None, expected)
    text = found[-1][1] if found[-1].re.groups else found[-1][0]
    if expected is None or options.pattern is None:
        return Score(1.0, None, text, expected)
    right = text is not None and _even(text, options) in [
        _even(wanted, options) for wanted in _accepted(expected)
    ]
    return Score(float(right), None if right else "the matched text is not the expected one", text, expected)


def _json(answer: str, expected: Any, options: Options) -> Score:  # noqa: ARG001
    """The JSON in the answer (all of it, a fenced block, or first to last bracket) equals the expected."""
    try:
        wanted = parse_json(expected) if isinstance(expected, str) else expected
        value = _find_json(answer)
    except RowError as error:
        return Score(0.0, str(error), answer[:SHOWN], expected)
    right = _same_json(value, wanted)
    return Score(float(right), None if right else "another JSON value", value, wanted)


def chosen_letter(answer: str) -> str | None:
    """Get the one capital letter that an answer chooses; null where there is none or more than one."""
    text = re.sub(r"\\(?:text|mathrm|mathbf)\s*\{([^{}]*)\}", r"\1", answer)
    text = boxed(text)[-1] if boxed(text) else text
    text = re.sub(r"[*_`$]", "", text).replace("\u2019", "'")
    text = " ".join(text.split())
    if alone := re.fullmatch(r"[(\[]?([A-Za-z])[)\].:]*", text):
        return alone[1].upper()
    hedge = rf"(?!\s*{JOINT}\s*[(\[]?[A-Z]\b)"
    named = r"(?i:\b(?:answer|choice|option)\b)(?i:\s+(?:is|would\s+be|must\s+be))?(?i:\s+(?:option|choice))?"
    stated = re.findall(rf"{named}\s*[:=]?\s*[(\[]?([A-Z])(?![\w']){hedge}", text)
    if stated and re.search(r"(?i:\banswer\b|\bchoice\b)", text):
        return str(stated[-1])
    if leading := re.match(rf"[(\[]?([A-Z])[)\].:]{hedge}(?=\s)", text):
        return leading[1]
    letters = set(stated) or {"".join(found) for found in re.findall(LONE_LETTER, text)}
    return letters.pop() if len(letters) == 1 else None


def _letter(value: Any) -> str | None:
    """The letter that an expected choice is: a letter in any dress, or a number counted from 0."""
    if isinstance(value, int) and not isinstance(value, bool):
        return chr(ord("A") + value) if 0 <= value < 26 else None
    return chosen_letter(value) if isinstance(value, str) else None


def _listed(expected: Any) -> list[Any]:
    return expected if isinstance(expected, list) else [expected]


def _accepted(expected: Any) -> list[str]:
    return [as_text(value) for value in _listed(expected)]


def _even(text: str, options: Options) -> str:
    text = unicodedata.normalize("NFC", text).strip()
    return text.casefold() if options.ignore_case else text


def _flags(options: Options) -> re.RegexFlag:
    return re.MULTILINE | (re.IGNORECASE if options.ignore_case else re.NOFLAG)


def _find_json(answer: str) -> Any:
    fenced = re.findall(r"```(?:json)?[ \t]*\n(.*?)```", answer, re.DOTALL)
    first = min((answer.find(bracket) for bracket in "{[" if bracket in answer), default=0)
    bracketed = answer[first : max(answer.rfind("}"), answer.rfind("]")) + 1]
    for candidate in (answer, *reversed(fenced), bracketed):
        try:
            return parse_json(candidate.strip())
        except RowError:
            continue
    return parse_json(answer)


def _same_json(one: Any, other: Any) -> bool:
    """Equality of JSON values: 1 equals 1.0, and true is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same_json(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same_json, one, other))
    return bool(one == other)


def _check_number(expected: Any, options: Options) -> str | None:  # noqa: ARG001
    wrong = [value for value in _listed(expected) if number_of(value) is None]
    return f"answer {as_text(wrong[0])!r} names no number" if wrong else None


def _check_choice(expected: Any, options: Options) -> str | None:  # noqa: ARG001
    wrong = [value for value in _listed(expected) if _letter(value) is None]
    return f"answer {as_text(wrong[0])!r} is no letter of a choice" if wrong else None


def _check_regex(expected: Any, options: Options) -> str | None:
    try:
        re.compile(options.pattern if options.pattern is not None else as_text(expected))
    except re.error as error:
        return f"pattern {error.pattern!r} cannot be read: {error}"
    return None


def _check_json(expected: Any, options: Options) -> str | None:  # noqa: ARG001
    try:
        parse_json(expected) if isinstance(expected, str) else None
    except RowError as error:
        return f"answer {expected!r} is {error}"
    return None


SCORERS: Mapping[str, Scorer] = {
    "exact": Scorer(_exact, options=("ignore_case",)),
    "contains": Scorer(_contains, options=("ignore_case",)),
    "last_number": Scorer(_last_number, _check_number),
    "choice": Scorer(_choice, _check_choice),
    "regex": Scorer(_regex, _check_regex, options=("pattern", "ignore_case"), needs_answer=False),
    "json": Scorer(_json, _check_json),
}


def score(name: str, answer: str | None, expected: Any, options: Options | None = None) -> Score:
    """Score what a model said with a scorer by its name; no answer is 0."""
    text = said(answer)
    if not text:
        return Score(0.0, "no answer", None, expected)
    return SCORERS[name].score(text, expected, options or Options())


def check_options(name: str, options: Options, *, has_answer: bool) -> None:
    """Refuse options that a scorer does not take, and a scorer without what it needs. Raises UsageError."""
    scorer = SCORERS[name]
    problems = [
        f"taskset.{option} has no meaning for scorer {name!r}; it is for {_takers(option)}"
        for option in ("pattern", "ignore_case")
        if getattr(options, option) and option not in scorer.options
    ]
    if not has_answer and (scorer.needs_answer or options.pattern is None):
        problems.append(f"scorer {name!r} needs a right answer, and taskset.answer is none")
    if problems:
        raise UsageError(*problems)


def _takers(option: str) -> str:
    return ", ".join(name for name, scorer in SCORERS.items() if option in scorer.options)
