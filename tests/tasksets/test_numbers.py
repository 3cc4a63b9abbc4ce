"""Reading numbers as a person does, and what was decided where it could be read otherwise."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotswap.tasksets._numbers import last_number, number_of

READ = {
    "18": "18",
    "18.": "18",
    "18.00": "18",
    "The answer is 18.": "18",
    "18.Therefore": "18",
    "**18**": "18",
    "_18_": "18",
    "(18)": "18",
    "#### 18": "18",
    "16 - 3 - 4 = 9": "9",
    "10 = 5*2": "2",
    "100 eggs": "100",
    "...5": "5",
    ".5": "1/2",
    "$.50": "1/2",
    "1,234": "1234",
    "1,234,": "1234",
    "$1,234.50": "1234.5",
    "1,450,000": "1450000",
    "1,00,000": "100000",
    "1 234": "1234",
    "1\u202f234": "1234",
    "1\u00a0234 567": "1234567",
    "1'234": "1234",
    "1.234": "1.234",
    "1.234.567": "1234567",
    "1.234,56": "1234.56",
    "1,5": "5",
    "1, 2 and 3": "3",
    "-5": "-5",
    "\u22125": "-5",
    "\u20135": "-5",
    "= -5": "-5",
    "=-5": "-5",
    "**-18**": "-18",
    "(-18)": "-18",
    "-$18": "-18",
    "$-18": "-18",
    "= -$1,234": "-1234",
    "- 18": "18",
    "10-12": "12",
    "10\u201312": "12",
    "5 - 3": "3",
    "$18": "18",
    "18$": "18",
    "18 \u20ac": "18",
    "\u20ac18": "18",
    "US$18": "18",
    "USD 18": "18",
    "18 USD": "18",
    "Rs500": "500",
    "Rs. 500": "500",
    "$5/hour": "5",
    "50%": "50",
    r"50\%": "50",
    "18km": "18",
    "18 cm^2": "18",
    "18 m^{2}": "18",
    "18 m\u00b2": "18",
    "18 m2": "18",
    "H2O": None,
    "x1": None,
    "3/4": "3/4",
    "3 / 4": "3/4",
    "2 1/2": "5/2",
    "-1/2": "-1/2",
    "\u00bd": "1/2",
    "1\u00bd": "3/2",
    "1/0": "0",
    "12/25/2020": "2020",
    r"\frac{3}{4}": "3/4",
    r"-\frac{1}{2}": "-1/2",
    r"\dfrac{10}{4}": "5/2",
    r"\boxed{18}": "18",
    r"\boxed{18} because 3 + 15": "18",
    r"\boxed{\frac{1}{2}}": "1/2",
    r"\boxed{\text{none}}, so 7": "7",
    r"\boxed{3}, no: \boxed{4}": "4",
    r"1{,}234": "1234",
    r"1\,234": "1234",
    r"$x = -18$": "-18",
    r"\$18": "18",
    "1e3": "1000",
    "1.5e-3": "0.0015",
    "10^3": "1000",
    "1.2 \u00d7 10^3": "1200",
    r"1.2 \times 10^{3}": "1200",
    "2 * 10^-2": "1/50",
    "2^3": "3",
    "\u0661\u0662": "12",
    "\uff11\uff18": "18",
    "3 thousand": "3",
    "eighteen": None,
    "": None,
    "no number here": None,
}


@pytest.mark.parametrize("text", READ)
def test_a_number_is_read_as_a_person_reads_it(text: str) -> None:
    found = last_number(text)
    wanted = READ[text]
    assert (None if found is None else found.value) == (None if wanted is None else Fraction(wanted))


decimals = st.decimals(min_value=-(10**15), max_value=10**15, allow_nan=False, allow_infinity=False, places=2)


@given(
    decimals,
    st.sampled_from(
        ["{}", "${}", "It is {}.", "= {}", "({})", "**{}**", "5 and 6, so {} eggs", r"\boxed{{{}}}"]
    ),
)
def test_any_number_is_read_back_with_and_without_separators(value: object, sentence: str) -> None:
    for form in (f"{value:f}", f"{value:,f}"):
        found = last_number(sentence.format(form))
        assert found is not None
        assert found.value == Fraction(str(value))


@given(st.integers(-(10**30), 10**30))
def test_any_expected_number_equals_its_own_text(value: int) -> None:
    spaced = f"{value:,}".replace(",", " ")
    assert {
        number.value for number in (number_of(value), number_of(str(value)), number_of(spaced)) if number
    } == {value}


@given(st.text())
def test_no_text_is_too_odd_to_read(text: str) -> None:
    last_number(text)
    last_number(text + "\\frac{1}{2} -$1,2" + text)


@pytest.mark.parametrize(
    "text",
    [
        "1" * 200_000,
        "5" + " " * 200_000 + "6",
        "1 " * 100_000,
        "1,234" * 40_000,
        "-" * 200_000,
        "\\boxed{" * 20_000,
        "1/" * 90_000,
    ],
)
def test_a_model_that_cannot_stop_is_read_in_bounded_time(text: str) -> None:
    started = time.process_time()
    last_number(text)
    assert time.process_time() - started < 5


def test_a_number_of_more_digits_than_any_answer_is_none() -> None:
    assert last_number("7" * 5_000) is None
    assert last_number("1e999") is not None


@pytest.mark.parametrize("value", [True, None, "words", [], {}])
def test_what_names_no_number_is_no_number(value: object) -> None:
    assert number_of(value) is None


def test_a_number_remembers_how_it_was_written() -> None:
    found = last_number("so -1,234.50 in all")
    assert found is not None
    assert found.text == "-1,234.50"
