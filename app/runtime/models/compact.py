"""A Responses upstream's own compaction: `POST /responses/compact`, as the SDK's compaction session uses it.

What comes back is a shorter history in the provider's own form: the user's messages, and one item that only
the provider can read.
"""

from collections.abc import Sequence
from typing import Any, Final

from anyio import to_thread

from app.domain.history import repaired
from app.domain.json_types import Item
from app.domain.usage import TokenCounts
from app.runtime.models.counts import token_counts
from app.runtime.models.json_frames import dumps
from app.runtime.models.outgoing import for_responses
from app.runtime.models.reply import Reply, protocol_failure
from app.runtime.models.transport import Outgoing, RefusedRequest, Upstream

NO_SUCH_ROUTE: Final = frozenset({404, 405, 410, 501})


async def compacted(upstream: Upstream, model: str, items: Sequence[Item]) -> Reply | None:
    """The shorter history; None if the upstream has no compaction. Raises UpstreamFailure."""

    def body() -> bytes:
        return dumps({"model": model, "input": for_responses(repaired(items), upstream.name)})

    decoder = _Document()
    try:
        await upstream.exchange(Outgoing("/responses/compact", await to_thread.run_sync(body)), decoder)
    except RefusedRequest as refusal:
        if refusal.status in NO_SUCH_ROUTE:
            return None
        raise
    return decoder.finish()


class _Document:
    """Reads a JSON document; a stream is no answer. See `reply.Decoder`."""

    shown = False

    def __init__(self) -> None:
        self.whole = self.done = False
        self._reply: Reply | None = None

    @property
    def counts(self) -> TokenCounts | None:
        return self._reply.counts if self._reply else None

    def feed(self, name: bytes, frame: Any) -> None:
        raise protocol_failure("a stream instead of a document")

    def feed_whole(self, body: Any) -> bool:
        output = body.get("output") if isinstance(body, dict) else None
        if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
            return False
        self._reply = Reply(_replayable(output), token_counts(body.get("usage")))
        self.whole = self.done = True
        return True

    def end(self) -> None:
        pass

    def finish(self) -> Reply:
        if self._reply is None or not any(i.get("type") == "compaction" for i in self._reply.output):
            raise protocol_failure("nothing was compacted")
        return self._reply

    def accept(self) -> None:
        pass


def _replayable(output: Sequence[Item]) -> list[Item]:
    """Messages come back without their ids: the reasoning that some of them belong to is gone."""
    return [
        {k: v for k, v in item.items() if k != "id"} if item.get("type", "message") == "message" else item
        for item in output
    ]
