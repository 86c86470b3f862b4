"""On loopback, only requests that were meant for it: a page's DNS name that points here is refused.

A web page can make its own name resolve to 127.0.0.1 and then counts as same-origin; its Host gives it away.
"""

import ipaddress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import BadRequest, UnknownHost


class KnownHosts:
    """Lets pass a Host that is loopback or in `allowed`, with or without its port. HTTP/1.0 needs none."""

    def __init__(self, app: ASGIApp, allowed: tuple[str, ...]) -> None:
        self._app = app
        self._allowed = frozenset(name.lower().rstrip(".") for name in allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._check(Headers(scope=scope).getlist("host"), is_needed=scope["http_version"] == "1.1")
        await self._app(scope, receive, send)

    def _check(self, given: list[str], *, is_needed: bool) -> None:
        if len(given) > 1 or (is_needed and not given):
            raise BadRequest("A request has one Host.")
        host = given[0].lower() if given else ""
        name = host_name(host)
        if host and not is_loopback(name) and not {host, name} & self._allowed:
            raise UnknownHost(
                "This service listens on loopback and the Host is another: "
                "add it to TURNWIRE_ALLOWED_HOSTS if it is meant."
            )


def host_name(host: str) -> str:
    """The name of a Host header without its port, brackets and final dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
