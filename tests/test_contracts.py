"""What an author hands over is refused where it could not be started, with what would be right."""

from typing import Any

import pytest

from hotswap.contracts.harness import Launch
from hotswap.contracts.runtime import Command


@pytest.mark.parametrize("kind", [Launch, Command])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"argv": "echo hi"}, "(argv='echo hi'): a tuple of words is wanted, as ('echo', 'hi')"),
        ({"argv": ("echo", 3)}, "(argv=...) has 3 in it: a tuple of words is wanted, each of them text"),
        ({"argv": ("cat",), "stdin": "hi"}, "(stdin='hi'): bytes are wanted, as text.encode() gives them"),
    ],
)
def test_what_is_no_tuple_of_words_and_bytes_is_refused_and_the_right_form_is_shown(
    kind: type, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError) as caught:
        kind(**given)
    assert str(caught.value) == f"{kind.__name__}{said}"
