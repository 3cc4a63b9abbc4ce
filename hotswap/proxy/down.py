"""The way down to the program: an answer as it is written, kept alive while its provider is slow, and kept on tape."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aiohttp import web
from multidict import CIMultiDict

from hotswap.proxy.tape import Tape

Sign = Callable[[], bytes]
"""Gets the bytes of an event that says that the answer is still to come; none where there is no need of it."""


class Down:
    """One answer to a program. Nothing has gone down until it has `begun`."""

    def __init__(self, request: web.BaseRequest, tape: Tape) -> None:
        self._request = request
        self.tape = tape
        self.arrived = False
        """All that makes the answer whole has been written."""
        self._response: web.StreamResponse | None = None
        self._sign: Sign | None = None
        self._quiet_s = 0.0
        self._written = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._nudge: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        return self._response is not None

    @property
    def lost(self) -> bool:
        """Whether the connection is gone."""
        return self._request.transport is None or self._request.transport.is_closing()

    async def whole(self, status: int, headers: CIMultiDict[str], body: bytes) -> web.StreamResponse:
        """Send an answer in one piece."""
        response = web.Response(status=status, headers=headers, body=body)
        self._note(status, headers)
        self.tape.chunks.append((self._elapsed(), body))
        await response.prepare(self._request)
        await response.write_eof()
        return response

    async def begin(self, status: int, headers: CIMultiDict[str]) -> None:
        """Send the headers of a stream, where they have not gone already."""
        if self._response is not None:
            return
        self._response = web.StreamResponse(status=status, headers=headers)
        self._note(status, headers)
        await self._response.prepare(self._request)
        self._written = time.monotonic()

    def keep_alive(self, sign: Sign, quiet_s: float) -> None:
        """From now on send a sign of life whenever nothing was written for so long, and open the stream for it."""
        self._sign, self._quiet_s = sign, quiet_s
        if self._timer is None and quiet_s > 0:
            self._written = time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(quiet_s, self._ring)

    def stop_signs(self) -> None:
        """No sign of life is sent any more."""
        self._sign = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        if self._sign is None:
            return
        left_s = self._written + self._quiet_s - time.monotonic()
        if left_s <= 0:
            self._nudge = asyncio.ensure_future(self._say_still_there(self._sign))
            left_s = self._quiet_s
        self._timer = asyncio.get_running_loop().call_later(left_s, self._ring)

    async def _say_still_there(self, sign: Sign) -> None:
        try:
            await self.begin(
                200, CIMultiDict({"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
            )
            if data := sign():
                await self.write(data)
        except ConnectionError:
            return  # the program is gone: whoever writes to it next will notice

    async def write(self, data: bytes) -> None:
        """Send the next bytes of a stream that has begun."""
        assert self._response is not None
        self._written = time.monotonic()
        self.tape.chunks.append((self._elapsed(), data))
        await self._response.write(data)

    async def end(self, rest: bytes = b"") -> web.StreamResponse:
        """End the stream as a provider would, after the last bytes."""
        assert self._response is not None
        self.stop_signs()
        if rest:
            self.tape.chunks.append((self._elapsed(), rest))
        await self._response.write_eof(rest)
        return self._response

    async def drop(self) -> web.StreamResponse:
        """Close the connection without an answer."""
        self.stop_signs()
        self.tape.cut = True
        if self._request.transport is not None:
            self._request.transport.close()
        return web.Response()

    async def cut(self, rest: bytes = b"") -> web.StreamResponse:
        """Break the stream off, so that nobody can take it for whole."""
        assert self._response is not None
        self.stop_signs()
        if rest:
            await self.write(rest)
        self.tape.cut = True
        if self._request.transport is not None:
            self._request.transport.close()
        return self._response

    def _note(self, status: int, headers: CIMultiDict[str]) -> None:
        self.tape.status, self.tape.headers = status, tuple(headers.items())

    def _elapsed(self) -> float:
        return time.time() - self.tape.started
