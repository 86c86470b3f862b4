"""What was appended and not yet handed to the store: numbered, with adjacent deltas of one item joined."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.conversation import Compaction, NewItem
from app.domain.events import Event, MessageDelta, Origin, ReasoningDelta, RefusalDelta, ToolCallDelta
from app.domain.ids import TurnId
from app.domain.ports import EventBatch
from app.event_log.encoding import encoded

DELTAS = (MessageDelta, RefusalDelta, ReasoningDelta, ToolCallDelta)


@dataclass(slots=True)
class _Staged:
    """`key` says what a delta continues, None for any other event; `parts` are its pieces if there are some."""

    event: Event
    origin: Origin | None
    key: tuple[object, ...] | None = None
    parts: list[str] | None = None


class Staging:
    """Events get their numbers here; they are encoded when they are taken."""

    def __init__(self, turn_id: TurnId, next_seq: int) -> None:
        self._turn_id = turn_id
        self._first = next_seq
        self._events: list[_Staged] = []
        self._items: list[NewItem] = []
        self._compaction: Compaction | None = None

    @property
    def next_seq(self) -> int:
        return self._first + len(self._events)

    def __bool__(self) -> bool:
        return bool(self._events or self._items)

    def is_empty_at(self, seq: int) -> bool:
        """True if nothing waits, and the next event has this number."""
        return self._first == seq and not self._events and not self._items

    def add(self, event: Event, origin: Origin | None, items: Sequence[NewItem]) -> None:
        if items:
            self._items.extend(items)
        if not isinstance(event, DELTAS):
            self._events.append(_Staged(event, origin))
            return
        key = _continues(event)
        last = self._events[-1] if self._events else None
        if last is None or last.key != key or last.origin != origin:
            self._events.append(_Staged(event, origin, key))
        elif last.parts is None:
            last.parts = [_piece(last.event), event.delta]
        else:
            last.parts.append(event.delta)

    def add_items(self, items: Sequence[NewItem]) -> None:
        self._items.extend(items)

    def compact(self, event: Event, compaction: Compaction) -> None:
        self._compaction = compaction
        self.add(event, None, ())

    def one(self, event: Event, origin: Origin | None) -> EventBatch:
        """An event that waits for nothing, past whatever is staged: that must be nothing."""
        entry = encoded(event, origin, turn_id=self._turn_id, seq=self._first)
        self._first += 1
        return EventBatch((entry,))

    def take(self) -> EventBatch:
        """Everything, encoded; nothing is left."""
        events, first = self._events, self._first
        entries = [
            encoded(_joined(staged), staged.origin, turn_id=self._turn_id, seq=seq)
            for seq, staged in enumerate(events, first)
        ]
        batch = EventBatch(tuple(entries), tuple(self._items), self._compaction)
        self._first = first + len(events)
        self._events, self._items, self._compaction = [], [], None
        return batch


def _continues(event: MessageDelta | RefusalDelta | ReasoningDelta | ToolCallDelta) -> tuple[object, ...]:
    match event:
        case ReasoningDelta():
            return event.type, event.item_id, event.kind
        case ToolCallDelta():
            return event.type, event.call_id
        case _:
            return event.type, event.item_id


def _joined(staged: _Staged) -> Event:
    if staged.parts is None or not isinstance(staged.event, DELTAS):
        return staged.event
    return replace(staged.event, delta="".join(staged.parts))


def _piece(event: Event) -> str:
    return event.delta if isinstance(event, DELTAS) else ""
