"""All logs: the live ones in memory, the others in the store."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager

from app.domain.events import ENDING_TYPES, LogEntry
from app.domain.ids import TurnId
from app.domain.ports import LogCut, Store, Taker, TurnLog
from app.domain.turn import Turn
from app.errors import Overloaded
from app.event_log.live_log import LiveLog
from app.event_log.passes import PassWriter
from app.event_log.signals import Signals

YIELD_BYTES = 64 * 1024
"""What one list of `tail` holds at most, if it holds more than one entry."""
_REMEMBERED = 1_000
"""Logs closed last, of which the last number is known without asking the store."""


class EventLogs:
    """See `app.domain.ports.EventLog`. `window_bytes` bounds what a live turn keeps in memory."""

    def __init__(self, store: Store, *, window_bytes: int) -> None:
        self._store = store
        self._passes = PassWriter(store)
        self._window_bytes = window_bytes
        self._live: dict[TurnId, LiveLog] = {}
        self._closed_at: OrderedDict[TurnId, int] = OrderedDict()
        self._admissions: Signals[int] = Signals()
        self._openings: Signals[TurnId] = Signals()
        self._stopped = False

    # --- the logs' owners ---

    def open(self, turn_id: TurnId, *, turn_key: int | None = None, next_seq: int = 1) -> LiveLog:
        """A log that is open already is returned as it is."""
        log = self._live.get(turn_id)
        if log is None:
            log = LiveLog(turn_id, turn_key, next_seq, self._passes, self._window_bytes)
            self._live[turn_id] = log
            self._openings.set(turn_id)
        return log

    def bind(self, log: TurnLog, turn_key: int, conversation_key: int) -> None:
        if (live := self._live.get(log.turn_id)) is not None:  # else it was cut while the turn was admitted
            live.bind(turn_key)
        self._admissions.set(conversation_key)

    def close(self, turn_id: TurnId) -> None:
        if (log := self._live.pop(turn_id, None)) is not None:
            self._remember(log)
            log.close()

    def cut(self, turn_id: TurnId) -> None:
        if (log := self._live.pop(turn_id, None)) is not None:
            log.cut()

    def cut_all(self) -> None:
        self._stopped = True
        for turn_id in list(self._live):
            self.cut(turn_id)
        self._admissions.set_all()
        self._openings.set_all()

    def _remember(self, log: LiveLog) -> None:
        self._closed_at[log.turn_id] = log.published_seq
        self._closed_at.move_to_end(log.turn_id)
        if len(self._closed_at) > _REMEMBERED:
            self._closed_at.popitem(last=False)

    # --- listeners ---

    def listeners(self, turn_id: TurnId) -> int:
        """Of a live turn; 0 for any other."""
        log = self._live.get(turn_id)
        return log.listeners if log else 0

    def on_last_listener_left(self, turn_id: TurnId, callback: Callable[[], None]) -> None:
        if (log := self._live.get(turn_id)) is not None:
            log.when_deserted = callback

    async def conversation_changed(self, conversation_key: int, after_key: int) -> None:
        """Also raises LogCut when the service stops, as `turn_changed` does."""
        while not self._stopped:
            # Taken before the store is asked, so that no admission falls between the two.
            admitted = self._admissions.of(conversation_key)
            if await self._store.next_turn(conversation_key, after_key) is not None:
                return
            await admitted.wait()
        raise LogCut("the service stops")

    async def turn_changed(self, turn_id: TurnId, after: int) -> None:
        while not self._stopped:
            log = self._live.get(turn_id)
            last = log.published_seq if log else self._closed_at.get(turn_id, 0)
            if last > after:
                return
            await (log.change() if log else self._openings.of(turn_id).wait())
        raise LogCut("the service stops")

    async def tail(
        self,
        turn: Turn,
        after: int,
        *,
        max_listeners: int | None = None,
        taker: Taker | None = None,
    ) -> AsyncGenerator[list[LogEntry], None]:
        """Live entries come from memory, those behind the window and those of other turns from the store.

        A turn that pauses and resumes while a listener is behind is followed on.
        """
        place = _Place(turn, after, taker)
        while True:
            log = self._live.get(turn.id)
            with _joined(log, max_listeners):
                while entries := await self._next(log, place):
                    place.move(entries)
                    yield entries
            if self._live.get(turn.id) in (log, None):
                break
            max_listeners = None  # one that was let in stays
        if log is None:
            place.check_end()

    async def _next(self, log: LiveLog | None, place: "_Place") -> list[LogEntry]:
        """What follows, waited for while the log is live; nothing at its end. Raises LogCut."""
        while log is not None and not log.is_cut and place.seq >= log.published_seq:
            if log.ended:
                return []
            await log.change(place.take)
        if log is not None:
            if log.is_cut:
                raise LogCut(f"the log of {log.turn_id} was cut")
            if log.window.holds(place.seq + 1):
                return log.window.after(place.seq, YIELD_BYTES)
        return await self._store.events(place.turn.key, place.seq, max_bytes=YIELD_BYTES)


@contextmanager
def _joined(log: LiveLog | None, max_listeners: int | None) -> Iterator[None]:
    """A listener of a live log, for as long as the block runs. Raises Overloaded."""
    if log is None:
        yield
        return
    if max_listeners is not None and log.listeners >= max_listeners:
        raise Overloaded(
            f"This turn has {log.listeners} listeners, as many as it may. Come back in a moment, with the "
            "id of your last event.",
            retry_after_s=5,
        )
    log.join()
    try:
        yield
    finally:
        log.leave()


class _Place:
    """Where a listener is in a turn's log."""

    def __init__(self, turn: Turn, after: int, taker: Taker | None) -> None:
        self.turn = turn
        self.seq = after
        self._taker = taker
        self._last_type: str | None = None

    def move(self, entries: list[LogEntry]) -> None:
        self.seq = entries[-1].seq
        self._last_type = entries[-1].type

    def take(self, entries: list[LogEntry]) -> bool:
        """Have the listener's taker take them, if they are what follows."""
        if self._taker is None or entries[0].seq != self.seq + 1 or not self._taker(entries):
            return False
        self.seq, self._last_type = entries[-1].seq, entries[-1].type
        return True

    def check_end(self) -> None:
        """Raises LogCut unless the turn has paused or ended here: a clean end always means that."""
        if self._last_type is None:
            at_end = self.turn.ended or self.turn.status == "paused"
        else:
            at_end = self._last_type in ENDING_TYPES
        if not at_end:
            raise LogCut(f"the log of {self.turn.id} goes no further")
