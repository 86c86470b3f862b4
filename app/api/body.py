"""The body of a request: read under limits, checked, and only then given to FastAPI.

`JsonRoute` reads each POST and PATCH before FastAPI does, so that a body is refused by our rules and FastAPI
still validates it, names unknown fields and documents it.
"""

from collections.abc import Callable, Coroutine
from email.message import Message
from typing import Any

import anyio
from anyio import CapacityLimiter, to_thread
from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.api.strict_json import MAX_DEPTH, parse
from app.errors import BadRequest, BodyTooLarge, UnsupportedMediaType

BIG = 64 * 1024
"""Bodies beyond this are parsed in a thread."""
SILENCE_S = 15
WHOLE_S = 120
"""A body must come with no gap longer than SILENCE_S, and be there after WHOLE_S."""


class BodyReader:
    """Reads bodies for one event loop; a few large ones at a time are parsed, the others wait."""

    def __init__(
        self,
        max_bytes: int,
        max_depth: int = MAX_DEPTH,
        *,
        silence_s: float = SILENCE_S,
        whole_s: float = WHOLE_S,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_depth = max_depth
        self._silence_s = silence_s
        self._whole_s = whole_s
        self._threads = CapacityLimiter(2)

    async def read(self, request: Request) -> "JsonRequest":
        """The request with its body read and parsed. Raises UnsupportedMediaType, BodyTooLarge, BadRequest."""
        check_content_type(request)
        raw = await self._receive(request)
        value = None
        if len(raw) > BIG:
            value = await to_thread.run_sync(parse, raw, self._max_depth, limiter=self._threads)
        elif raw:
            value = parse(raw, self._max_depth)
        return JsonRequest(request, raw, value)

    async def _receive(self, request: Request) -> bytes:
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self._max_bytes:
            raise self._too_large()
        parts = bytearray()
        pieces = aiter(request.stream())
        try:
            with anyio.fail_after(self._whole_s):
                while (piece := await self._next(pieces)) is not None:
                    parts += piece
                    if len(parts) > self._max_bytes:
                        raise self._too_large()
        except TimeoutError:
            raise BadRequest(
                f"The body did not arrive: {len(parts)} bytes came, then too little for too long.", close=True
            ) from None
        return bytes(parts)

    async def _next(self, pieces: Any) -> bytes | None:
        with anyio.fail_after(self._silence_s):
            return await anext(pieces, None)

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"The body is larger than {self._max_bytes} bytes, the most that is taken.")


class JsonRequest(Request):
    """A request whose body is known; `value` is its JSON, None if it is empty."""

    def __init__(self, request: Request, raw: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self.raw = raw
        self.value = value

    async def body(self) -> bytes:
        return self.raw

    async def json(self) -> Any:
        return self.value


class JsonRoute(APIRoute):
    """A route that takes JSON by our rules, see `BodyReader`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def read_and_handle(request: Request) -> Response:
            if request.method in ("POST", "PATCH"):
                bodies: BodyReader = request.state.api.bodies
                request = await bodies.read(request)
            return await handle(request)

        return read_and_handle


def check_content_type(request: Request) -> None:
    """Only `application/json`, also with an empty body: what a web page can send without asking is refused."""
    given = request.headers.get("content-type", "")
    message = Message()
    message["content-type"] = given
    charset = str(message.get_param("charset", "utf-8")).lower()
    if message.get_content_type() != "application/json" or not given or charset not in ("utf-8", "utf8"):
        raise UnsupportedMediaType("The Content-Type must be application/json, in UTF-8.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("The body must not be compressed.")
