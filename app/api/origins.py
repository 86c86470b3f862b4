"""Web pages that reach for the service: only those of `TURNWIRE_CORS_ORIGINS`, and its own (CORS).

A foreign page's request is refused before anything is done, not only its answer hidden from it: some requests
do their harm without being read.
"""

import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import OriginForbidden

EXPOSED = "Location, Retry-After, X-Turn-Id, X-Conversation-Id, X-Request-Id"
_METHODS = "GET, HEAD, POST, PATCH, DELETE"
_REQUESTABLE = (
    "Accept, Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Turnwire-User, X-Request-Id"
)
_HEADER_NAMES = re.compile(r"[A-Za-z0-9_, -]{1,1000}")
_PREFLIGHT_S = 600
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Origins:
    """403 for a foreign Origin, the CORS headers for an allowed one, and the answer to preflights."""

    def __init__(self, app: ASGIApp, allowed: tuple[str, ...]) -> None:
        self._app = app
        self._everybody = "*" in allowed
        self._allowed = frozenset(origin.lower().rstrip("/") for origin in allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        origin = headers.get("origin")
        if origin is None or _is_same(origin, headers.get("host", "")):
            await self._app(scope, receive, send)
            return
        if not self._everybody and origin.lower() not in self._allowed:
            raise OriginForbidden("A page of this origin may not use the service: see TURNWIRE_CORS_ORIGINS.")
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight(origin, headers)(scope, receive, send)
            return
        await self._app(scope, receive, _readable(origin, send))


def _is_same(origin: str, host: str) -> bool:
    """True if the origin is this service as the client addressed it, behind whatever scheme."""
    try:
        parts = urlsplit(origin.lower())
    except ValueError:
        return False
    return bool(parts.netloc) and host.lower() in (
        parts.netloc,
        parts.netloc + _DEFAULT_PORTS.get(parts.scheme, ""),
        parts.netloc.removesuffix(_DEFAULT_PORTS.get(parts.scheme, "")),
    )


def _readable(origin: str, send: Send) -> Send:
    async def add_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = EXPOSED
            headers.add_vary_header("Origin")
        await send(message)

    return add_headers


def _preflight(origin: str, headers: Headers) -> Response:
    """An allowed page may send any header: SDKs in browsers add their own."""
    requested = headers.get("access-control-request-headers", "")
    allowed = {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Allow-Headers": requested if _HEADER_NAMES.fullmatch(requested) else _REQUESTABLE,
        "Access-Control-Max-Age": str(_PREFLIGHT_S),
        "Vary": "Origin, Access-Control-Request-Headers",
    }
    if headers.get("access-control-request-private-network") == "true":
        allowed["Access-Control-Allow-Private-Network"] = "true"
    return Response(status_code=204, headers=allowed)
