"""A turn as text for people with curl: what the top agent says, and nothing else.

A blank line stands between messages. A turn that paused, failed or was cancelled says so in a last line in
brackets. Text has no frames, so silence is not broken and a place in it cannot be resumed.
"""

from typing import Any

import orjson

from app.domain.events import LogEntry
from app.domain.json_types import JsonObject
from app.wire.base import Frame

_TEXT = frozenset({"message.delta", "refusal.delta"})
_REMARKABLE = frozenset({"turn.paused", "turn.failed", "turn.cancelled"})


class PlainTextEncoder:
    """Encode every entry of one stream, then send `closing()`."""

    def __init__(self) -> None:
        self._item_id: Any = None
        self._last: LogEntry | None = None

    def encode(self, entry: LogEntry) -> list[Frame]:
        self._last = entry
        if entry.type not in _TEXT:
            return []
        event = orjson.loads(entry.data)
        if event.get("parent_call_id") is not None:
            return []
        begins = self._item_id not in (None, event["item_id"])
        self._item_id = event["item_id"]
        return [(b"\n\n" if begins else b"") + event["delta"].encode()]

    def closing(self) -> list[Frame]:
        """The last line, if the last event was no plain success."""
        if self._last is None or self._last.type not in _REMARKABLE:
            return []
        remark = _remark(orjson.loads(self._last.data)["turn"])
        return [(b"" if self._item_id is None else b"\n\n") + f"[{remark}]\n".encode()]


def _remark(turn: JsonObject) -> str:
    if turn["status"] == "paused":
        return f"paused: waiting for {turn['pause']['reason']}"
    if turn["error"]:
        return f"failed: {turn['error']['code']}: {' '.join(turn['error']['message'].split())}"
    return str(turn["status"])
