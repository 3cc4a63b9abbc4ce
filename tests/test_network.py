"""What a box may reach: how it is said, and what two who say it come to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotswap.contracts.network import CLOSED, OPEN, Network

PATTERNS = [
    "example.org",
    "*.example.org",
    "files.example.org",
    "*.files.example.org",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.2.3",
]
NAMES = [
    "example.org",
    "files.example.org",
    "a.files.example.org",
    "evilexample.org",
    "10.1.2.3",
    "10.2.0.1",
    "11.0.0.1",
]

POLICIES = st.one_of(
    st.just(OPEN), st.just(CLOSED), st.lists(st.sampled_from(PATTERNS), min_size=1).map(Network.parse)
)


@pytest.mark.parametrize(
    ("said", "host", "allowed"),
    [
        ("open", "anything.example", True),
        ("closed", "anything.example", False),
        ("example.org", "Example.ORG.", True),
        ("example.org", "files.example.org", False),
        ("*.example.org", "files.example.org", True),
        ("*.example.org", "example.org", False),
        ("*.example.org", "evilexample.org", False),
        ("example.org, *.example.net", "deb.example.net", True),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("2001:db8::/32", "[2001:db8::1]", True),
        ("10.0.0.0/8", "10.1.2.3.example.org", False),
    ],
)
def test_a_host_is_reached_where_it_is_named(said: str, host: str, allowed: bool) -> None:
    assert Network.parse(said).allows(host) is allowed


@pytest.mark.parametrize(
    "said", ["open,example.org", "pypi org", "http://example.org", "*", "a,,b", "*.*.org", "-x.org"]
)
def test_what_is_no_host_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match="expected open, closed, or a list of hosts"):
        Network.parse(said)


@given(a=POLICIES, b=POLICIES, host=st.sampled_from(NAMES))
def test_the_stricter_of_two_allows_what_both_allow(a: Network, b: Network, host: str) -> None:
    both = a.stricter(b)
    assert both == b.stricter(a)
    assert both.allows(host) == (a.allows(host) and b.allows(host))


@given(policy=POLICIES)
def test_a_policy_is_said_as_it_is_read(policy: Network) -> None:
    assert Network.parse(str(policy)) == policy
