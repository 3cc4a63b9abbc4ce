"""What every runtime does alike. Runs over all that this machine can provide; the others are skipped by name.

Settings that a runtime needs here come from HOTSWAP_TEST_RUNTIMES, as JSON: `{"docker": {"image": "..."}}`. The
programs are `sh` and what POSIX puts beside it: a box need not have anything else.
"""

import asyncio
import functools
import inspect
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from hotswap import registry
from hotswap.contracts.environment import Environment
from hotswap.contracts.runtime import Box, Command, File, Gate, Needs, PathError, Process, Result, Runtime
from hotswap.errors import Fault, UsageError

SLOW = pytest.mark.skipif(
    not os.environ.get("HOTSWAP_TEST_SLOW"), reason="takes minutes: HOTSWAP_TEST_SLOW=1 runs it"
)
HTTP = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nproxy"


def provided(name: str) -> Runtime:
    """The runtime of a name, or a skip that says why this machine has none."""
    settings = json.loads(os.environ.get("HOTSWAP_TEST_RUNTIMES", "{}")).get(name, {})
    try:
        runtime: Any = registry.load(registry.entries("runtime")[name])(**settings)
        runtime.check()
    except UsageError as error:
        pytest.skip(f"{name}: {error}")
    assert isinstance(runtime, Runtime)
    return runtime


@pytest.fixture(params=sorted(registry.names("runtime")))
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return provided(request.param)


@asynccontextmanager
async def gate() -> AsyncIterator[Gate]:
    """What stands for the proxy: it answers each request with one word."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HTTP)
        await writer.drain()
        writer.close()

    async def accept(listener: socket.socket) -> asyncio.AbstractServer:
        return await asyncio.start_server(answer, sock=listener)

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield Gate("127.0.0.1", server.sockets[0].getsockname()[1], accept)


@asynccontextmanager
async def opened(runtime: Runtime, *mounts: Path, rollout: str = "r1") -> AsyncIterator[Box]:
    nothing = Environment()
    await runtime.prepare(nothing, lambda _line: None)
    async with gate() as proxy:
        needs = Needs(rollout=rollout, gate=proxy, mounts=mounts, network=runtime.policy(nothing))
        async with runtime.box(needs) as box:
            yield box


def in_box(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in a box of each runtime."""

    def run(runtime: Runtime, **rest: Any) -> None:
        async def play() -> None:
            async with opened(runtime) as box:
                await test(box, **rest)

        asyncio.run(play())

    _box, *others = inspect.signature(test).parameters.values()
    runtime = inspect.Parameter("runtime", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    functools.update_wrapper(run, test)
    run.__signature__ = inspect.Signature([runtime, *others])  # type: ignore[attr-defined]
    return run


async def shell(box: Box, script: str, **rest: Any) -> Result:
    return await box.run(Command(argv=("sh", "-c", script), **rest))


async def said(box: Box, script: str, **rest: Any) -> str:
    """What a script prints; it must succeed, silently."""
    result = await shell(box, script, **rest)
    assert (result.exit, result.stderr.text) == (0, "")
    return result.stdout.text


async def line(process: Process) -> str:
    """The first line that a process says."""
    text = b""
    async for data in process.output():
        text += data
        if b"\n" in text:
            break
    return text.partition(b"\n")[0].decode()


async def is_running(box: Box, pid: str) -> bool:
    return (await shell(box, f"kill -0 {pid}")).exit == 0


# Commands.


@in_box
async def test_a_command_gives_both_outputs_and_its_exit_code(box: Box) -> None:
    result = await shell(box, "echo out; echo err >&2; exit 7")
    assert (result.exit, result.signal, result.ended_by) == (7, None, "itself")
    assert (bytes(result.stdout), bytes(result.stderr)) == (b"out\n", b"err\n")


@in_box
async def test_a_signal_that_ended_a_command_is_named(box: Box) -> None:
    result = await shell(box, "kill -9 $$")
    assert (result.exit, result.signal) == (None, 9)


@in_box
async def test_a_program_that_is_not_there_exits_with_127_and_says_so(box: Box) -> None:
    result = await box.run(Command(argv=("no-such-program",)))
    assert result.exit == 127
    assert "no-such-program" in result.stderr.text


@in_box
async def test_a_file_that_cannot_be_executed_exits_with_126(box: Box) -> None:
    await box.put({"plain": File(b"no program", 0o644)})
    assert (await box.run(Command(argv=(f"{box.workdir}/plain",)))).exit == 126


@in_box
async def test_arguments_arrive_as_they_are(box: Box) -> None:
    odd = ("", " ", "a b", "'\"", "$HOME `id`", "line\nline", "-n", "é日本", "\\", "*")
    result = await box.run(Command(argv=("sh", "-c", 'for a; do printf "%s\\0" "$a"; done', "sh", *odd)))
    assert bytes(result.stdout) == b"".join(word.encode() + b"\0" for word in odd)


@in_box
async def test_bytes_that_are_no_text_go_in_and_out_unchanged(box: Box) -> None:
    data = b"caf\xe9 \xff\xfe\x00 end\n\x1b[31mred\r" + bytes(range(256)) * 100
    assert bytes((await box.run(Command(argv=("cat",), stdin=data))).stdout) == data


@in_box
async def test_fifty_megabytes_go_in_and_out(box: Box) -> None:
    data = os.urandom(1 << 20) * 50
    result = await box.run(Command(argv=("cat",), stdin=data, output_limit=len(data)))
    assert bytes(result.stdout) == data


@in_box
async def test_of_too_much_output_the_beginning_and_the_end_are_kept_and_the_size_is_known(box: Box) -> None:
    script = "echo first; head -c 5000000 /dev/zero; echo last"
    output = (await shell(box, script, output_limit=1000)).stdout
    assert output.size == 5_000_011
    assert (len(output.head), len(output.tail)) == (500, 500)
    assert output.head.startswith(b"first\n")
    assert output.tail.endswith(b"last\n")


@in_box
async def test_standard_input_is_at_its_end_unless_something_is_given(box: Box) -> None:
    assert await said(box, 'extra=$(cat); echo "${#extra}"') == "0\n"


@in_box
async def test_streams_flow_while_the_process_runs(box: Box) -> None:
    process = await box.start(Command(argv=("cat",), stdin=b""))
    stream = process.output()
    for word in (b"one\n", b"two\n"):
        await process.send(word)
        assert await anext(stream) == word
    await process.send(None)
    assert (await process.wait()).exit == 0


@in_box
async def test_a_result_can_be_awaited_twice(box: Box) -> None:
    process = await box.start(Command(argv=("true",)))
    assert await process.wait() == await process.wait()


# Where a command runs.


@in_box
async def test_the_working_directory_is_the_boxs_unless_another_is_named(box: Box) -> None:
    await box.put({"sub folder/file": File(b"")})
    assert await said(box, "pwd; ls") == f"{box.workdir}\nsub folder\n"
    assert await said(box, "pwd; ls", cwd="sub folder") == f"{box.workdir}/sub folder\nfile\n"
    assert await said(box, "pwd", cwd="/") == "/\n"
    assert (await shell(box, "pwd", cwd="missing")).exit in (126, 127)


@in_box
async def test_home_and_the_folder_for_temporary_files_are_the_boxs_own_and_can_be_written(box: Box) -> None:
    name = f"hotswap-{os.urandom(6).hex()}"
    script = 'echo "$HOME"; touch "$HOME/$NAME" "${TMPDIR:-/tmp}/$NAME"'
    assert await said(box, script, env={"NAME": name}) == f"{box.home}\n"
    assert not (Path.home() / name).exists()
    assert not Path(box.home).is_relative_to(box.workdir)


@in_box
async def test_a_commands_variables_come_on_top_of_the_boxs(box: Box) -> None:
    assert await said(box, 'echo "$A,$HOME,${PATH:+path}"', env={"A": "é = 1"}) == f"é = 1,{box.home},path\n"
    assert await said(box, 'echo "$HOME"', env={"HOME": "/elsewhere"}) == "/elsewhere\n"


def test_no_key_and_no_proxy_of_ours_is_in_a_boxs_environment(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {
        "OPENAI_API_KEY": "sk-1",
        "GITHUB_TOKEN": "gh-1",
        "HTTPS_PROXY": "http://p:1",
        "http_proxy": "http://p:1",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)

    async def play() -> None:
        async with opened(runtime) as box:
            names = {entry.partition("=")[0] for entry in (await said(box, "env")).splitlines()}
            assert not names & secrets.keys()

    asyncio.run(play())


@in_box
async def test_the_proxy_is_reached_at_the_boxs_url(box: Box) -> None:
    script = """
        if command -v curl >/dev/null; then curl -s "$URL/x"
        elif command -v python3 >/dev/null; then
            python3 -c 'import os, urllib.request as u; print(u.urlopen(os.environ["URL"]).read().decode())'
        elif command -v wget >/dev/null; then wget -q -O - "$URL/x"
        else echo "no client"; fi
    """
    answer = (await said(box, script, env={"URL": box.url})).strip()
    if answer == "no client":
        pytest.skip("the box has no HTTP client")
    assert answer == "proxy"


def test_mounted_folders_are_readable_where_the_box_says(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "deep folder").mkdir()
    (tmp_path / "deep folder" / "file").write_text("mounted")

    async def play() -> None:
        async with opened(runtime, tmp_path) as box:
            inside = box.locate(tmp_path / "deep folder" / "file")
            assert await said(box, 'cat "$F"', env={"F": inside}) == "mounted"

    asyncio.run(play())


# Files.

NAMES = (
    "plain",
    "with space",
    "ünïcode 日本",
    "-dash",
    "new\nline",
    "a/b/c/deep",
    ".hidden",
    "x" * 200,
    "per%cent",
)


@in_box
async def test_files_of_any_name_come_back_as_they_were_put(box: Box) -> None:
    files = {name: File(name.encode() + b"\0\xff", 0o640) for name in NAMES}
    await box.put(files)
    assert await box.get(NAMES) == files
    assert await said(box, 'cat "./with space"') == "with space\0\ufffd"


@in_box
async def test_modes_count(box: Box) -> None:
    await box.put({"run": File(b"#!/bin/sh\necho ran\n", 0o755)})
    assert await said(box, "./run") == "ran\n"
    await shell(box, "echo x > made; chmod 600 made")
    assert (await box.get(["made"]))["made"] == File(b"x\n", 0o600)


@in_box
async def test_files_can_be_put_into_the_home_folder(box: Box) -> None:
    path = f"{box.home}/.config/program/settings"
    await box.put({path: File(b"here")})
    assert await said(box, 'cat "$HOME/.config/program/settings"') == "here"
    assert (await box.get([path]))[path].content == b"here"


@in_box
async def test_a_file_is_replaced(box: Box) -> None:
    await box.put({"file": File(b"long before", 0o400)})
    await box.put({"file": File(b"after", 0o600)})
    assert await box.get(["file"]) == {"file": File(b"after", 0o600)}


@in_box
async def test_fifty_megabytes_are_put_and_got(box: Box) -> None:
    data = os.urandom(1 << 20) * 50
    await box.put({"large": File(data)})
    assert (await box.get(["large"]))["large"].content == data


@in_box
async def test_a_file_that_is_not_there_is_left_out(box: Box) -> None:
    await box.put({"here": File(b"")})
    assert list(await box.get(["here", "missing", "missing/deeper", "here/below a file"])) == ["here"]


@pytest.mark.parametrize("path", ["x" * 300, "nul\0", "folder", "pipe", "loop"])
@in_box
async def test_what_is_no_regular_file_and_what_cannot_be_a_name_is_refused(box: Box, path: str) -> None:
    await shell(box, "mkdir folder; mkfifo pipe; ln -s loop loop")
    with pytest.raises(PathError, match=path[:3]):
        await box.get([path])


@pytest.mark.parametrize("path", ["x" * 300, "nul\0", "folder"])
@in_box
async def test_a_file_that_cannot_be_written_is_refused(box: Box, path: str) -> None:
    await shell(box, "mkdir -p folder/full")
    with pytest.raises(PathError, match=path[:3]):
        await box.put({path: File(b"")})
    assert await said(box, "ls -A") == "folder\n"


def test_links_that_lead_outside_are_neither_read_nor_written_through(
    runtime: Runtime, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("untouched")

    async def play() -> None:
        async with opened(runtime) as box:
            await shell(box, f"ln -s {tmp_path}/secret link; ln -s {tmp_path} folder; ln -s link again")
            for path in ("link", "again", "folder/secret"):
                found: Mapping[str, File] = {}
                try:
                    found = await box.get([path])
                except PathError:
                    continue
                assert not found  # in a file system of its own, the link leads nowhere
            await box.put({"link": File(b"inside")})
            assert (await box.get(["link"]))["link"].content == b"inside"
            with suppress(PathError):
                await box.put({"folder/secret": File(b"written"), "folder/new": File(b"written")})

    asyncio.run(play())
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
    assert (tmp_path / "secret").read_text() == "untouched"


# Ends.


@pytest.mark.parametrize("limits", [(0.5, 1), pytest.param((59, 61), marks=SLOW)], ids=["short", "long"])
@in_box
async def test_a_time_limit_ends_the_command_and_says_so(box: Box, limits: tuple[float, ...]) -> None:
    """Side by side: a limit that ended more than its own command would be seen."""
    endless = [shell(box, "trap '' TERM; sleep 1000 & sleep 1000", timeout_s=limit) for limit in limits]
    for limit, result in zip(limits, await asyncio.gather(*endless), strict=True):
        assert (result.exit, result.ended_by) == (None, "timeout")
        assert limit <= result.elapsed_s < limit + 10


@in_box
async def test_a_command_after_one_that_ran_out_of_time_works(box: Box) -> None:
    await shell(box, "sleep 1000", timeout_s=0.01)
    assert await said(box, "echo still here") == "still here\n"
    assert await box.alive()


@in_box
async def test_a_child_that_keeps_the_output_open_does_not_hold_up_the_result(box: Box) -> None:
    result = await shell(box, "sleep 1000 & echo done")
    assert (bytes(result.stdout), result.exit) == (b"done\n", 0)
    assert result.elapsed_s < 100


@in_box
async def test_ending_a_process_ends_all_that_it_started_and_nothing_else(box: Box) -> None:
    script = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & wait; wait"
    first, other = [await box.start(Command(argv=("sh", "-c", script))) for _ in range(2)]
    pid, other_pid = await line(first), await line(other)
    await first.end()
    result = await first.wait()
    assert (result.signal, result.ended_by) == (9, "us")
    assert not await is_running(box, pid)
    assert await is_running(box, other_pid)


@in_box
async def test_what_the_program_left_running_is_gone_before_grading(box: Box) -> None:
    script = "(trap '' TERM HUP; while :; do sleep 1; done) >/dev/null 2>&1 & echo $!"
    pid = (await said(box, script)).strip()
    running = await box.start(Command(argv=("sh", "-c", "echo ready; sleep 1000")))
    assert await line(running) == "ready"
    assert await is_running(box, pid)
    await box.end_processes()
    assert not await is_running(box, pid)
    assert (await running.wait()).ended_by == "us"
    await box.end_processes()
    assert await said(box, "echo grading") == "grading\n"


@in_box
async def test_a_cancelled_run_ends_its_process_first(box: Box) -> None:
    await shell(box, "mkfifo ready")
    run = asyncio.create_task(shell(box, "echo $$ > ready; exec sleep 1000"))
    pid = (await said(box, "cat ready")).strip()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not await is_running(box, pid)


# Two boxes.


def test_two_boxes_have_nothing_in_common(runtime: Runtime) -> None:
    async def play() -> None:
        async with opened(runtime, rollout="r1") as one, opened(runtime, rollout="r2") as two:
            for number, box in enumerate((one, two)):
                await box.put({"file": File(b"%d" % number), f"{box.home}/file": File(b"%d" % number)})
            assert await said(one, 'cat file "$HOME/file"') == "00"
            assert await said(two, 'cat file "$HOME/file"') == "11"
            running = await two.start(Command(argv=("sh", "-c", "echo ready; cat"), stdin=b""))
            assert await line(running) == "ready"
            await one.end_processes()
            await running.send(None)
            assert (await running.wait()).ended_by == "itself"

    asyncio.run(play())


def test_a_closed_box_sees_nothing_of_another_and_nothing_of_ours(runtime: Runtime, tmp_path: Path) -> None:
    if not runtime.closed:
        assert "no security boundary" in (type(runtime).__doc__ or "")
        return
    (tmp_path / "ours").write_text("ours")
    ours = socket.socket(socket.AF_UNIX)
    ours.bind(str(tmp_path / "socket"))
    unseen = f"hotswap-{os.urandom(4).hex()}"
    abstract = socket.socket(socket.AF_UNIX)
    if sys.platform == "linux":
        abstract.bind(f"\0{unseen}")

    async def play() -> None:
        async with opened(runtime, rollout="r1") as one, opened(runtime, rollout="r2") as two:
            await one.put({"one-alone": File(b"")})
            running = await one.start(
                Command(argv=("sh", "-c", "echo ready; cat # seen-of-one"), stdin=b"", env={"SEEN": unseen})
            )
            assert await line(running) == "ready"
            assert await said(two, "ls -A; find / -name one-alone 2>/dev/null || true") == ""
            assert await said(two, "find / -type s 2>/dev/null || true") == ""
            assert (await shell(two, f"cat {tmp_path}/ours")).exit != 0
            everyones = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; true"
            seen = await said(one, everyones)
            assert "seen-of-one" in seen
            assert unseen in seen
            seen = await said(two, everyones)
            assert "seen-of-one" not in seen
            assert unseen not in seen
            assert unseen not in (await shell(two, "cat /proc/net/unix")).stdout.text

    with ours, abstract:
        asyncio.run(play())


# The network, closed.

CONNECT = """
if command -v python3 >/dev/null; then
    python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()' "$@"
elif command -v bash >/dev/null; then bash -c 'exec 3<>"/dev/tcp/$1/$2"' bash "$@"
else nc -w 3 "$@" </dev/null
fi
"""


async def connects(box: Box, host: str, port: int) -> bool:
    """Whether a program in the box can connect; what does not say so in time cannot."""
    argv = ("sh", "-c", CONNECT, "sh", host, str(port))
    return (await box.run(Command(argv=argv, timeout_s=5))).exit == 0


def closed(runtime: Runtime) -> Runtime | None:
    """The same runtime with its network closed; null where it refuses that, as it then must."""
    shut = type(runtime)(**{**runtime.settings, "network": "closed"})
    try:
        shut.check()
    except UsageError as error:
        return None if "closed" in str(error) else pytest.fail(str(error))
    return shut


def own_addresses() -> set[str]:
    """The addresses of this machine, those of bridges to containers among them."""
    found = psutil.net_if_addrs().values()
    return {each.address for several in found for each in several if each.family == socket.AF_INET}


def test_in_a_closed_network_the_proxy_is_reached_and_nothing_else(runtime: Runtime) -> None:
    shut = closed(runtime)
    if shut is None:
        return

    async def play() -> None:
        async with opened(shut, rollout="r1") as box, opened(shut, rollout="r2") as other, gate() as ours:
            url, others = urlsplit(box.url), urlsplit(other.url)
            assert await connects(box, str(url.hostname), url.port or 80)
            with socket.create_server(("", 0)) as everywhere:
                reachable = [(address, everywhere.getsockname()[1]) for address in sorted(own_addresses())]
                for host, port in [*reachable, (ours.host, ours.port)]:
                    socket.create_connection((host, port), 5).close()  # from here it is reached
                    assert not await connects(box, host, port), (host, port)
            if others.port != url.port:
                assert not await connects(box, str(others.hostname), others.port or 80)
            for host, port in (
                ("169.254.169.254", 80),
                ("1.1.1.1", 53),
                ("example.com", 80),
                ("localhost", 22),
            ):
                assert not await connects(box, host, port), (host, port)

    asyncio.run(play())


def test_two_closed_boxes_cannot_reach_each_other(runtime: Runtime) -> None:
    shut = closed(runtime)
    if shut is None:
        return
    listen = "python3 -u -c 'import socket; s = socket.create_server((\"\", 0)); print(s.getsockname()[1]); s.accept()'"

    async def play() -> None:
        async with opened(shut, rollout="r1") as one, opened(shut, rollout="r2") as two:
            if (await shell(one, "command -v python3")).exit != 0:
                return  # no program there that could listen
            port = int(await line(await one.start(Command(argv=("sh", "-c", listen)))))
            assert not await connects(two, "127.0.0.1", port)
            assert await connects(one, "127.0.0.1", port)

    asyncio.run(play())


# A box that dies.


def test_a_box_that_dies_under_the_program_is_noticed_and_blamed_on_the_runtime(runtime: Runtime) -> None:
    """What of ours holds the box is killed: its own process or container, a connection where it is elsewhere."""
    if type(runtime).__name__ == "Local":
        return  # a folder: there is nothing that could die

    others = set(psutil.Process().children(recursive=True))

    async def play() -> None:
        rollout = os.urandom(6).hex()
        async with opened(runtime, rollout=rollout) as box:
            running = await box.start(Command(argv=("sh", "-c", "echo ready; sleep 1000")))
            assert await line(running) == "ready"
            if type(runtime).__name__ == "Docker":
                kill_containers(rollout)
            kill(set(psutil.Process().children(recursive=True)) - others)
            with pytest.raises(Fault) as fault:
                await asyncio.wait_for(running.wait(), 60)
            assert fault.value.record.blame == "runtime"
            with pytest.raises(Fault) as fault:
                await box.run(Command(argv=("true",)))
            assert fault.value.record.blame == "runtime"
            assert not await box.alive()

    with suppress(Fault):  # a runtime may say that something stayed where it cannot reach it any more
        asyncio.run(play())


def kill_containers(rollout: str) -> None:
    names = subprocess.check_output(
        ["docker", "ps", "-q", "--filter", f"label=hotswap.rollout={rollout}"], text=True
    )
    subprocess.run(["docker", "kill", *names.split()], check=True, capture_output=True)


def kill(processes: Iterable[psutil.Process]) -> None:
    """The eldest first: a box whose program is killed before its holder may tell of that, which is no death of its."""
    born = {process: process.create_time() for process in processes if process.is_running()}
    for process in sorted(born, key=lambda each: (born[each], each.pid)):
        with suppress(psutil.Error):
            process.kill()
