"""HEAD wherever there is GET: the same answer without its body, and without beginning its stream."""

from starlette.types import ASGIApp, Receive, Scope, Send

HEAD_ONLY = "turnwire.head"


class HeadAsGet:
    """Routes HEAD as GET. The server drops the body; a stream looks for `HEAD_ONLY` and does not begin."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", HEAD_ONLY: True}
        await self._app(scope, receive, send)
