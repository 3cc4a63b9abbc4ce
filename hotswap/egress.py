"""The way out of a box that may reach some hosts: a proxy that lets these through, by name, and refuses the others.

    async with Egress(network) as egress:
        Needs(..., egress=egress.accept)        # the runtime lets it answer at a socket in the box
        egress.records                          # what was tried, as it stands in a trace

Tunnels (CONNECT) pass as they are: nothing is read, and no certificate is ours. A plain request (`GET http://...`) is
sent on alone, to the host that its address names. A name that leads to an address of a private network, of this
machine or of a cloud's metadata is refused unless that address itself is named: whoever owns a name can point it there.
Only what a box sends here is let through; what ignores `variables` finds no network.
"""

from __future__ import annotations

import asyncio
import ipaddress
import shlex
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

from hotswap.contracts.network import HOST, Network
from hotswap.trace import EgressRecord

HEADERS_LIMIT = 64 << 10
HEADERS_S = 20.0
RESOLVE_S = 10.0
CONNECT_S = 20.0
STAGGER_S = 0.25
"""After this long the next address of a host is tried beside those before it."""
IDLE_S = 600.0
"""A connection in which nothing moves for this long is closed."""
MOST_CONNECTIONS = 256
"""Of one box at one time."""
MOST_RECORDS = 200
"""Hosts that are told apart in a trace; further ones are counted together, as the host `*`."""
LOOKUPS = 4
"""Threads of one box that look up names: what is slow there is slow for this box alone."""
LINGER_S = 1.0
PIECE = 1 << 16

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Gets the addresses of a name. Raises OSError where there is none."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

METADATA = ipaddress.ip_address("168.63.129.16")
"""Azure's: the one service of the kind with an address that looks public."""
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def variables(url: str) -> dict[str, str]:
    """Get what tells programs in a box of its way out. The proxy for the model, on loopback, is reached without."""
    found = {"NODE_USE_ENV_PROXY": "1"}
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        found |= {name: url, name.lower(): url}
    return found | dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1")


class Egress:
    """The way out of one box; an async context manager, which ends every connection when it is left."""

    def __init__(self, network: Network, resolve: Resolve | None = None, idle_s: float = IDLE_S) -> None:
        self.network = network
        self.records: list[EgressRecord] = []
        """What was tried, in the order of first tries; it grows."""
        self._counted: dict[tuple[str, int, bool], EgressRecord] = {}
        self._names = ThreadPoolExecutor(LOOKUPS, "names")  # a thread begins with the first name
        self._resolve = resolve or self._look_up
        self._idle_s = idle_s
        self._open: set[asyncio.Task[None]] = set()
        self._over = False

    async def __aenter__(self) -> Egress:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every connection, and answer no further one."""
        self._over = True
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        self._names.shutdown(wait=False, cancel_futures=True)

    async def accept(self, listener: socket.socket) -> asyncio.AbstractServer:
        """Answer at a socket that listens where the box can reach it."""
        return await asyncio.start_server(self._connected, sock=listener, limit=HEADERS_LIMIT)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            if self._over or len(self._open) > 2 * MOST_CONNECTIONS:  # too many to be told so
                return
            if len(self._open) > MOST_CONNECTIONS:
                raise Refused(503, f"this box has {MOST_CONNECTIONS} connections open, and may have no more")
            await self._serve(reader, writer)
        except Refused as refusal:
            await _say(refusal, reader, writer)
        except (OSError, EOFError):  # one of the two went away
            pass
        except asyncio.CancelledError:
            if not self._over:
                raise
        finally:
            self._open.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = parse(await _head(reader))
        addresses = await self._addresses(asked)
        there_reader, there_writer = await _reach(asked, addresses)
        try:
            if asked.head:
                there_writer.write(asked.head)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _Pair(self._idle_s).carry((reader, there_writer), (there_reader, writer))
        finally:
            there_writer.close()

    async def _addresses(self, asked: Asked) -> list[str]:
        """Get where a host may be reached. Raises Refused; either way it is counted."""
        if not self.network.allows(asked.host):
            self._count(asked, allowed=False)
            raise Refused(403, self._why_not(asked.host, asked.host))
        if _address(asked.host) is not None:  # it is named itself, or a network that it is in
            self._count(asked, allowed=True)
            return [asked.host]
        found = await self._found(asked)
        allowed = [each for each in found if is_public(each) or self.network.allows(each)]
        self._count(asked, allowed=bool(allowed))
        if not allowed:
            raise Refused(
                403, self._why_not(f"{asked.host} leads to {found[0]}, which is not public and", found[0])
            )
        return allowed

    async def _found(self, asked: Asked) -> Sequence[str]:
        """Get the addresses of a name, of which there is one at least. Raises Refused."""
        found: Sequence[str] = ()
        try:
            async with asyncio.timeout(RESOLVE_S):
                found = await self._resolve(asked.host)
            why = "it has no address"
        except TimeoutError:
            why = f"no answer in {RESOLVE_S:g} s"
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
        if not found:
            self._count(asked, allowed=True)
            raise Refused(502, f"{asked.host} cannot be looked up: {why}")
        return found

    async def _look_up(self, host: str) -> Sequence[str]:
        def ask() -> list[str]:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(where[0]) for *_, where in found))

        return await asyncio.get_running_loop().run_in_executor(self._names, ask)

    def _why_not(self, what: str, missing: str) -> str:
        wanted = shlex.quote(",".join(sorted({*self.network.hosts, missing})))
        return (
            f"{what} is not among the hosts that this box may reach; --runtime.network {wanted} "
            "would allow it, unless the task asks for less"
        )

    def _count(self, asked: Asked, *, allowed: bool) -> None:
        """Note that a host was tried."""
        key = (asked.host, asked.port, allowed)
        if key not in self._counted and len(self._counted) >= MOST_RECORDS:
            key = ("*", 0, allowed)
        if key in self._counted:
            self._counted[key].count += 1
            return
        self._counted[key] = EgressRecord(*key)
        self.records.append(self._counted[key])


class Refused(Exception):
    """A request that is not carried out, with the status and the sentence that say so."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Asked:
    """What a program asks of its way out."""

    host: str
    port: int
    head: bytes = b""
    """What the host is sent first, for a plain request; empty for a tunnel."""


def parse(head: bytes) -> Asked:
    """Read a request's line and headers. Raises Refused."""
    line, _, rest = head.decode("latin-1").partition("\r\n")
    method, _, target = line.partition(" ")
    target, _, version = target.rpartition(" ")
    if not version.startswith("HTTP/1."):
        raise Refused(400, "this is no request of HTTP/1")
    if method == "CONNECT":
        return Asked(*_authority(target, None))
    scheme, found, address = target.partition("://")
    if not found or scheme.lower() != "http":
        raise Refused(
            400, f"a proxy is asked for http://HOST/..., or by CONNECT HOST:PORT; not for {target[:80]}"
        )
    end = min((at for at in map(address.find, "/?#") if at >= 0), default=len(address))
    place = address[:end].rpartition("@")[2]
    path = address[end:] if address[end:].startswith("/") else f"/{address[end:]}"
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {place}",
        *_kept(rest.split("\r\n")),
        "Connection: close",
        "",
        "",
    ]
    return Asked(*_authority(place, 80), "\r\n".join(lines).encode("latin-1"))


def _kept(headers: Iterable[str]) -> Iterable[str]:
    """The headers that are not for us: one request a connection, so that each is judged."""
    ours = {"host", "connection", "keep-alive", "upgrade", ""}
    names = [(line.partition(":")[0].strip().lower(), line) for line in headers]
    return [line for name, line in names if name not in ours and not name.startswith("proxy-")]


def _authority(text: str, port: int | None) -> tuple[str, int]:
    """Read `host:port`, `[address]:port`, or, where a port is given, the host alone. Raises Refused."""
    host, bracket, after = text.rpartition("]")
    if bracket:
        host, colon, number = host.removeprefix("["), after[:1], after[1:]
    else:
        host, colon, number = text.partition(":")
    wanted = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else port
    host = host.lower().rstrip(".")
    named = len(host) < 254 and HOST.fullmatch(host) and not host.startswith("*")
    if not (named or _address(host)) or (colon and not number) or wanted is None or not 0 < wanted < 1 << 16:
        raise Refused(400, f"{text[:80]!r} is no HOST:PORT")
    return host, wanted


def is_public(text: str) -> bool:
    """Whether an address is one of the public network's: no machine's own, no private one, no cloud's metadata."""
    address = _address(text)
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inner = ipaddress.IPv4Address(address.packed[-4:])
        address = inner or address
    if address is None or address == METADATA:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(HEADERS_S):
            return (await reader.readuntil(b"\r\n\r\n"))[:-4]
    except TimeoutError:
        raise Refused(408, f"no whole request came in {HEADERS_S:g} s") from None
    except asyncio.LimitOverrunError:
        raise Refused(431, f"a request's headers may have {HEADERS_LIMIT} bytes") from None


async def _reach(asked: Asked, addresses: Sequence[str]) -> Streams:
    """Connect to the first address that answers; each next one is tried a little later. Raises Refused."""
    tries: list[asyncio.Task[Streams]] = []
    waiting = list(_in_turn(addresses))
    why = f"no answer in {CONNECT_S:g} s"
    try:
        async with asyncio.timeout(CONNECT_S):
            while waiting or not all(each.done() for each in tries):
                if waiting:
                    tries.append(asyncio.ensure_future(asyncio.open_connection(waiting.pop(0), asked.port)))
                pending = [each for each in tries if not each.done()]
                stagger = STAGGER_S if waiting else None
                await asyncio.wait(pending, timeout=stagger, return_when=asyncio.FIRST_COMPLETED)
                if won := next((each for each in tries if each.done() and each.exception() is None), None):
                    tries.remove(won)
                    return won.result()
        why = "; ".join(dict.fromkeys(str(each.exception()) for each in tries))
    except TimeoutError:
        pass
    finally:
        for each in tries:
            _give_up(each)
    raise Refused(502, f"{asked.host}:{asked.port} cannot be reached: {why}")


def _give_up(attempt: asyncio.Task[Streams]) -> None:
    if not attempt.cancel() and attempt.exception() is None:
        attempt.result()[1].close()


def _in_turn(addresses: Sequence[str]) -> Iterable[str]:
    """Alternate between the two kinds, as the first comes: a network may carry only one of them."""
    first = [each for each in addresses if (":" in each) == (":" in addresses[0])]
    second = [each for each in addresses if each not in first]
    for at in range(max(len(first), len(second))):
        yield from first[at : at + 1]
        yield from second[at : at + 1]


class _Pair:
    """Two directions of one connection, closed together when neither has moved for a while."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s

    async def carry(self, *ways: Streams) -> None:
        """Pass on what comes at each reader to its writer, until both have ended, or one has broken."""
        self._timeout = asyncio.timeout(self._idle_s)
        try:
            async with self._timeout, asyncio.TaskGroup() as group:
                for reader, writer in ways:
                    group.create_task(self._pass_on(reader, writer))
        except* OSError:  # so is a time that is over
            pass

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE):
            self._moved()
            writer.write(data)
            await writer.drain()
            self._moved()
        writer.write_eof()

    def _moved(self) -> None:
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._idle_s)


async def _say(refusal: Refused, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer, and take in what still comes for a moment: what is closed with unread bytes takes its answer back."""
    text = f"hotswap: {refusal}\n".encode()
    head = f"HTTP/1.1 {refusal.status} Refused\r\ncontent-type: text/plain; charset=utf-8\r\n"
    with suppress(OSError):
        writer.write(f"{head}content-length: {len(text)}\r\nconnection: close\r\n\r\n".encode() + text)
        writer.write_eof()
        async with asyncio.timeout(LINGER_S):
            while await reader.read(PIECE):
                pass
