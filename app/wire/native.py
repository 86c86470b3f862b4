"""Turnwire's own frames: one event, one SSE message (contract, section 4).

    id: 17
    event: message.delta
    data: {"type":"message.delta","seq":17,…}

Lines end with LF alone: some clients split on it and fail on CRLF. The first frame of a log also carries
`retry`, inside a message and never as a message of its own, which httpx-sse would show as an empty event.
"""

from app.domain.events import LogEntry
from app.domain.ids import TurnId
from app.wire.base import Frame

RETRY_MS = 2000


class NativeEncoder:
    """The frames of a turn's stream: `id` is the event's number."""

    def encode(self, entry: LogEntry) -> list[Frame]:
        frame = entry.frames.get("native")
        if frame is None:
            frame = entry.frames["native"] = _frame(b"%d" % entry.seq, entry)
        return [frame]


class ConversationEncoder:
    """The frames of a turn within its conversation's stream: `id` is `{turn_id}:{number}`."""

    def __init__(self, turn_id: TurnId) -> None:
        self._turn_id = turn_id.encode()

    def encode(self, entry: LogEntry) -> list[Frame]:
        frame = entry.frames.get("conversation")
        if frame is None:
            frame = entry.frames["conversation"] = _frame(b"%b:%d" % (self._turn_id, entry.seq), entry)
        return [frame]


def _frame(event_id: bytes, entry: LogEntry) -> Frame:
    retry = b"retry: %d\n" % RETRY_MS if entry.seq == 1 else b""
    return b"id: %b\nevent: %b\n%bdata: %b\n\n" % (event_id, entry.type.encode(), retry, entry.data)
