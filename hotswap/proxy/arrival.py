"""A request's body on its way in: read in pieces, unpacked within a bound, and given up where nothing comes.

Nothing here takes longer on the loop than one piece: what is large is put together and unpacked in a thread, where the
interpreter's lock is released meanwhile.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from aiohttp import web

from hotswap.proxy.packed import NotPacked, TooLarge, UnknownCoding, coding_of, unpack

BODY_LIMIT = 256 * 2**20
"""Bytes that a body may have, as it comes and as it is unpacked."""
LARGE_BODY = 2**20
"""Bytes from which on a body is worked on in a thread."""
SMALL_PACKED = 2**14
"""Bytes up to which a packed body is unpacked at once, if it does not become large."""
PIECE = 2**20
SILENCE_S = 60.0
"""So long a program may send nothing in the midst of a body."""
LARGEST = f"the body has more than {BODY_LIMIT} bytes"


class Refused(Exception):
    """A body that is not taken, and what the program is told."""

    def __init__(self, status: int, type: str, message: str) -> None:  # noqa: A002
        super().__init__(message)
        self.status = status
        self.type = type
        self.message = message


async def receive(request: web.BaseRequest, threads: Executor) -> bytes:
    """Get a request's body, unpacked. Raises Refused."""
    raw = await _read(request, threads)
    coding = coding_of(request.headers)
    if not coding or not raw:
        return raw
    try:
        if len(raw) <= SMALL_PACKED:
            try:
                return unpack(raw, coding, LARGE_BODY)
            except TooLarge:
                pass  # it is larger than it looks
        return await asyncio.get_running_loop().run_in_executor(threads, unpack, raw, coding, BODY_LIMIT)
    except TooLarge as error:
        raise Refused(413, "request_too_large", f"{LARGEST} when it is unpacked") from error
    except NotPacked as error:
        raise Refused(400, "bad_request", f"the body cannot be unpacked: {error}") from error
    except UnknownCoding as error:
        raise Refused(415, "unsupported_media_type", str(error)) from error


async def _read(request: web.BaseRequest, threads: Executor) -> bytes:
    """Read the body as it comes."""
    if (request.content_length or 0) > BODY_LIMIT:
        raise Refused(413, "request_too_large", LARGEST)
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    pieces, last, size = [], bytearray(), 0
    while data := await _next(request):
        size += len(data)
        if size > BODY_LIMIT:
            raise Refused(413, "request_too_large", LARGEST)
        last += data  # a byte at a time may come, and is not to be an object of its own
        if len(last) >= PIECE:
            pieces.append(bytes(last))
            last.clear()
    if not pieces:
        return bytes(last)
    return await asyncio.get_running_loop().run_in_executor(threads, b"".join, [*pieces, bytes(last)])


async def _next(request: web.BaseRequest) -> bytes:
    content = request.content
    try:
        if content.is_eof():  # all of it is here: there is nothing to wait for
            return await content.readany()
        async with asyncio.timeout(SILENCE_S):
            return await content.readany()
    except TimeoutError as error:
        words = f"the body stopped coming: nothing for {SILENCE_S:g} s"
        raise Refused(408, "request_timeout", words) from error
    except (web.HTTPException, web.RequestPayloadError) as error:
        raise Refused(400, "bad_request", f"the body could not be read: {error}") from error
