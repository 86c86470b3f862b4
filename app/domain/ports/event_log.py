"""What `turns` asks of the event log. `event_log` implements `EventLog` and `TurnLog`."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.conversation import Compaction, NewItem
from app.domain.events import Event, LogEntry, Origin
from app.domain.ids import TurnId
from app.domain.turn import Turn


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Consecutive events of one turn, numbered and encoded, and the history items that came with them.

    A batch is committed in one transaction and published only after that.
    """

    entries: tuple[LogEntry, ...]
    items: tuple[NewItem, ...] = ()
    compaction: Compaction | None = None

    @property
    def last_seq(self) -> int:
        return self.entries[-1].seq


class TurnLog(Protocol):
    """The log of one live turn: one writer, any number of listeners that it never sees."""

    @property
    def turn_id(self) -> TurnId: ...

    @property
    def next_seq(self) -> int:
        """The number that the next appended event gets."""
        ...

    @property
    def published_seq(self) -> int:
        """The number of the last event that listeners can see; 0 if there is none."""
        ...

    def append(self, event: Event, origin: Origin | None = None, items: Sequence[NewItem] = ()) -> None:
        """Add an event; it is kept within moments (with all that was appended in the same loop pass; a delta
        that comes alone at once), and shown to listeners after that. Adjacent deltas of one item in one pass
        are joined. Never blocks."""
        ...

    def add_items(self, items: Sequence[NewItem]) -> None:
        """Add history items without an event; they are committed with the next flush."""
        ...

    def compact(self, event: Event, compaction: Compaction) -> None:
        """Add an event and the compaction that it tells of; both are committed together."""
        ...

    def take(self) -> EventBatch:
        """Everything that was appended and not yet handed to the store, for a transaction of the caller's own.

        The caller commits it (`Store.start`, `pause`, `settle`…) and then calls `publish`.
        """
        ...

    def publish(self, batch: EventBatch) -> None:
        """Show a committed batch to the listeners."""
        ...

    async def flush(self) -> None:
        """Return once everything appended so far is committed; raises StoreUnavailable if it cannot be."""
        ...

    @property
    def failure(self) -> BaseException | None:
        """Why this log can no longer be written, or None."""
        ...


Taker = Callable[[list[LogEntry]], bool]
"""Called with entries in the moment in which they are shown, while the listener waits for them: True if they
are dealt with, so that it need not be woken. What it raises reaches the listener."""


class EventLog(Protocol):
    """All logs: the live ones in memory, the others in the store."""

    def open(self, turn_id: TurnId, *, turn_key: int | None = None, next_seq: int = 1) -> TurnLog:
        """Begin (or go on with) the log of a live turn. `turn_key` may follow later: see `bind`."""
        ...

    def bind(self, log: TurnLog, turn_key: int, conversation_key: int) -> None:
        """Tell the log the database's number of its turn, once admission has given one; those who follow the
        conversation learn of the new turn."""
        ...

    def close(self, turn_id: TurnId) -> None:
        """The turn has paused or ended and its last batch is published: listeners drain and leave."""
        ...

    def cut_all(self) -> None:
        """The service stops: break every listener that is left."""
        ...

    async def turn_changed(self, turn_id: TurnId, after: int) -> None:
        """Wait until the log of a paused turn has an event after number `after`."""
        ...

    def cut(self, turn_id: TurnId) -> None:
        """Break every listener of this log without a terminal frame: nothing more can be written to it."""
        ...

    def tail(
        self,
        turn: Turn,
        after: int,
        *,
        max_listeners: int | None = None,
        taker: Taker | None = None,
    ) -> AsyncGenerator[list[LogEntry], None]:
        """Entries after number `after`, in order, without gap or repeat, until the turn pauses or ends.

        Yields what waits in one list, without what `taker` took. While the turn is live it follows; only
        entries that no end of the process can lose are shown.
        Raises LogCut if the log was cut, EventsExpired if retention removed what was asked for, Overloaded if
        a live turn has `max_listeners` already. Whoever reads closes it.
        """
        ...

    def listeners(self, turn_id: TurnId) -> int: ...

    async def conversation_changed(self, conversation_key: int, after_key: int) -> None:
        """Wait until a turn with a number above `after_key` was admitted to the conversation."""
        ...

    def on_last_listener_left(self, turn_id: TurnId, callback: Callable[[], None]) -> None:
        """Call back each time the number of listeners of a live turn falls to zero."""
        ...


class LogCut(Exception):
    """The stream cannot be brought to a clean end: cut the connection, the listener resumes later."""
