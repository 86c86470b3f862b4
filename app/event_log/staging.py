"""What was appended and not yet handed to the store: numbered, with adjacent deltas of one item joined."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.conversation import Compaction, NewItem
from app.domain.events import Event, MessageDelta, Origin, ReasoningDelta, RefusalDelta, ToolCallDelta
from app.domain.ids import TurnId
from app.domain.ports import EventBatch
from app.event_log.encoding import encoded

_DELTAS = (MessageDelta, RefusalDelta, ReasoningDelta, ToolCallDelta)


@dataclass(slots=True)
class _Staged:
    """`key` says what a delta continues; `parts` are its pieces. Both are None for any other event."""

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

    def add(self, event: Event, origin: Origin | None, items: Sequence[NewItem]) -> None:
        self._items.extend(items)
        if not isinstance(event, _DELTAS):
            self._events.append(_Staged(event, origin))
            return
        key = _continues(event)
        last = self._events[-1] if self._events else None
        if last is not None and last.parts is not None and last.key == key and last.origin == origin:
            last.parts.append(event.delta)
        else:
            self._events.append(_Staged(event, origin, key, [event.delta]))

    def add_items(self, items: Sequence[NewItem]) -> None:
        self._items.extend(items)

    def compact(self, event: Event, compaction: Compaction) -> None:
        self._compaction = compaction
        self.add(event, None, ())

    def take(self) -> EventBatch:
        """Everything, encoded; nothing is left."""
        events, first = self._events, self._first
        batch = EventBatch(
            tuple(
                encoded(_joined(staged), staged.origin, turn_id=self._turn_id, seq=seq)
                for seq, staged in enumerate(events, first)
            ),
            tuple(self._items),
            self._compaction,
        )
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
    event, parts = staged.event, staged.parts
    if parts is None or len(parts) == 1 or not isinstance(event, _DELTAS):
        return event
    return replace(event, delta="".join(parts))
