"""Listening sockets out of a box: a process of its own, a box of bubblewrap, and boxes that mean no good."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from _kit.loop import in_loop

from hotswap import doors
from hotswap.contracts.runtime import Accept, Gate, Needs
from hotswap.errors import Fault
from hotswap.provision.keys import base_python

BARE = (str(base_python()), "-I", "-S")
BOXED = ("bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
WITH_BWRAP = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
ASK = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=9).read().decode())"


def answering(word: str) -> Accept:
    """What answers each connection with a word."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{word}".encode())
        await writer.drain()
        writer.close()

    async def accept(listener: socket.socket) -> asyncio.AbstractServer:
        return await asyncio.start_server(answer, sock=listener)

    return accept


def needs(egress: bool = False) -> Needs:
    way_out = answering("way out") if egress else None
    return Needs(rollout="r1", gate=Gate("127.0.0.1", 1, answering("proxy")), egress=way_out)


def started(argv: Sequence[str], *descriptors: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=descriptors
    )


async def get(url: str) -> str:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    text = (await reader.read()).decode().rpartition("\r\n\r\n")[2]
    writer.close()
    return text


def number_of_descriptors() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208


@asynccontextmanager
async def mounted(folder: Path) -> AsyncIterator[tuple[doors.Doors, socket.socket, str]]:
    """Doors by a folder, a socket that talks to them as a box would, and the word that is expected."""
    async with doors.opened(needs(), folder) as made:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as box:
            box.connect(str(folder / "doors"))
            word = made.argv(("python",), inside="/in")[4]
            yield made, box, word


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@in_loop
async def test_the_proxy_answers_at_a_socket_that_was_made_elsewhere() -> None:
    async with doors.opened(needs()) as made:
        process = started(made.argv(BARE), made.descriptor)
        await made.arrived()
        assert await get(made.url) == "proxy"
        assert (made.egress_url, process.communicate(), process.returncode) == (None, (b"", b""), 0)
    with pytest.raises(ConnectionRefusedError):
        await get(made.url)


@in_loop
async def test_the_way_out_has_a_socket_of_its_own(tmp_path: Path) -> None:
    async with doors.opened(needs(egress=True), tmp_path) as made:
        process = started(made.argv(BARE, inside=str(tmp_path)))
        await made.arrived()
        assert made.egress_url is not None
        assert (await get(made.url), await get(made.egress_url)) == ("proxy", "way out")
        process.communicate()


@in_loop
async def test_what_follows_inherits_no_descriptor() -> None:
    async with doors.opened(needs(egress=True)) as made:
        then = ("ls", "/dev/fd")
        process = started(made.argv(BARE, then=then), made.descriptor)
        await made.arrived()
        out, _ = process.communicate()
    assert len(out.split()) == 4  # its standard three, and the folder that it lists


@WITH_BWRAP
@in_loop
async def test_a_box_without_a_network_reaches_the_proxy_on_its_own_loopback_and_nothing_else() -> None:
    async with doors.opened(needs()) as made, answering_here() as here:
        read, write = os.pipe()
        then = (*BARE, "-c", f"import os, sys; sys.argv[1:] = [os.read({read}, 99).decode()]\n{ASK}")
        os.set_inheritable(read, True)
        process = started([*BOXED, *made.argv(BARE, then=then)], made.descriptor, read)
        os.close(read)
        await made.arrived()
        os.write(write, made.url.encode())
        os.close(write)
        out, error = await asyncio.to_thread(process.communicate)
        assert (out, error) == (b"proxy\n", b"")
        alone = started([*BOXED, *BARE, "-c", ASK, here])
        assert b"refused" in (await asyncio.to_thread(alone.communicate))[1]
        assert await asyncio.to_thread(lambda: subprocess.check_output([*BARE, "-c", ASK, here])) == b"here\n"


@asynccontextmanager
async def answering_here() -> AsyncIterator[str]:
    """A server on this machine's own loopback."""
    listener = listening()
    port = listener.getsockname()[1]
    server = await answering("here")(listener)
    yield f"http://127.0.0.1:{port}"
    server.close()


def test_nothing_that_a_box_hands_out_stays_open(tmp_path: Path) -> None:
    before = number_of_descriptors()
    asyncio.run(hand_out_the_wrong_things(tmp_path))
    assert number_of_descriptors() == before


@in_loop
async def test_garbage_a_wrong_word_and_other_descriptors_are_dropped_and_the_right_ones_are_waited_for(
    tmp_path: Path,
) -> None:
    await hand_out_the_wrong_things(tmp_path)


async def hand_out_the_wrong_things(folder: Path) -> None:
    """Do all that a box should not do, and then what it should."""
    async with mounted(folder) as (made, box, word):
        waiting = asyncio.ensure_future(made.arrived())
        with (
            listening() as one,
            listening() as two,
            socket.socket() as deaf,
            socket.socket(socket.AF_UNIX) as local,
        ):
            local.bind(str(folder / "local"))
            local.listen()
            read, write = os.pipe()
            wrong = [
                (b"\xff" * 5000, []),
                (b"", []),
                (b"f" * 32, [one]),
                (word.encode(), []),
                (word.encode(), [one, two]),
                (word.encode() + b"more", [one]),
                (word.encode(), [deaf]),
                (word.encode(), [local]),
            ]
            for said, sent in wrong:
                await handed(box, said, [each.fileno() for each in sent])
            await handed(box, word.encode(), [read])
            await handed(box, word.encode(), [one.fileno()] * 40)
            os.close(read)
            with pytest.raises(BrokenPipeError):
                await until_broken(write)
            os.close(write)
            await handed(box, word.encode(), [two.fileno()])
            await waiting
            assert made.url == f"http://127.0.0.1:{two.getsockname()[1]}"
        assert await get(made.url) == "proxy"
    (folder / "local").unlink()
    assert list(folder.iterdir()) == []


async def handed(box: socket.socket, said: bytes, descriptors: list[int]) -> None:
    """Send a datagram when there is room for it: a box that floods waits, and nobody for it."""
    box.setblocking(False)
    while True:
        try:
            socket.send_fds(box, [said], descriptors)
        except BlockingIOError:
            await asyncio.sleep(0)
        else:
            return


async def until_broken(write: int) -> None:
    """Write until nobody holds the other end."""
    while True:
        os.write(write, b"x")
        await asyncio.sleep(0)


@in_loop
async def test_what_a_box_sends_once_its_sockets_have_arrived_reaches_nobody(tmp_path: Path) -> None:
    async with mounted(tmp_path) as (made, box, word):
        with listening() as one:
            socket.send_fds(box, [word.encode()], [one.fileno()])
        await made.arrived()
        with pytest.raises(ConnectionRefusedError):
            box.send(b"again")
        assert list(tmp_path.iterdir()) == []


@in_loop
async def test_a_box_that_hands_out_nothing_is_given_up() -> None:
    async with doors.opened(needs()) as made:
        with pytest.raises(Fault, match=r"no listening sockets in 0\.05 s") as caught:
            await made.arrived(timeout_s=0.05)
    assert (caught.value.record.blame, caught.value.record.stage) == ("runtime", "box")


@in_loop
async def test_a_box_that_ends_before_it_is_up_is_noticed_at_once_with_its_last_words() -> None:
    async with doors.opened(needs()) as made:
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", "echo no namespaces here >&2; exit 1", stderr=asyncio.subprocess.PIPE
        )

        async def ended() -> str:
            return (await process.communicate())[1].decode()

        with pytest.raises(Fault, match="ended before") as caught:
            await made.arrived(ended())
    assert caught.value.record.detail == "no namespaces here\n"


@in_loop
async def test_a_folder_whose_path_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    with pytest.raises(Fault, match="107 bytes"):
        async with doors.opened(needs(), folder):
            pass


def test_fifty_doors_that_are_left_early_leave_no_descriptor() -> None:
    async def leave_early() -> None:
        for _ in range(50):
            async with doors.opened(needs()) as made:
                waiting = asyncio.ensure_future(made.arrived())
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)

    before = number_of_descriptors()
    asyncio.run(leave_early())
    assert number_of_descriptors() == before


def test_the_program_inside_needs_the_standard_library_alone() -> None:
    source = Path(doors.__file__).with_name("_inside.py").read_text()
    lines = [line.split()[1] for line in source.splitlines() if line.startswith(("import", "from"))]
    assert set(lines) <= set(sys.stdlib_module_names)
