"""A client that costs next to nothing: it counts frames and notes when each came.

Frames are read from the bytes as they are: the chunked encoding's own lines never stand within one.
"""

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

TURN_ID = re.compile(rb"x-turn-id: (\S+)", re.IGNORECASE)
DELTA = re.compile(rb'"delta": ?"([^"]*)"')
IS_DELTA = (b"event: message.delta", b'"type": "response.output_text.delta"')
"""A delta of the service, and one of the upstream itself."""
UPSTREAMS_END = b'"type": "response.completed"'
ENDINGS = (b"event: turn.completed", b"event: turn.failed", b"event: turn.cancelled")
LIMIT_S = 120


@dataclass(slots=True)
class Reading:
    """What one answer was: `deltas` are the texts and arrivals of its delta events."""

    sent_at: float
    turn_id: str = ""
    status: int = 0
    size: int = 0
    events: int = 0
    first_event_at: float = 0.0
    ended_at: float = 0.0
    ending: bytes = b""
    deltas: list[tuple[bytes, float]] = field(default_factory=list)

    @property
    def latencies(self) -> list[float]:
        """Of paced deltas: from the upstream's write to here, joined ones each for itself."""
        return [at - float(word) for text, at in self.deltas for word in text.split()]


class Reader(asyncio.Protocol):
    def __init__(self, request: bytes, *, keep_deltas: bool) -> None:
        self.reading = Reading(time.monotonic())
        self.done: asyncio.Future[Reading] = asyncio.get_running_loop().create_future()
        self.begun = asyncio.Event()
        self.has_delta = asyncio.Event()
        self.finished = asyncio.Event()
        self.transport: asyncio.Transport | None = None
        self._request = request
        self._keep_deltas = keep_deltas
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self.reading.sent_at = time.monotonic()
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self.reading.size += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n\n")
        for frame in whole:
            self._take(frame, now)

    def _take(self, frame: bytes, now: float) -> None:
        reading = self.reading
        if not reading.status:
            reading.status = int(frame.split(b" ", 2)[1])
            turn = TURN_ID.search(frame)
            reading.turn_id = turn[1].decode() if turn else ""
        if b"data: " not in frame:
            return
        reading.events += 1
        if reading.events == 1:
            reading.first_event_at = now
            self.begun.set()
        if any(mark in frame for mark in IS_DELTA):
            self.has_delta.set()
            if self._keep_deltas:
                reading.deltas.append((DELTA.search(frame)[1], now))  # type: ignore[index]
        elif any(ending in frame for ending in ENDINGS):
            reading.ending = next(ending for ending in ENDINGS if ending in frame)
            reading.ended_at = now
        elif UPSTREAMS_END in frame:
            self.finished.set()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(self.reading)


class Client:
    """Requests to one service, each on a connection of its own."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80

    async def open(
        self, method: str, path: str, body: Any = None, *, keep_deltas: bool = True, **headers: str
    ) -> Reader:
        content = b"" if body is None else json.dumps(body).encode()
        fields = {"host": self.host, "connection": "close", "content-length": str(len(content)), **headers}
        fields |= {"content-type": "application/json"} if content else {}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        request = "\r\n".join(lines).encode() + content
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(
            lambda: Reader(request, keep_deltas=keep_deltas), self.host, self.port
        )
        return protocol

    async def start(
        self, said: str, *, conversation: str | None = None, keep_deltas: bool = True, **fields: Any
    ) -> Reader:
        """POST a turn and return as soon as the request is sent."""
        path = f"/v1/conversations/{conversation}/turns" if conversation else "/v1/turns"
        body = {"input": said, **fields}
        return await self.open("POST", path, body, keep_deltas=keep_deltas, accept="text/event-stream")

    async def turn(self, said: str, **options: Any) -> Reading:
        """POST a turn and read it to its end. Raises AssertionError unless it is completed."""
        reader = await self.start(said, **options)
        return await whole(reader)

    async def listen(self, turn_id: str, *, keep_deltas: bool = True) -> Reader:
        return await self.open("GET", f"/v1/turns/{turn_id}/events", keep_deltas=keep_deltas)

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes, float]:
        """Any other request: status, body, seconds."""
        began = time.monotonic()
        content = b"" if body is None else json.dumps(body).encode()
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 26)
        head = f"{method} {path} HTTP/1.1\r\nhost: {self.host}\r\nconnection: close\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        answer = await asyncio.wait_for(reader.read(), LIMIT_S)
        writer.close()
        took = time.monotonic() - began
        front, _, rest = answer.partition(b"\r\n\r\n")
        return int(front.split(b" ", 2)[1]), rest, took


async def whole(reader: Reader) -> Reading:
    """The reading once its answer has ended, which must be that of a completed turn."""
    reading = await asyncio.wait_for(reader.done, LIMIT_S)
    assert reading.ending == ENDINGS[0], f"the turn was not completed: {reading.status} {reading.ending!r}"
    return reading


def leave(reader: Reader) -> None:
    """Drop the connection."""
    if reader.transport is not None:
        reader.transport.abort()
