"""Server-sent events: the one place that knows sse-starlette.

Its response type gives the media type, the headers against buffering and the answer to HEAD. How frames are
sent is `streaming`'s, because the library's own way cannot keep the contract: it pings by the clock even while
events flow, between the pieces of a frame too, and ends each ping with a blank line; it sets the hop-by-hop
header `Connection`, which breaks HTTP/2 fronts; it cancels streams by polling the server's signal handler
instead of letting each reach its last frame; and it keeps four tasks and a timer per event for every listener.
"""

from collections.abc import Mapping

from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from app.api.heads import HEAD_ONLY
from app.api.streaming import Streamed, stream

HEARTBEAT = b": ping\n"
"""Without a blank line: with one, clients that have seen an `id` emit an empty message."""


class EventStream(EventSourceResponse):
    """Frames as they are, heartbeats into silence, nothing else."""

    def __init__(self, streamed: Streamed, headers: Mapping[str, str]) -> None:
        super().__init__(
            streamed.frames, headers={"Cache-Control": "no-cache, no-transform", **headers}, ping=0
        )
        del self.headers["connection"]
        self._streamed = streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _is_head(scope):
            await self._streamed.frames.aclose()
            await super().__call__({**scope, "method": "HEAD"}, receive, send)
            return
        head = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await stream(scope, receive, send, self._streamed, head, HEARTBEAT)


def _is_head(scope: Scope) -> bool:
    return scope["method"] == "HEAD" or HEAD_ONLY in scope
