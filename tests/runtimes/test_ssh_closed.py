"""Closed boxes on another machine, by its bubblewrap: the whole contract, and what cannot be reached from inside."""

import asyncio
import importlib.util
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _kit.evals import evaluate
from _kit.loop import in_loop
from _kit.provider import Provider, call_tool, say
from _kit.sshd import SSHD, Sshd

from hotswap.contracts.environment import Environment
from hotswap.contracts.runtime import Box, Command, File
from hotswap.errors import Fault, UsageError
from hotswap.runtimes.sandbox import Sandbox
from hotswap.runtimes.ssh import Ssh

pytestmark = pytest.mark.skipif(
    SSHD is None or not shutil.which("bwrap"), reason="sshd or bubblewrap is not installed"
)


def _contract() -> Any:
    """The suite that every runtime in the registry is held against."""
    spec = importlib.util.spec_from_file_location("contract", Path(__file__).with_name("test_contract.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


contract = _contract()
globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})
opened, said = contract.opened, contract.said


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("closed") / "far") as started:
        yield started


@pytest.fixture
def runtime(sshd: Sshd) -> Ssh:
    made = Ssh(**sshd.settings, inside="bwrap")
    made.check()
    return made


async def status(box: Box, script: str) -> int | None:
    return (await box.run(Command(argv=("sh", "-c", script)))).exit


CONNECT = """python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)' """


@in_loop
async def reach(runtime: Ssh) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        async with opened(runtime) as box:
            port = box.url.rpartition(":")[2]
            assert await status(box, f"{CONNECT} 127.0.0.1 {port}") == 0
            for host, at in (
                ("127.0.0.1", other.getsockname()[1]),
                ("127.0.0.1", 22),
                ("169.254.169.254", 80),
            ):
                assert await status(box, f"{CONNECT} {host} {at} 2>/dev/null") != 0
            assert await status(box, f"{CONNECT} example.com 80 2>/dev/null") != 0
            assert (await said(box, "ls /sys/class/net 2>/dev/null || echo none")).strip() in ("lo", "none")


def test_only_the_proxy_answers(runtime: Ssh) -> None:
    reach(runtime)


def test_two_boxes_have_doors_of_their_own_and_that_of_one_leads_nowhere_from_the_other(runtime: Ssh) -> None:
    async def play() -> None:
        held = runtime.running(lambda _line: None)
        async with held, opened(runtime) as one, opened(runtime, rollout="r2") as two:
            own, other = (box.url.rpartition(":")[2] for box in (one, two))
            assert await status(one, f"{CONNECT} 127.0.0.1 {own}") == 0
            if own != other:
                assert await status(one, f"{CONNECT} 127.0.0.1 {other} 2>/dev/null") != 0

    asyncio.run(play())


def test_large_bodies_pass_the_door_both_ways(runtime: Ssh) -> None:
    """What stands for the provider is told two megabytes, and answers with two."""
    script = """
import http.client, os, sys
host, port = os.environ["URL"].removeprefix("http://").split(":")
connection = http.client.HTTPConnection(host, int(port))
connection.request("POST", "/", b"x" * (2 << 20))
print(len(connection.getresponse().read()))
"""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(2 << 20)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    async def accept(listener: socket.socket) -> asyncio.AbstractServer:
        return await asyncio.start_server(echo, sock=listener)

    async def play() -> None:
        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            gate = contract.Gate("127.0.0.1", server.sockets[0].getsockname()[1], accept)
            needs = contract.Needs(rollout="r", gate=gate, network=runtime.policy(Environment()))
            async with runtime.box(needs) as box:
                await box.put({"post.py": File(script.encode())})
                result = await box.run(Command(argv=("python3", "post.py"), env={"URL": box.url}))
        assert (result.stdout.text, result.stderr.text) == (f"{2 << 20}\n", "")

    asyncio.run(play())


def test_nothing_of_the_machine_and_nothing_of_its_user_is_seen(runtime: Ssh, sshd: Sshd) -> None:
    (sshd.home / "private").write_text("private")

    async def play() -> None:
        async with opened(runtime) as box:
            assert await status(box, f"cat {sshd.home}/private 2>/dev/null") != 0
            assert await said(box, "ls -A /home /root 2>/dev/null; ls /run") == "/home:\nagent\n"
            assert await status(box, "touch /usr/x 2>/dev/null || touch /etc/x 2>/dev/null") != 0
            assert int(await said(box, "ls -d /proc/[0-9]* | wc -l")) < 10

    asyncio.run(play())


def test_its_first_process_cannot_be_killed_or_looked_into_from_inside(runtime: Ssh) -> None:
    async def play() -> None:
        async with opened(runtime) as box:
            await status(box, "kill -9 1; kill -STOP 1")
            assert await status(box, "readlink /proc/1/fd/0 2>/dev/null") != 0
            assert await status(box, "head -c 1 /proc/1/mem 2>&1 | grep -q 'Permission denied'") == 0
            assert await said(box, "echo here") == "here\n"

    asyncio.run(play())


def test_an_open_network_is_given_where_it_is_asked_for(sshd: Sshd) -> None:
    async def play() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            async with opened(Ssh(**sshd.settings, inside="bwrap", network="open")) as box:
                assert await status(box, f"{CONNECT} 127.0.0.1 {other.getsockname()[1]}") == 0

    asyncio.run(play())


def test_what_it_holds_and_what_it_does_not_is_said_before_a_run(sshd: Sshd) -> None:
    ssh = Ssh(**sshd.settings, inside="bwrap")
    assert ssh.closed
    assert str(ssh.policy(Environment())) == "closed"
    assert ssh.refuses(Environment(network="closed")) is None
    assert "network example.org" in (ssh.refuses(Environment(network="example.org")) or "")
    with pytest.raises(UsageError, match="ssh cannot hold it"):
        Ssh(**sshd.settings, inside="bwrap", network="example.org").check()
    with pytest.raises(UsageError, match="inside"):
        Ssh(**sshd.settings, inside="docker")


def test_the_sandbox_can_be_a_closed_box_of_another_machine_and_never_an_open_one(sshd: Sshd) -> None:
    with pytest.raises(UsageError, match=r"use = ssh: its boxes are not closed.*inside"):
        Sandbox(use="ssh", options=sshd.settings).check()
    sandbox = Sandbox(use="ssh", options={**sshd.settings, "inside": "bwrap"})
    sandbox.check()

    async def play() -> None:
        async with opened(sandbox) as box:
            assert box.made.runtime == "ssh"
            assert await said(box, "pwd") == "/workspace\n"

    asyncio.run(play())


def test_a_machine_without_bubblewrap_is_refused_before_a_run(tmp_path: Path) -> None:
    async def begin_run(ssh: Ssh) -> None:
        async with ssh.running(lambda _line: None):
            raise AssertionError("it connected")

    (tmp_path / "uname").symlink_to(str(shutil.which("uname")))
    lacking = pytest.raises(UsageError, match="far has no closed boxes: bubblewrap is not installed there")
    with Sshd(tmp_path / "far", environment={"PATH": str(tmp_path)}) as sshd, lacking:
        asyncio.run(begin_run(Ssh(**sshd.settings, inside="bwrap")))


def test_a_box_that_bubblewrap_cannot_make_is_blamed_on_the_runtime_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "bwrap").write_text(
        "#!/bin/sh\ncase $* in *--hostname*) echo 'no namespaces today' >&2; exit 1;; esac\n"
    )
    (fake / "bwrap").chmod(0o755)

    async def play() -> None:
        with Sshd(tmp_path / "far", environment={"PATH": f"{fake}:/usr/bin:/bin"}) as sshd:
            with pytest.raises(Fault, match="could not make a box: no namespaces today") as caught:
                async with opened(Ssh(**sshd.settings, inside="bwrap")):
                    raise AssertionError("it was made")
            assert caught.value.record.blame == "runtime"
            assert list(sshd.root.iterdir()) == []

    asyncio.run(play())


def test_the_loop_plays_in_a_closed_box_of_another_machine(sshd: Sshd, tmp_path: Path) -> None:
    others = set(
        sshd.root.iterdir()
    )  # a test that kills what holds a box leaves its folder, for `eval clean`
    with Provider(call_tool("bash", {"command": "pwd; ls /home"}), say("42")) as provider:
        flags = [*sshd.flags, "--runtime.ssh.inside", "bwrap", "-H", "loop,tools=bash"]
        done = evaluate(tmp_path, "reverse_text", "-n", "1", *flags, "-m", f"s@{provider.url}")
        told = provider.requests[1].json["messages"][-1]["content"]
    assert done.code == 0, done.stderr
    assert "/workspace\nagent" in told
    (trace,) = done.traces
    assert trace["box"]["network"] == "closed"
    assert set(sshd.root.iterdir()) <= others
