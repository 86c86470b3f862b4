"""A connection that knows at once when its peer is gone, also while nobody reads or writes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

MAX_REQUEST_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class Connection:
    """`gone_at`: the monotonic time at which the peer's end or reset arrived."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    gone_at: float | None = None


class ConnectionProtocol(asyncio.StreamReaderProtocol):
    def __init__(self, serve: Callable[[Connection], Awaitable[None]]) -> None:
        self._serve = serve
        self._connection: Connection | None = None
        super().__init__(asyncio.StreamReader(limit=MAX_REQUEST_BYTES), self._connected)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connection = Connection(reader, writer)
        await self._serve(self._connection)

    def eof_received(self) -> bool | None:
        self._peer_left()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer_left()
        super().connection_lost(exc)

    def _peer_left(self) -> None:
        if self._connection and not self._connection.gone.is_set():
            self._connection.gone_at = time.monotonic()
            self._connection.gone.set()
