"""A command line becomes settings with their origins."""

from pathlib import Path

import pytest

from hotswap.cli._flags import parse
from hotswap.errors import UsageError


def given(*words: str) -> list[tuple[str, object, str]]:
    return [(item.name, item.value, item.where) for item in parse(words).given]


def test_words_are_tasksets_and_short_flags_are_settings() -> None:
    assert given("gsm8k", "-n", "5", "-mopenai/x", "-k=4", "jsonl", "-H", "loop,tools=bash") == [
        ("taskset", "gsm8k", "command line"),
        ("tasks", "5", "flag -n"),
        ("model", "openai/x", "flag -m"),
        ("attempts", "4", "flag -k"),
        ("taskset", "jsonl", "command line"),
        ("harness", "loop,tools=bash", "flag -H"),
    ]


def test_a_dotted_flag_takes_its_value_beside_it_or_after_an_equals_sign() -> None:
    assert given(
        "--harness.loop.tools", "bash", "--sampling.temperature=0.7", "--models.mine.url=http://h/?a=b"
    ) == [
        ("harness.loop.tools", "bash", "flag --harness.loop.tools"),
        ("sampling.temperature", "0.7", "flag --sampling.temperature"),
        ("models.mine.url", "http://h/?a=b", "flag --models.mine.url"),
    ]


def test_a_quoted_part_of_a_name_may_hold_dots() -> None:
    (item,) = parse(['--models."gpt-4.1".url', "x"]).given
    assert item.key == ("models", "gpt-4.1", "url")


def test_a_negative_number_is_a_value_and_no_option() -> None:
    assert given("-n", "-1", "--sampling.seed", "-2") == [
        ("tasks", "-1", "flag -n"),
        ("sampling.seed", "-2", "flag --sampling.seed"),
    ]


def test_an_empty_value_is_a_value() -> None:
    assert given("--harness.loop.system", "", "--taskset.path=") == [
        ("harness.loop.system", "", "flag --harness.loop.system"),
        ("taskset.path", "", "flag --taskset.path"),
    ]


def test_a_switch_leaves_the_next_word_alone_unless_it_says_true_or_false() -> None:
    assert given("--shuffle", "gsm8k")[0] == ("shuffle", True, "flag --shuffle")
    assert given("--shuffle", "gsm8k")[1][:2] == ("taskset", "gsm8k")
    assert given("--shuffle", "false", "--no-shuffle") == [
        ("shuffle", "false", "flag --shuffle"),
        ("shuffle", False, "flag --no-shuffle"),
    ]


def test_a_parts_flag_without_a_value_is_on() -> None:
    assert given("--taskset.jsonl.ignore_case", "-n", "5")[0][1] is True
    assert given("--taskset.jsonl.ignore_case")[0][1] is True


def test_what_to_do_is_apart_from_the_settings() -> None:
    line = parse(
        ["gsm8k", "-f", "a.toml", "--file=b.toml", "--dry-run", "--json", "--pilot", "3", "--yes", "-h"]
    )
    assert line.files == [Path("a.toml"), Path("b.toml")]
    assert (line.dry_run, line.json, line.pilot, line.yes, line.help) == (True, True, 3, True, True)
    assert [item.name for item in line.given] == ["taskset"]


def test_after_two_dashes_everything_is_a_taskset() -> None:
    assert given("--", "-odd.py")[0][:2] == ("taskset", "-odd.py")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-x"], "no option '-x'. Short ones: -m"),
        (["-model", "x"], "no option -model. Did you mean --model?"),
        (["-file=x.toml"], "no option -file. Did you mean --file?"),
        (["-dry-run"], "no option -dry-run. Did you mean --dry-run?"),
        (["-n"], "-n needs a value: -n TASKS"),
        (["--attempts"], "--attempts needs a value"),
        (["--attempts", "--seed", "1"], "--attempts needs a value"),
        (["--pilot", "0"], "--pilot 0: must be a number of tasks"),
        (["--json=yes"], "--json takes no value"),
        (["-f"], "-f needs a value: -f FILE"),
        (["--a..b", "1"], "'a..b' is no dotted name"),
    ],
)
def test_a_line_that_cannot_be_read_says_what_would_be_right(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words)
    assert said in str(caught.value)
