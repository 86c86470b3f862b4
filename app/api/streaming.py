"""An answer that is sent while it comes into being: to whoever listens, for as long as it listens.

What the contract asks of every stream is done here, for SSE, waiting JSON and text alike:

- it opens at once, unless an error comes first: that is a problem answer then;
- silence is broken by a filler, where the form has one;
- a listener that takes nothing is cut, one that leaves is let go, and neither leaves anything behind;
- what waits for it is bounded: the server's write buffer and one piece;
- a clean end is the last chunk; whatever else happens ends without it, by cutting the connection.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
from anyio import CancelScope
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from app.domain.ports import LogCut
from app.errors import StoreUnavailable, TurnwireError
from app.observability.metrics import Metrics

logger = logging.getLogger(__name__)

CONNECTION = "turnwire.connection"
"""The ASGI extension of our server: `abort()` breaks the connection off; `write(data)`, where there is one,
sends a piece of a body past the middlewares, which look at an answer's head alone, and returns False if that
had to wait."""
PIECE = 64 * 1024
OPEN_WITHIN_S = 0.05
"""How long the head of an answer waits for the first event, or for the error that comes instead."""
GONE_WITHIN_S = 1

Frames = AsyncGenerator[bytes, None]
Write = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Seconds: of silence before it is broken, and of a socket that takes nothing before it is cut."""

    heartbeat_s: float
    stall_s: float


class Listener:
    """One response under way. `run` returns when it is over, and raises only if nothing was sent yet."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        write: Write | None,
        head: Message,
        filler: bytes | None,
        limits: StreamLimits,
    ) -> None:
        self._receive = receive
        self._send = send
        self._write = write
        self._head = head
        self._filler = filler
        self._limits = limits
        self._now = asyncio.get_running_loop().time
        self._last_sent = self._now()
        self._sending_since: float | None = None
        self.opened = False
        self.stalled = False
        self._whole = False
        self._failure: Exception | None = None

    async def run(self, frames: Frames) -> Literal["whole", "left", "stalled"]:
        """Send all frames. Raises what they raised."""
        async with aclosing(frames), anyio.create_task_group() as group:
            group.start_soon(self._watch_for_disconnect, group.cancel_scope)
            group.start_soon(self._keep_alive, group.cancel_scope)
            # In a task of its own: a frame wakes that alone, and not all the middleware's calls above this one.
            group.start_soon(self._forward, frames, group.cancel_scope)
        if self._failure is not None:
            raise self._failure
        return "whole" if self._whole else "stalled" if self.stalled else "left"

    async def _forward(self, frames: Frames, scope: CancelScope) -> None:
        try:
            await self._forward_all(frames)
            self._whole = True
        except Exception as error:  # noqa: BLE001 - carried out of the group, which would wrap it
            self._failure = error
        scope.cancel()

    async def _forward_all(self, frames: Frames) -> None:
        async for data in frames:
            if not self.opened:
                await self._open()
            for start in range(0, len(data), PIECE):
                await self._put(_body(data[start : start + PIECE]))
        if not self.opened:
            await self._open()
        await self._put(_body(b"", more=False))

    async def _open(self) -> None:
        self.opened = True
        await self._put(self._head)

    async def _put(self, message: Message) -> None:
        self._last_sent = self._sending_since = self._now()
        await self._send(message)
        self._sending_since = None

    def put_at_once(self, data: bytes) -> bool:
        """Send a piece without waiting. False if it cannot be: then it is to come as a frame."""
        if self._write is None or self._sending_since is not None or not self.opened or len(data) > PIECE:
            return False
        if not self._write(data):
            return False
        self._last_sent = self._now()
        return True

    async def _watch_for_disconnect(self, scope: CancelScope) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        # The kernel drops a peer that takes nothing at about the same time (see `server.listen`), often first.
        since = self._sending_since
        self.stalled = since is not None and self._now() - since >= self._limits.stall_s / 2
        scope.cancel()

    async def _keep_alive(self, scope: CancelScope) -> None:
        """Open the answer if nothing else has, break silence, and notice a socket that takes nothing."""
        await anyio.sleep(OPEN_WITHIN_S)
        if not self.opened:
            self.opened = True
            await self._put_aside(self._head)
        while not self.stalled:
            await anyio.sleep(self._until_due())
            now = self._now()
            if self._sending_since is not None:
                self.stalled = now - self._sending_since >= self._limits.stall_s
            elif self._filler and now - self._last_sent >= self._limits.heartbeat_s:
                await self._put_aside(_body(self._filler))
        scope.cancel()

    def _until_due(self) -> float:
        if self._sending_since is not None:
            return max(0.0, self._sending_since + self._limits.stall_s - self._now())
        return max(0.0, self._last_sent + self._limits.heartbeat_s - self._now()) if self._filler else 1.0

    async def _put_aside(self, message: Message) -> None:
        """Send between frames: whoever sends a frame, or a piece of one, has set `_sending_since`."""
        with anyio.move_on_after(self._limits.stall_s) as limit:
            await self._send(message)
        self.stalled = limit.cancelled_caught
        self._last_sent = self._now()


def _body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def stream(
    scope: Scope, receive: Receive, send: Send, answer: "Streamed", head: Message, filler: bytes | None
) -> None:
    """Serve one listener to its end, clean or cut. Raises what went wrong if nothing was sent yet."""
    write = _connection(scope).get("write")
    listener = Listener(receive, send, write, head, filler, answer.limits)
    answer.outlet.put = listener.put_at_once
    try:
        with answer.metrics.listening():
            outcome = await listener.run(answer.frames)
    except Exception as error:  # an answer that has begun ends here, whatever went wrong
        if not listener.opened:
            if isinstance(error, LogCut):
                raise StoreUnavailable("The turn's events cannot be read just now: try again.") from error
            raise
        defect = not isinstance(error, LogCut | TurnwireError)
        logger.warning(
            "stream.cut", exc_info=defect, extra={"event": "stream.cut", "reason": type(error).__name__}
        )
        await _cut(scope, receive)
        return
    if outcome == "stalled":
        answer.metrics.listener_stalled()
        logger.warning("stream.cut", extra={"event": "stream.cut", "reason": "stalled"})
        await _cut(scope, receive)


async def _cut(scope: Scope, receive: Receive) -> None:
    """Break the connection off, without the chunk that would make it look whole.

    Under another server than ours the app returns without having finished, which uvicorn takes as a defect of
    the app's: it logs a line and closes, once what it has buffered is sent.
    """
    abort = _connection(scope).get("abort")
    if abort is None:
        return
    abort()
    with anyio.move_on_after(GONE_WITHIN_S):
        while (await receive())["type"] != "http.disconnect":
            pass


def _takes_nothing(_data: bytes) -> bool:
    return False


def _connection(scope: Scope) -> Mapping[str, Any]:
    connection: Mapping[str, Any] = (scope.get("extensions") or {}).get(CONNECTION) or {}
    return connection


class Outlet:
    """Where a frame may go in the moment in which it is made, if the connection takes it: past the task that
    forwards frames, whose wake-up costs more than the write."""

    def __init__(self) -> None:
        self.put: Write = _takes_nothing


@dataclass(slots=True)
class Streamed:
    """What is streamed, and how: `frames`, without what went to the outlet, is closed at the end."""

    frames: Frames
    limits: StreamLimits
    metrics: Metrics
    outlet: Outlet = field(default_factory=Outlet)


class StreamedAnswer(Response):
    """Text, or JSON that is waited for: `filler` is sent into silence."""

    def __init__(
        self, streamed: Streamed, media_type: str, headers: Mapping[str, str], filler: bytes | None
    ) -> None:
        unbuffered = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no", **headers}
        super().__init__(None, 200, unbuffered, media_type)
        del self.headers["content-length"]
        self._streamed = streamed
        self._filler = filler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await stream(scope, receive, send, self._streamed, head, self._filler)
