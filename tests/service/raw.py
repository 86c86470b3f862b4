"""HTTP by hand, for what a well-behaved client never does: stop reading, reset, speak HTTP/1.0."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

SMALL_BUFFER = 4096


class RawConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        version: str = "1.1",
    ) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        fields = {"host": "127.0.0.1", "content-length": str(len(content))} | dict(headers or {})
        if body is not None:
            fields.setdefault("content-type", "application/json")
        lines = [f"{method} {path} HTTP/{version}", *(f"{name}: {value}" for name, value in fields.items())]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + content)
        await self._writer.drain()

    async def send_raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def shut(self) -> None:
        """Close the sending side alone."""
        self._writer.write_eof()

    async def head(self) -> bytes:
        """The status line and headers."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def until(self, marker: bytes) -> bytes:
        return await self.reader.readuntil(marker)

    async def rest(self) -> bytes:
        """Everything until the peer closes."""
        return await self.reader.read()

    def reset(self) -> None:
        """Abort, so that the peer gets a reset."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def stop_reading(self) -> None:
        transport: asyncio.ReadTransport = self._writer.transport  # type: ignore[assignment]
        transport.pause_reading()

    def read_on(self) -> None:
        transport: asyncio.ReadTransport = self._writer.transport  # type: ignore[assignment]
        transport.resume_reading()

    async def close(self) -> None:
        """Close, and wait until it is closed: a socket that is left to the garbage is a warning."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


@asynccontextmanager
async def raw_connection(address: tuple[str, int], *, small: bool = False) -> AsyncIterator[RawConnection]:
    """A connection of one's own; `small`: its receive buffer holds little, as if the network were full."""
    sock = socket.socket()
    if small:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, address)
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 26)
    connection = RawConnection(reader, writer)
    try:
        yield connection
    finally:
        await connection.close()
