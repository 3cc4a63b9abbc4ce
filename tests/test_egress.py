"""The way out: what is let through and what is not, with servers on loopback that stand for hosts.

Names are looked up in a table. `203.0.113.0/24` is a network that no host has; loopback is let through where the test
lists it, as a person would list an address of a private network.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
from _kit.loop import in_loop

from hotswap import egress
from hotswap.contracts.network import Network
from hotswap.egress import Asked, Egress, Refused, is_public, parse, variables

HERE = "127.0.0.1"


class Host:
    """A server that stands for a host: it answers with what it was sent."""

    def __init__(self) -> None:
        self.heard = b""
        self.ended = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            self.heard += data
            writer.write(b"heard " + data)
        self.ended.set()
        writer.close()


@asynccontextmanager
async def hosting(address: str = HERE) -> AsyncIterator[tuple[Host, int]]:
    host = Host()
    server = await asyncio.start_server(host.answer, address, 0)
    yield host, server.sockets[0].getsockname()[1]
    server.close()


@asynccontextmanager
async def way_out(
    said: str, names: Mapping[str, Sequence[str]] | None = None, idle_s: float = 60.0
) -> AsyncIterator[tuple[Egress, int]]:
    """A way out to the hosts that are said, with a table of names, and the port where it answers."""

    async def resolve(name: str) -> Sequence[str]:
        try:
            return (names or {})[name]
        except KeyError:
            raise OSError(8, "no such name") from None

    listener = socket.create_server((HERE, 0))
    async with Egress(Network.parse(said), resolve, idle_s) as out:
        server = await out.accept(listener)
        yield out, listener.getsockname()[1]
        server.close()


@asynccontextmanager
async def asking(
    port: int, request: str
) -> AsyncIterator[tuple[str, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Send a request's head; get the head of the answer, and the connection."""
    reader, writer = await asyncio.open_connection(HERE, port)
    writer.write(request.encode() + b"\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).decode() if request.startswith("CONNECT") else ""
    yield head, reader, writer
    writer.close()


async def answer(port: int, request: str) -> tuple[int, str]:
    """The status and the body of an answer that is said to its end."""
    async with asking(port, request) as (head, reader, _):
        text = head + (await reader.read()).decode()
    return int(text.split()[1]), text.partition("\r\n\r\n")[2]


def tried(out: Egress) -> list[tuple[str, int, bool, int]]:
    return [(each.host, each.port, each.allowed, each.count) for each in out.records]


@in_loop
async def test_a_tunnel_to_a_host_that_is_named_passes_bytes_both_ways_and_ends_when_both_have() -> None:
    async with hosting() as (host, port), way_out(f"good.test,{HERE}", {"good.test": [HERE]}) as (out, at):
        async with asking(at, f"CONNECT Good.Test.:{port} HTTP/1.1") as (head, reader, writer):
            assert head.startswith("HTTP/1.1 200 ")
            writer.write(b"\x00\xff bytes")
            assert await reader.readexactly(14) == b"heard \x00\xff bytes"
            writer.write_eof()
            assert await reader.read() == b""
        assert host.ended.is_set()
        assert tried(out) == [("good.test", port, True, 1)]


@in_loop
async def test_large_content_passes_whole_and_in_order() -> None:
    content = bytes(range(256)) * 40_000
    async with hosting() as (host, port), way_out(HERE) as (_, at):
        async with asking(at, f"CONNECT {HERE}:{port} HTTP/1.1") as (_, reader, writer):
            writer.write(content)
            writer.write_eof()
            await reader.read()
        assert host.heard == content


@in_loop
async def test_another_host_is_refused_in_a_sentence_with_the_setting_that_would_allow_it() -> None:
    async with way_out("example.org,*.example.com") as (out, at):
        for _ in range(2):
            status, said = await answer(at, "CONNECT evil.test:443 HTTP/1.1")
        assert (status, said.count("\n")) == (403, 1)
        assert said.startswith("hotswap: evil.test is not among the hosts that this box may reach")
        assert "--runtime.network '*.example.com,evil.test,example.org'" in said
        assert tried(out) == [("evil.test", 443, False, 2)]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "169.254.169.254", "168.63.129.16", "::1", "::ffff:127.0.0.1", "fd00:ec2::254"],
)
@in_loop
async def test_a_name_that_leads_into_a_private_network_is_refused_though_it_is_named(address: str) -> None:
    async with way_out("good.test", {"good.test": [address]}) as (out, at):
        status, said = await answer(at, "CONNECT good.test:80 HTTP/1.1")
        assert status == 403
        assert said.startswith(f"hotswap: good.test leads to {address}, which is not public")
        assert tried(out) == [("good.test", 80, False, 1)]


@in_loop
async def test_an_address_is_let_through_where_it_or_its_network_is_named() -> None:
    async with (
        hosting() as (_, port),
        way_out("127.0.0.0/8") as (out, at),
        way_out("10.0.0.0/8") as (_, other),
    ):
        async with asking(at, f"CONNECT {HERE}:{port} HTTP/1.1") as (head, _, _):
            assert head.startswith("HTTP/1.1 200 ")
        assert (await answer(other, f"CONNECT {HERE}:{port} HTTP/1.1"))[0] == 403
        assert tried(out) == [(HERE, port, True, 1)]


@in_loop
async def test_a_name_in_numbers_is_no_way_round() -> None:
    names = {"2130706433": [HERE], "127.1": [HERE], "localhost": [HERE]}
    async with way_out("2130706433,127.1,localhost,good.test", names) as (out, at):
        for name in names:
            assert (await answer(at, f"CONNECT {name}:80 HTTP/1.1"))[0] == 403
        assert not any(each.allowed for each in out.records)


@in_loop
async def test_the_addresses_of_a_host_are_tried_in_turn_until_one_answers() -> None:
    async with (
        hosting() as (_, port),
        way_out(f"good.test,{HERE},::/0", {"good.test": ["::1", HERE]}) as (_, at),
        asking(at, f"CONNECT good.test:{port} HTTP/1.1") as (head, _, _),
    ):
        assert head.startswith("HTTP/1.1 200 ")


@in_loop
async def test_a_host_is_reached_by_the_newer_protocol_too() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with hosting("::1") as (_, port), way_out("::1") as (out, at):
        async with asking(at, f"CONNECT [::1]:{port} HTTP/1.1") as (head, _, _):
            assert head.startswith("HTTP/1.1 200 ")
        assert tried(out) == [("::1", port, True, 1)]


@in_loop
async def test_a_host_that_cannot_be_looked_up_or_does_not_answer_is_said_and_is_no_refusal() -> None:
    with socket.create_server((HERE, 0)) as closed:
        port = closed.getsockname()[1]
    async with way_out(f"gone.test,deaf.test,{HERE}", {"deaf.test": [HERE]}) as (out, at):
        assert await answer(at, "CONNECT gone.test:443 HTTP/1.1") == (
            502,
            "hotswap: gone.test cannot be looked up: no such name\n",
        )
        status, said = await answer(at, f"CONNECT deaf.test:{port} HTTP/1.1")
        assert (status, "cannot be reached" in said) == (502, True)
        assert all(each.allowed for each in out.records)


@in_loop
async def test_a_plain_request_goes_to_the_host_that_its_address_names_and_alone() -> None:
    async with hosting() as (host, port), way_out(f"good.test,{HERE}", {"good.test": [HERE]}) as (out, at):
        request = (
            f"POST http://user@good.test:{port}/a?b=http://c HTTP/1.1\r\nHost: evil.test\r\nproxy-authorization: x\r\n"
            "Connection: keep-alive\r\nX-Own: 1\r\nContent-Length: 2"
        )
        async with asking(at, request) as (_, reader, writer):
            writer.write(b"ok")
            writer.write_eof()
            await reader.read()
        head, _, body = host.heard.decode().partition("\r\n\r\n")
        assert head.split("\r\n") == [
            "POST /a?b=http://c HTTP/1.1",
            f"Host: good.test:{port}",
            "X-Own: 1",
            "Content-Length: 2",
            "Connection: close",
        ]
        assert body == "ok"
        assert (await answer(at, "GET http://evil.test/ HTTP/1.1"))[0] == 403
        assert tried(out) == [("good.test", port, True, 1), ("evil.test", 80, False, 1)]


@pytest.mark.parametrize(
    "head",
    [
        "",
        "nonsense",
        "GET / HTTP/1.1",
        "GET https://good.test/ HTTP/1.1",
        "CONNECT good.test HTTP/1.1",
        "CONNECT good.test:0 HTTP/1.1",
        "CONNECT good.test:65536 HTTP/1.1",
        "CONNECT good.test:٤٤ HTTP/1.1",
        "CONNECT *.test:443 HTTP/1.1",
        "CONNECT good.test@evil.test:443 HTTP/1.1",
        "CONNECT ::1:443 HTTP/1.1",
        f"CONNECT {'a' * 300}:443 HTTP/1.1",
        "GET http:///path HTTP/1.1",
        "PRI * HTTP/2.0",
    ],
)
def test_what_is_no_request_for_a_proxy_is_told_so(head: str) -> None:
    with pytest.raises(Refused) as caught:
        parse(head.encode())
    assert caught.value.status == 400


def test_an_address_without_a_path_asks_for_the_root() -> None:
    assert parse(b"GET http://[::1]?x HTTP/1.1\r\n") == Asked(
        "::1", 80, b"GET /?x HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n"
    )


@in_loop
async def test_headers_without_an_end_are_refused() -> None:
    async with way_out("good.test") as (_, at):
        reader, writer = await asyncio.open_connection(HERE, at)
        writer.write(b"CONNECT good.test:443 HTTP/1.1\r\n" + b"x" * (egress.HEADERS_LIMIT + 10))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 431 ")
        writer.close()


@in_loop
async def test_a_box_has_a_bounded_number_of_connections() -> None:
    async with way_out("good.test") as (_, at):
        held = [await asyncio.open_connection(HERE, at) for _ in range(egress.MOST_CONNECTIONS)]
        status, said = await answer(at, "CONNECT good.test:443 HTTP/1.1")
        assert (status, "256 connections" in said) == (503, True)
        for _, writer in held:
            writer.close()


@in_loop
async def test_a_connection_in_which_nothing_moves_is_closed() -> None:
    async with hosting() as (host, port), way_out(HERE, idle_s=0.2) as (_, at):
        async with asking(at, f"CONNECT {HERE}:{port} HTTP/1.1") as (_, reader, _):
            assert await reader.read() == b""
        await host.ended.wait()


@in_loop
async def test_when_it_is_left_every_connection_ends_and_none_is_answered() -> None:
    async with (
        hosting() as (host, port),
        way_out(HERE) as (out, at),
        asking(at, f"CONNECT {HERE}:{port} HTTP/1.1") as (_, reader, _),
    ):
        await out.close()
        assert await reader.read() == b""
        await host.ended.wait()
        late, writer = await asyncio.open_connection(HERE, at)
        assert await late.read() == b""
        writer.close()


@in_loop
async def test_the_list_of_what_was_tried_is_bounded_and_counts_the_rest() -> None:
    async with way_out("good.test") as (out, at):
        for number in range(egress.MOST_RECORDS + 5):
            await answer(at, f"CONNECT h{number}.test:443 HTTP/1.1")
        assert len(out.records) == egress.MOST_RECORDS + 1
        assert tried(out)[-1] == ("*", 0, False, 5)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:4700::6810:1", True),
        ("64:ff9b::5db8:d822", True),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:7f00:1::", False),
        ("100.100.100.200", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("ff02::1", False),
        ("fe80::1%eth0", False),
        ("192.168.1.1", False),
        ("255.255.255.255", False),
        ("no address", False),
    ],
)
def test_an_address_is_public_or_not(address: str, public: bool) -> None:
    assert is_public(address) == public


def test_programs_are_told_of_the_way_out_and_that_loopback_needs_none() -> None:
    found = variables("http://127.0.0.1:9")
    assert {found[name] for name in ("HTTP_PROXY", "https_proxy", "ALL_PROXY")} == {"http://127.0.0.1:9"}
    assert found["NO_PROXY"] == found["no_proxy"] == "localhost,127.0.0.1"
