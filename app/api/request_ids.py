"""Each request has an id that the answer, its problem and every log line carry; and no answer goes bare."""

import re

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.domain.ids import new_request_id
from app.observability.logs import log_context

REQUEST_ID = "turnwire.request_id"
_SANE = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class RequestIds:
    """Takes the caller's `X-Request-Id` if it is sane, else makes one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope[REQUEST_ID] = _given(scope) or new_request_id()

        async def name(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                for header, value in _SAFE.items():
                    headers.setdefault(header, value)
            await send(message)

        with log_context(request_id=request_id):
            await self._app(scope, receive, name)


def _given(scope: Scope) -> str | None:
    for header, value in scope["headers"]:
        if header == b"x-request-id":
            given = value.decode("latin-1")
            return given if _SANE.fullmatch(given) else None
    return None
