"""The sandbox: which runtime makes its boxes, that the trace says so, and what is said where there is none."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from _kit.evals import evaluate
from _kit.loop import in_loop
from _kit.provider import Provider, say

from hotswap.contracts.environment import Environment
from hotswap.contracts.network import CLOSED
from hotswap.contracts.runtime import Command, Gate, Needs
from hotswap.errors import UsageError
from hotswap.runtimes.bwrap import Bwrap
from hotswap.runtimes.sandbox import Sandbox


async def accept(listener: socket.socket) -> asyncio.AbstractServer:
    return await asyncio.start_server(lambda _reader, writer: writer.close(), sock=listener)


NEEDS = Needs(rollout="r1", gate=Gate("127.0.0.1", 4321, accept), network=CLOSED)


@pytest.fixture
def with_bwrap() -> None:
    try:
        Bwrap().check()
    except UsageError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("with_bwrap")
@in_loop
async def test_bubblewrap_makes_the_box_where_it_is_there_and_the_box_says_so() -> None:
    sandbox = Sandbox()
    sandbox.check()
    assert (sandbox.name, sandbox.closed, sandbox.portable) == ("bwrap", True, False)
    assert not sandbox.policy(Environment()).open
    async with sandbox.box(NEEDS) as box:
        assert box.made.runtime == "bwrap"
        assert (await box.run(Command(argv=("true",)))).exit == 0


@pytest.mark.usefixtures("with_bwrap")
def test_the_trace_names_the_runtime_that_was_used(tmp_path: Path) -> None:
    with Provider(lambda request: say("Paris")) as provider:
        done = evaluate(tmp_path, "capitals", "-m", f"scripted@{provider.url}", "-n", "1", "-r", "sandbox")
    assert done.code == 0, done.stderr
    assert done.traces[0]["cell"]["runtime"] == "sandbox"
    assert (done.traces[0]["box"]["runtime"], done.traces[0]["box"]["network"]) == ("bwrap", "closed")


def test_a_network_that_the_person_chose_and_settings_go_on_to_the_runtime() -> None:
    sandbox = Sandbox(use="bwrap", options={"env": ["A=b"]}, network="example.org")
    assert isinstance(sandbox.inner, Bwrap)
    assert (sandbox.inner.network, sandbox.handed()) == ("example.org", {"A": "b"})
    assert Sandbox(use="bwrap").inner.network == "closed"


def test_what_the_runtime_refuses_the_sandbox_refuses() -> None:
    refused = Sandbox(use="bwrap").refuses(Environment(capabilities=("NET_RAW",)))
    assert refused is not None
    assert "NET_RAW" in refused


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"use": "local"}, "no closed box; choose bwrap or docker"),
        ({"use": "sandbox"}, "no closed box; choose bwrap or docker"),
        ({"use": "no_such"}, "no runtime 'no_such'"),
        ({"use": "bwrap", "options": {"no_such": 1}}, "unknown setting 'no_such'"),
        ({"options": {"env": []}}, "for the runtime named by runtime.sandbox.use"),
    ],
)
def test_a_choice_that_cannot_work_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Sandbox(**settings).check()


def test_where_there_is_none_the_packages_and_the_setting_that_would_give_one_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/no/such")
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.setenv(name, "unix:///no/such/socket" if name == "DOCKER_HOST" else "")
    with pytest.raises(UsageError) as refusal:
        Sandbox().check()
    (line,) = refusal.value.problems
    assert line.startswith("runtime sandbox: no closed box can be had here")
    for words in ("apt-get install bubblewrap", "docker", '[runtime.sandbox] use = "ssh"'):
        assert words in line
