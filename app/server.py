"""How the service meets the network: its socket, its connections, and the signals that stop it.

Stock uvicorn closes its listening socket at the first signal, lets streams be cancelled and exits 143. Here the
first SIGTERM or SIGINT makes the service drain while it goes on answering; only after that does uvicorn stop,
and the process exits 0. A second signal exits at once.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from types import FrameType
from typing import Any

import httptools
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.api.answers import dumps
from app.api.error_handlers import PROBLEM
from app.api.streaming import CONNECTION
from app.domain.ids import new_request_id

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024
HEAD_WITHIN_S = 20
"""A connection that has sent no whole request head by then is closed."""
_OFFERS = frozenset({b"connection", b"upgrade", b"http2-settings"})
_RESET = struct.pack("ii", 1, 0)
KEEP_ALIVE_S = 75
"""Longer than proxies keep theirs (nginx: 60), so that it is they who close an idle connection."""
LAST_ANSWERS_S = 5
"""How long uvicorn waits for answers that were still being sent when the service had drained."""


class Connection(HttpToolsProtocol):
    """A connection whose request heads are bounded in size and time, and which an answer can abort.

    No other protocol is spoken here. uvicorn would take what follows a request that offers one as that
    protocol's: the body of Java's first request, which offers HTTP/2, or the next request.
    """

    _head_bytes = 0
    _in_head = False
    _set_aside = False
    """True while the parser is within a request that offers another protocol."""
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.cycle is None or self.cycle.response_complete:
            # Whatever comes ends uvicorn's wait for a next request, also blank lines, which begin none.
            self._await_head()
        self._unset_keepalive_if_required()
        waiting: bytes | None = data
        while waiting is not None:
            waiting = self._parsed(waiting)

    def _parsed(self, data: bytes) -> bytes | None:
        """Have the parser take `data`; what is to be taken after that, None if nothing is."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            logger.debug("what came is no HTTP request")
            self.send_400_response("")
        except httptools.HttpParserUpgrade as upgrade:
            if self._set_aside:
                return self._without_offer() + data[upgrade.args[0] :]
            # A tunnel: whatever follows is no request.
            self.cycle.keep_alive = False
        return None

    def _without_offer(self) -> bytes:
        """The head of the request that was set aside, for a new parser, without its offer of a protocol."""
        version = self.parser.get_http_version().encode()
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + version]
        lines += [name + b": " + value for name, value in self.headers if name not in _OFFERS]
        if any(b"close" in value.lower() for name, value in self.headers if name == b"connection"):
            lines.append(b"connection: close")
        self._set_aside = False
        self.parser = httptools.HttpRequestParser(self)
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0
        self._await_head()
        self.scope["extensions"] = {CONNECTION: {"abort": self._abort}}

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        if self._in_head:  # else it is a trailer, which may say nothing of who asks and what for
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._set_aside = True
            return
        self._head_came()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._set_aside:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._set_aside:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, f"The head of the request is larger than {MAX_HEAD_BYTES} bytes.")
        else:
            self._refuse(400, "This is no HTTP request.")

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if _is_http_1_0(cycle.scope):
            app = _unframed(app, cycle)
        else:
            cycle.scope["extensions"][CONNECTION]["write"] = _write_to(cycle)
        super()._start_asgi_task(cycle, app)

    def _abort(self) -> None:
        """Under HTTP/1.0 only a reset tells a body that was cut from one that has ended."""
        if _is_http_1_0(self.cycle.scope):
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def _refuse(self, status: int, detail: str) -> None:
        """A problem answer to what never became a request."""
        title = HTTPStatus(status).phrase
        problem = {
            "type": "urn:turnwire:problem:bad_request",
            "title": title,
            "status": status,
            "detail": detail,
        }
        content = dumps({**problem, "code": "bad_request", "request_id": new_request_id()})
        head = f"HTTP/1.1 {status} {title}\r\ncontent-type: {PROBLEM}\r\ncontent-length: {len(content)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + content)
        self.transport.close()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise ValueError("the head is too large")  # the parser reports it: `send_400_response`

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_WITHIN_S, self.transport.close)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _write_to(cycle: RequestResponseCycle) -> Callable[[bytes], bool]:
    """What uvicorn's `send` does with a piece of a chunked body, if it need not wait."""

    def write(data: bytes) -> bool:
        if cycle.flow.write_paused or cycle.disconnected or cycle.response_complete:
            return False
        if not (cycle.response_started and cycle.chunked_encoding):
            return False
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    return write


def _is_http_1_0(scope: Any) -> bool:
    return str(scope["http_version"]) == "1.0"


def _unframed(app: Any, cycle: RequestResponseCycle) -> Any:
    """The app for a client of HTTP/1.0, which knows no chunks; uvicorn would send them all the same.

    The body is as long as it turns out to be, and ends with the connection.
    """

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        cycle.chunked_encoding = False

        async def send_plain(message: Any) -> None:
            cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_plain)

    return serve


class Server(uvicorn.Server):
    """`drain` ends what runs, with every stream's last frame; it is bounded in time."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.state: dict[str, Any] = {}
        """What the app's lifespan yielded: every request gets it."""
        self.drain: Callable[[], Awaitable[None]] | None = None
        self._signalled = False
        self._draining: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.lifespan.state.update(self.state)
        await super().startup(sockets)
        for listening in sockets or []:
            host, port = listening.getsockname()[:2]
            logger.info("service.started", extra={"event": "service.started", "host": host, "port": port})

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._signalled:
            os._exit(128 + sig)
        self._signalled = True
        self._loop.call_soon_threadsafe(self._begin_to_stop)

    def _begin_to_stop(self) -> None:
        logger.info("service.stopping", extra={"event": "service.stopping"})
        self._draining = self._loop.create_task(self._drain_and_stop())

    async def _drain_and_stop(self) -> None:
        try:
            if self.drain is not None:
                await self.drain()
        finally:
            self.should_exit = True


def config(app: FastAPI) -> uvicorn.Config:
    """uvicorn as we use it. The lifespan is run around the server, so that a failed start is one clear line."""
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=LAST_ANSWERS_S,
    )


def listen(host: str, port: int, stall_s: float) -> socket.socket:
    """The listening socket; port 0 picks one. Raises OSError.

    A peer that acknowledges nothing, or keeps its window shut, for `stall_s` is dropped by the kernel too:
    it holds what the process has already handed over. Children do not inherit it: one that outlives a killed
    service would keep its port.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(stall_s * 1000))
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening
