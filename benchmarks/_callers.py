"""Programs that call their provider, as cheaply as it can be done. A program of its own.

    python benchmarks/_callers.py PORT CALLERS < JSON lines: [key, body]

Each caller has a connection of its own and sends its share of the lines, one after the other. It prints the median
seconds to the first byte of an answer and to its end, and the seconds that all took together.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time

END, LAST = b"\r\n\r\n", b"0\r\n\r\n"


async def call(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str, body: bytes
) -> tuple[float, float]:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
    writer.write(
        f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    )
    started = time.perf_counter()
    answered = await reader.readuntil(END)
    if not answered.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(answered.decode() + (await reader.read(500)).decode())
    headers = answered.lower()
    if b"chunked" in headers:
        data = await reader.read(1 << 16)
        first = time.perf_counter() - started
        while not data.endswith(LAST):
            data = data[-8:] + await reader.read(1 << 16)
    else:
        length = int(headers.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        await reader.readexactly(length)
        first = time.perf_counter() - started
    return first, time.perf_counter() - started


async def caller(port: int, lines: list[tuple[str, str]], took: list[tuple[float, float]]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    for key, body in lines:
        took.append(await call(reader, writer, key, body.encode()))
    writer.close()


async def main(port: int, callers: int) -> None:
    lines = [tuple(json.loads(line)) for line in sys.stdin]
    took: list[tuple[float, float]] = []
    started = time.perf_counter()
    await asyncio.gather(*(caller(port, lines[place::callers], took) for place in range(callers)))
    wall_s = time.perf_counter() - started
    print(*(statistics.median(times) for times in zip(*took, strict=True)), wall_s)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
