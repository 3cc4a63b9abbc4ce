"""Which city an answer names as a country's capital: read as a lenient person would, and not more leniently.

Each mention of a city gets a role by the words around it. The answer is right where an accepted name is
`named` and no other city is. A sentence ends at `.!?;` and at a line's end. A scope is a part of one: it ends
at a comma, a colon, a dash, a bracket, or before a "but". A "not" or a "doubt" reaches to the end of its scope.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from hotswap.tasksets._mentions import Text, words
from hotswap.tasksets._places import Country

Role = Literal["named", "beside", "denied", "past", "elsewhere", "withdrawn"]
"""`named`: it stands there as the answer. `beside`: it is there for some other reason ("Sydney is larger").
`denied`: "not Paris". `past`: "formerly Almaty". `elsewhere`: of another country.
`withdrawn`: "Lyon. No, Paris."
"""

REASONS = {
    "denied": "is denied",
    "past": "is called a former capital",
    "elsewhere": "is given to another country",
    "withdrawn": "is withdrawn",
}


MOST_READ = 4_000
"""Characters, from the end, that are read of an answer: time grows with the square of a sentence's length."""


@dataclass(frozen=True)
class Reading:
    """What an answer names, and why it is right or not."""

    right: bool
    note: str | None
    named: str | None
    """As it stands in the answer."""


def read(answer: str, country: Country) -> Reading:
    """Read which city an answer names as the capital of `country`."""
    text = Text(words(answer[-MOST_READ:], country))
    roles = _roles(text)
    right = [at for at in roles if text.words[at].kind == "right"]
    named = [at for at in right if roles[at] == "named"]
    rivals = [text.words[at].original for at in roles if at not in right and roles[at] == "named"]
    if right and roles[right[-1]] in REASONS and roles[right[-1]] != "past":
        named = []  # what is said last of it counts
    if named:
        rivals += _unknown_alternatives(text, named)
        found = text.words[named[-1]].original
        return Reading(False, f"{rivals[0]} is named too", found) if rivals else Reading(True, None, found)
    if rivals or not right:
        other = rivals or [text.words[at].original for at in roles]
        note = f"another city: {other[0]}" if other else "no accepted name of the capital"
        return Reading(False, note, other[0] if other else None)
    return Reading(False, f"{text.words[right[-1]].original} {REASONS[roles[right[-1]]]}", None)


def _set_of(words_in_a_row: str) -> frozenset[str]:
    return frozenset(words_in_a_row.split())


# Roles


def _roles(text: Text) -> dict[int, Role]:
    """Get the role of each mention of a city, by its index among the words."""
    roles: dict[int, Role] = {}
    for number, at in enumerate(text.mentions):
        before = text.mentions[number - 1] if number else None
        own = _marked(text, at)
        if own:
            roles[at] = own
        elif before is not None and _joined(text, before, at):
            roles[at] = _shared(text, roles, before, at)
        elif text.words[at].kind == "right":
            roles[at] = "named"
        else:
            roles[at] = "named" if _is_claim(text, at) else "beside"
    return _after_corrections(text, roles)


def _marked(text: Text, at: int) -> Role | None:
    """The role that the words around a mention give it plainly; null where they give none."""
    if _is_denied(text, at):
        return "denied"
    if _is_past(text, at):
        return "past"
    return "elsewhere" if _is_elsewhere(text, at) else None


NEGATION = re.compile(
    r"\b(?:not|never|neither|nor|cannot|cant|couldnt|isnt|arent|wasnt|werent|dont|doesnt|didnt|wouldnt|wont|aint"
    r"|unlike|(?<!none )other than|rather than|instead of|as opposed to|(?:false|incorrect|wrong) that)\b"
    r"(?! (?:only|just|merely|simply|mistaken|wrong|incorrect|to be confused))"
)
DOUBT = re.compile(
    r"\b(?:doubt|doubts|doubted|doubtful|unlikely)\b"
    r"|\b(?:hardly|scarcely|barely|far from|by no means)(?: (?:be|it|the|city|of))*$"
)
NO_DOUBT = re.compile(
    r"\b(?:(?:no|little|in|(?:without|beyond)(?: an?y?)?"
    r"|(?:not|never|dont|doesnt|didnt|cannot|cant|wouldnt)(?: \w+)?) doubt(?:ed)?"
    r"|(?:nobody|no one|(?:hardly|scarcely|barely) (?:anyone|anybody)) (?:doubts|doubted|would doubt))\b"
)
EXCLUSION = re.compile(r"\banything but(?: (?:it|is|the|city|of))*$")
"""Here a "but" begins no new part of the sentence."""
DOUBTED = r"i (?:(?:highly|really|seriously|strongly|very much) )?doubt (?:it|that)$"
DENIAL = re.compile(
    r"(?:(?:is|was|are|would be|could be) )?(?:(?!hardly|scarcely|barely|unlikely)\w+ly )?"
    r"(?:(?:not|never|isnt|wasnt|cannot be|cant be|wouldnt be|hardly|scarcely|barely)\b(?! only| just)"
    r"(?:$|(?: \w+){0,3} (?:capital|answer|right|correct|true)\b)"
    r"|(?<=is )(?:wrong|incorrect|false|unlikely|doubtful)\b)"
    rf"|{DOUBTED}"
)
REFUSAL = re.compile(rf"(?:no|nope)\b|(?:hardly|scarcely|unlikely|doubtful)$|{DOUBTED}")
TAG_QUESTION = re.compile(r"(?:isnt|wasnt) (?:it|that)\b.{0,8}$")


def _is_denied(text: Text, at: int) -> bool:
    before = text.before(at, text.scopes)
    if any(other in text.scopes[at] for other in text.mentions if other < at):
        before = re.split(r"\band\b", before)[-1]  # "Sydney is not the capital and Canberra is"
    before = NO_DOUBT.sub("", before)
    if NEGATION.search(before) or DOUBT.search(before) or EXCLUSION.search(text.before(at, text.sentences)):
        return True
    if any(DENIAL.match(tail) and not TAG_QUESTION.match(tail) for tail in _tails(text, at)):
        return True
    follows = at + 1
    return "?" in text.words[follows].gap and bool(REFUSAL.match(text.text(text.scopes[follows])))


def _tails(text: Text, at: int) -> Iterator[str]:
    """What the sentence goes on with after a mention: in its own scope, and in each of the next few."""
    yield text.after(at, text.scopes)
    start = text.scopes[at].stop
    for _ in range(3):
        if start >= text.sentences[at].stop:
            return
        yield text.text(text.scopes[start])
        start = text.scopes[start].stop


PAST_BEFORE = re.compile(
    r"\b(?:former|formerly|previously|used to be|(?:old|ancient|historical|first|previous) capital)\b"
    r"(?: \w+){0,4}$"
)
PAST_AFTER = re.compile(r"(?:was|had been) .*\b(?:until|till|before|once|formerly|previously)\b|used to be\b")


def _is_past(text: Text, at: int) -> bool:
    after = text.after(at, text.sentences)
    rival = text.words[at].kind == "city" and re.match(r"(?:was|had been) .*\bcapital\b", after)
    return bool(rival or PAST_BEFORE.search(text.before(at, text.scopes)) or PAST_AFTER.match(after))


LEADS = _set_of(
    "the a an city of town called named probably likely maybe perhaps possibly either definitely "
    "certainly actually currently officially now also in fact beautiful great simply"
)
LINKS = _set_of(
    "is was are be as the its a an official current both also which being and remains became serves"
)
VERBS = frozenset({"is", "was", "be", "are"})
SUBJECTS = frozenset({"capital", "answer", "it", "that", "this", "which"})
OTHER_SUBJECTS = _set_of(
    "largest biggest larger bigger populous second financial economic commercial cultural other"
)


def _is_elsewhere(text: Text, at: int) -> bool:
    """Another country's capital: "Germany's capital is Berlin", "Berlin, the capital of Germany"."""
    verb = _skip_back(text, at, LEADS | VERBS)
    if verb is not None:
        country = verb - 1 if text.words[verb].text == "capital" else verb
        owned = "capital" in (text.words[verb].text, *text.before(country, text.scopes).split()[-4:])
        if owned and country >= text.sentences[at].start and text.words[country].kind == "country":
            return True
    capital = _skip_to_capital(text, at)
    return capital is not None and _is_foreign(text, at, capital)


def _is_foreign(text: Text, at: int, capital: int) -> bool:
    """Whether the words after "capital" say that it is of something else than the country asked about."""
    owner = re.match(r"(?:city )?of (?:the )?", text.after(capital, text.scopes))
    if not owner:
        return False
    start = capital + 1 + len(owner[0].split())
    ahead = [text.words[index] for index in range(start, min(start + 4, text.scopes[capital].stop))]
    kinds = [word.kind for word in ahead if word.kind in ("own", "country")]
    if kinds:
        return kinds[0] == "country"
    return text.words[at].kind == "city" and bool(ahead) and ahead[0].original[:1].isupper()


def _skip_back(text: Text, at: int, skipped: frozenset[str]) -> int | None:
    """Get the nearest word before a mention, in its sentence, that is none of `skipped`."""
    for index in range(at - 1, text.sentences[at].start - 1, -1):
        if text.words[index].text not in skipped:
            return index
    return None


def _skip_to_capital(text: Text, at: int) -> int | None:
    """Get the word "capital" in "Sydney is the official capital" and "Sydney, the capital"."""
    for index in range(at + 1, text.sentences[at].stop):
        if text.words[index].text == "capital":
            return index
        if text.words[index].text not in LINKS:
            return None
    return None


# Cities that are named beside the right one


OPINION = re.compile(r"\b(?:i|id|would) (?:\w+ )?(?:think|believe|guess|say|suppose|mean)(?: (?:it|that))?$")
REPORT = re.compile(r"\b(?:people|many|some|often|commonly|mistaken\w*|mistake|confused|misconception)\b")
JOINS = _set_of(
    "or and nor maybe perhaps possibly also either even probably then the city of in alternatively"
)
HEDGES = JOINS | LEADS | _set_of("i id think believe guess it is its would be could might may answer say")


def _is_claim(text: Text, at: int) -> bool:
    """Whether another city is put forward as the answer, and not only mentioned."""
    if REPORT.search(text.text(text.sentences[at])):
        return False
    return _is_all_names(text, at) or _skip_to_capital(text, at) is not None or _is_stated(text, at)


def _is_all_names(text: Text, at: int) -> bool:
    """Whether the sentence has nothing but names and hedges: "Lyon", "maybe Lyon?", "Rome, Paris"."""
    return all(
        word.kind != "word" or word.text in HEDGES or word.text.isdigit() or not word.text
        for word in (text.words[index] for index in text.sentences[at])
    )


def _is_stated(text: Text, at: int) -> bool:
    """Whether the words before say that this is it: "the capital is Lyon", "it's Lyon", "I think Lyon"."""
    index = _skip_back(text, at, LEADS)
    if index is None:
        return False
    if OPINION.search(text.text(range(text.sentences[at].start, index + 1))):
        return True
    if text.words[index].text in ("it", "that", "capital", "answer"):
        return not OTHER_SUBJECTS & set(text.before(index, text.scopes).split())
    if text.words[index].text in VERBS or ":" in text.words[index + 1].gap:
        subject = text.before(index, text.scopes) or text.before(index, text.sentences)
        words_of_subject = set(f"{subject} {text.words[index].text}".split())
        return bool(SUBJECTS & words_of_subject) and not OTHER_SUBJECTS & words_of_subject
    return False


def _joined(text: Text, before: int, at: int) -> bool:
    """Whether two cities stand in one list, with only commas and words such as "or" between them."""
    between = [text.words[index] for index in range(before + 1, at)]
    return at in text.sentences[before] and all(word.text in JOINS or word.kind == "own" for word in between)


def _shared(text: Text, roles: dict[int, Role], before: int, at: int) -> Role:
    """The role of a mention in a list, from the one before it; "Lyon or Paris" names Lyon too."""
    joint = set(text.text(range(before + 1, at)).split()) | set(text.words[at].gap.strip())
    if text.words[at].kind != "right":
        return roles[before]
    if joint & {"or", "/"} and roles[before] == "beside":
        roles[before] = "named"
    return "denied" if roles[before] == "denied" and joint & {"or", "nor"} else "named"


def _unknown_alternatives(text: Text, named: Sequence[int]) -> list[str]:
    """Names of places that we do not know, offered beside the right one: "Paris or Somewhere"."""
    found = []
    for at in named:
        for step in (1, -1):
            index = at + step
            joint = text.words[index].text if 0 <= index < len(text.words) else ""
            other = text.words[index + step] if 0 <= index + step < len(text.words) else None
            same = other is not None and index + step in text.sentences[at]
            unknown = other and same and other.kind == "word" and other.text not in HEDGES
            if joint == "or" and other and unknown and other.original[:1].isupper():
                found.append(other.original)
    return found


CORRECTION = re.compile(r"(?:or )?(?:actually|no|nope|sorry|wait|correction|rather|oops|i mean)\b")


def _after_corrections(text: Text, roles: dict[int, Role]) -> dict[int, Role]:
    """Withdraw what was named before a correction that names something itself: "Lyon. No, Paris."."""
    starts = sorted({span.start for span in text.scopes})
    for start in starts:
        later = [at for at in roles if at >= start and roles[at] == "named"]
        if later and CORRECTION.match(text.text(text.scopes[start])):
            roles.update((at, "withdrawn") for at in roles if at < start and roles[at] == "named")
    return roles
