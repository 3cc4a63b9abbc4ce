"""What is kept of an output that was too long: whole words beside the cut."""

from hotswap.contracts.runtime import WORD_LIMIT, Output


def test_an_output_that_was_kept_whole_is_as_it_was() -> None:
    assert bytes(Output(b"ab cd", b"ef gh", 10)) == b"ab cdef gh"


def test_no_word_is_cut_in_two() -> None:
    """Half of a secret would not be recognised, and not be masked."""
    kept = bytes(Output(b"API_KEY=one API_K", b"cret API_KEY=two", 5_000))
    assert kept == b"API_KEY=one \n[... 4976 of 5000 bytes left out ...]\n API_KEY=two"


def test_a_word_without_end_loses_what_may_be_half_a_secret() -> None:
    kept = bytes(Output(b"x" * 3_000, b"z" * 3_000, 10**6))
    rest = 3_000 - WORD_LIMIT
    assert (kept.count(b"x"), kept.count(b"z")) == (rest, rest)
    assert f"{10**6 - 2 * rest} of {10**6} bytes left out".encode() in kept
