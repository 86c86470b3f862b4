"""The little HTTP that the upstream needs: read a request, write an answer. No framework, nothing hidden."""

import asyncio
import json
import socket
import struct
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.upstream.plan import Head


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.body or b"{}")
        return value


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request of a connection, None once the peer has closed it."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.split("\r\n")
        method, target, _ = line.split(" ", 2)
        headers = {n.strip().lower(): v.strip() for n, _, v in (f.partition(":") for f in fields) if n}
        body = await _read_body(reader, headers)
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        return None
    url = urlsplit(target)
    query = {name: values[-1] for name, values in parse_qs(url.query).items()}
    return Request(method, url.path, query, headers, body)


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return body


def head_bytes(head: Head) -> bytes:
    phrase = HTTPStatus(head.status).phrase
    fields = dict(head.headers)
    if head.length is None:
        fields["transfer-encoding"] = "chunked"
    else:
        fields["content-length"] = str(head.length)
    lines = [f"HTTP/1.1 {head.status} {phrase}", *(f"{n}: {v}" for n, v in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def json_answer(value: Any, status: int = 200) -> bytes:
    body = json.dumps(value).encode()
    return head_bytes(Head(status, {"content-type": "application/json"}, len(body))) + body


def reset(writer: asyncio.StreamWriter) -> None:
    """Abort the connection so that the peer gets a reset, not an end."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
