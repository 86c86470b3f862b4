"""The log of one live turn: what is appended goes to the store, what is safe there goes to the listeners.

Events alone go into the journal, at the end of the loop pass in which they were appended (`PassWriter`), and
are shown at once. What has history items with it takes a transaction: at most one is on its way, and what
gathers meanwhile goes behind it. A batch is shown only when all before it were, so that listeners see the log
in its order.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from app.domain.conversation import Compaction, NewItem
from app.domain.events import Event, Origin
from app.domain.ids import TurnId
from app.domain.ports import EventBatch, Taker
from app.errors import StoreUnavailable
from app.event_log.staging import DELTAS, Staging
from app.event_log.window import Window


class Passes(Protocol):
    """How a log gets to the store: see `PassWriter`."""

    def schedule(self, log: "LiveLog") -> None: ...

    def keep(self, batches: "Sequence[tuple[LiveLog, EventBatch]]") -> None: ...

    def write(self, logs: "Iterable[LiveLog]") -> None: ...

    def submit(self, turn_key: int, batch: EventBatch) -> asyncio.Future[None]: ...


class LiveLog:
    """See `app.domain.ports.TurnLog`.

    Until the turn has its key (`bind`) nothing is scheduled and the loop is not touched, so that admission can
    append and take on the store's thread.
    """

    def __init__(
        self, turn_id: TurnId, turn_key: int | None, next_seq: int, passes: Passes, window_bytes: int
    ) -> None:
        self.turn_id = turn_id
        self.turn_key = turn_key
        self.window = Window(next_seq, window_bytes)
        self.listeners = 0
        self.when_deserted: Callable[[], None] | None = None
        self._passes = passes
        self._waiters: dict[asyncio.Future[None], Taker | None] = {}
        self._staging = Staging(turn_id, next_seq)
        self._scheduled = False
        self._alone_at = 0
        """The millisecond in which an event was written alone."""
        self._in_flight: asyncio.Future[None] | None = None
        self._held: dict[int, EventBatch] = {}
        self._failure: BaseException | None = None
        self._closed = False
        self._cut = False

    # --- writing ---

    @property
    def next_seq(self) -> int:
        return self._staging.next_seq

    @property
    def published_seq(self) -> int:
        return self.window.last_seq

    @property
    def key(self) -> int:
        """Of a log that is bound."""
        assert self.turn_key is not None  # noqa: S101 - narrows the type: only bound logs are written
        return self.turn_key

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    def append(self, event: Event, origin: Origin | None = None, items: Sequence[NewItem] = ()) -> None:
        if isinstance(event, DELTAS) and not items and self._goes_alone():
            self._passes.keep([(self, self._staging.one(event, origin))])
            return
        self._staging.add(event, origin, items)
        self._schedule()

    def add_items(self, items: Sequence[NewItem]) -> None:
        self._staging.add_items(items)
        self._schedule()

    def compact(self, event: Event, compaction: Compaction) -> None:
        self._staging.compact(event, compaction)
        self._schedule()

    def bind(self, turn_key: int) -> None:
        self.turn_key = turn_key
        if self._staging:
            self._schedule()

    def take(self) -> EventBatch:
        return self._staging.take()

    def publish(self, batch: EventBatch) -> None:
        """A batch whose predecessors are still on their way waits for them."""
        if not batch.entries:
            return
        if not self._held and batch.entries[0].seq == self.window.last_seq + 1:
            self.window.add(batch.entries)
            self._offer(batch)
            return
        self._held[batch.entries[0].seq] = batch
        shown = False
        while next_batch := self._held.pop(self.window.last_seq + 1, None):
            self.window.add(next_batch.entries)
            shown = True
        if shown:
            self._wake()

    async def flush(self) -> None:
        if self.turn_key is None and self._staging:
            raise RuntimeError(f"the log of {self.turn_id} has no key yet: admission takes its first batch")
        # Once for what is on its way, once for what has gathered since.
        for _ in range(2):
            self._passes.write((self,))
            if self._in_flight is not None:
                await asyncio.wait([self._in_flight])
        if self._failure is not None:
            raise _as_unavailable(self._failure)

    def due(self) -> EventBatch | None:
        """What is to go into the journal now: the caller writes it and calls `publish`, or `fail`.

        None if nothing waits, or if it takes a transaction: that is on its way then; its end sends the rest.
        """
        self._scheduled = False
        if self._in_flight or self._failure or self.turn_key is None or not self._staging:
            return None
        batch = self._staging.take()
        if batch.entries and not batch.items and not batch.compaction and self._follows(batch):
            return batch
        self._in_flight = self._passes.submit(self.turn_key, batch)
        self._in_flight.add_done_callback(lambda done: self._sent(batch, done))
        return None

    def fail(self, failure: BaseException) -> None:
        """Nothing can be written any more."""
        self._failure = failure

    def _goes_alone(self) -> bool:
        """True if an event goes into the journal by itself: all before it are shown, and it is the first of its
        millisecond, which counts as taken from now on: those that follow it in that are gathered."""
        if self.turn_key is None or self._failure or not self._staging.is_empty_at(self.window.last_seq + 1):
            return False
        now = int(asyncio.get_running_loop().time() * 1000)
        if now == self._alone_at:
            return False
        self._alone_at = now
        return True

    def _schedule(self) -> None:
        if self._scheduled or self._in_flight or self.turn_key is None:
            return
        self._scheduled = True
        self._passes.schedule(self)

    def _follows(self, batch: EventBatch) -> bool:
        """True if all before it are shown. The journal must not know what the database may still refuse."""
        return batch.entries[0].seq == self.window.last_seq + 1

    def _sent(self, batch: EventBatch, done: asyncio.Future[None]) -> None:
        self._in_flight = None
        if (failure := done.exception()) is not None:
            self.fail(failure)
            return
        self.publish(batch)
        self._passes.write((self,))

    # --- ending ---

    @property
    def is_cut(self) -> bool:
        return self._cut

    @property
    def ended(self) -> bool:
        """Closed, and all that was committed is shown."""
        return self._closed and not self._held

    def close(self) -> None:
        self._closed = True
        self._wake()

    def cut(self) -> None:
        self._cut = True
        self._wake()

    # --- listening ---

    def join(self) -> None:
        self.listeners += 1

    def leave(self) -> None:
        self.listeners -= 1
        if not self.listeners and self.when_deserted is not None and not (self._closed or self._cut):
            self.when_deserted()

    async def change(self, taker: Taker | None = None) -> None:
        """Wait until something is published that `taker` does not take, or the log ends.

        Look whether there is anything first: nothing happens between that and this call.
        """
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = taker
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    def _offer(self, batch: EventBatch) -> None:
        """To those who take what they wait for here and now; the others are woken."""
        entries = list(batch.entries)
        for waiter, taker in tuple(self._waiters.items()):
            if waiter.done():
                continue
            try:
                taken = taker is not None and taker(entries)
            except Exception as error:  # noqa: BLE001 - it is the listener's
                waiter.set_exception(error)
            else:
                if not taken:
                    waiter.set_result(None)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


def _as_unavailable(failure: BaseException) -> StoreUnavailable:
    if isinstance(failure, StoreUnavailable):
        return failure
    unavailable = StoreUnavailable("The turn's log can no longer be written.")
    unavailable.__cause__ = failure
    return unavailable
