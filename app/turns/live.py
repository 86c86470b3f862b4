"""A turn that is under way in this process: what it reports, what it has recorded, and how it is stopped."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import anyio

from app.domain.conversation import Compaction, NewItem
from app.domain.events import Event, MessageDelta, Origin
from app.domain.ledger import Ledger
from app.domain.ports import EventBatch, Prepared, TurnLog
from app.domain.turn import Cancel, CancelMode, Turn
from app.domain.usage import Usage

logger = logging.getLogger(__name__)


class LiveTurn:
    """Queued or running. It is the runtime's `EventSink` and `RunControl`."""

    def __init__(self, turn: Turn, prepared: Prepared, log: TurnLog, ledger: Ledger | None = None) -> None:
        self.turn = turn
        self.prepared = prepared
        self.log = log
        self.ledger = ledger or Ledger()
        self.recorded: list[NewItem] = []
        self.cancel = turn.cancel
        self.shutting_down = False
        self.position: int | None = None
        """The place in the queue that was told last."""
        self.settled = anyio.Event()
        """Set when the turn has ended or paused, and everybody may know."""
        self.began_at = time.monotonic()
        self.first_text_after_s: float | None = None
        self.on_upstream_failed: Callable[[str], None] = lambda code: None
        self.upstream_failures: set[str] = set()
        """The codes by which requests to models' servers have failed in this run."""
        self._scope = anyio.CancelScope()
        self._over = False
        self._callbacks: list[Callable[[CancelMode], None]] = []

    # EventSink

    def emit(self, event: Event, origin: Origin | None = None, items: Sequence[NewItem] = ()) -> None:
        if self._over:
            logger.info("dropped: %s after the turn's end", event.type, extra={"turn_id": self.turn.id})
            return
        if self.first_text_after_s is None and isinstance(event, MessageDelta):
            self.first_text_after_s = time.monotonic() - self.began_at
        self.ledger.apply(event, origin)
        if items:
            self.recorded.extend(items)
        self.log.append(event, origin, items)
        if self.log.failure is not None:
            # What cannot be stored is not shown: there is nobody left to run for.
            self._scope.cancel()

    def compacted(self, event: Event, compaction: Compaction) -> None:
        self.ledger.apply(event)
        self.log.compact(event, compaction)

    def end(self, event: Event) -> EventBatch:
        """Report the event that ends or pauses the turn: the log's last one, whatever still runs. Returns the
        batch to commit."""
        self.emit(event)
        self._over = True
        return self.log.take()

    def record(self, items: Sequence[NewItem]) -> None:
        if self._over:
            return
        self.recorded.extend(items)
        self.log.add_items(items)

    async def committed(self) -> None:
        await self.log.flush()

    def spent(self, cost: Usage, *, top_level: bool) -> None:
        self.ledger.spend(cost, top_level=top_level)

    def upstream_failed(self, code: str) -> None:
        self.upstream_failures.add(code)
        self.on_upstream_failed(code)

    # RunControl

    @property
    def cancel_mode(self) -> CancelMode | None:
        return self.cancel.mode if self.cancel else None

    def on_cancel(self, callback: Callable[[CancelMode], None]) -> None:
        self._callbacks.append(callback)
        if self.cancel is not None:
            callback(self.cancel.mode)

    # stopping

    @property
    def scope(self) -> anyio.CancelScope:
        """The scope in which the turn's run lives: cancelled by a stop at once, also before it is entered."""
        return self._scope

    @property
    def stopped(self) -> bool:
        """True once the run was told to stop at once."""
        return self._scope.cancel_called

    def request_cancel(self, cancel: Cancel) -> Cancel:
        """Ask for a cancel and return the one that holds: the first, but `after_step` gives way."""
        if self.cancel is not None and self.cancel.mode != "after_step":
            return self.cancel
        self.cancel = cancel
        self.turn = replace(self.turn, cancel=cancel)
        if cancel.mode != "after_step":
            self._scope.cancel()
        for callback in self._callbacks:
            callback(cancel.mode)
        return cancel

    def shut_down(self) -> None:
        """The service stops and the grace is over."""
        self.shutting_down = True
        self._scope.cancel()

    def snapshot(self) -> Turn:
        """The turn with what was shown so far."""
        return replace(
            self.turn,
            output_text=self.ledger.output_text,
            usage=self.ledger.usage_so_far,
            last_agent=self.ledger.last_agent or self.turn.last_agent,
            last_event_id=max(self.turn.last_event_id, self.log.published_seq),
        )
