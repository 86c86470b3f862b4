"""Brings stored turns back to life: what a crash left running, what is paused, what is queued.

A live turn is made again from its log (the ledger) and its items. It can then go on, or end by the same
functions as any other: a crash, a restart or a cancel of a paused turn are no special cases.
"""

from collections.abc import Sequence

from anyio import to_thread

from app.domain.events import LogEntry
from app.domain.ledger import Ledger
from app.domain.ports import EventLog, Prepared, Store
from app.domain.turn import Turn, TurnError
from app.event_log import event_from_json
from app.turns.endings import INTERRUPTED, Ending
from app.turns.live import LiveTurn


async def revived(store: Store, logs: EventLog, turn: Turn, prepared: Prepared | None = None) -> LiveTurn:
    """The live turn that a stored turn was. Raises StoreUnavailable."""
    ledger, last = await ledger_of(store, turn)
    log = logs.open(turn.id, turn_key=turn.key, next_seq=last + 1)
    live = LiveTurn(turn, prepared or Prepared(turn.agent, turn.model, ()), log, ledger)
    live.recorded = await store.turn_items(turn.key)
    return live


async def ledger_of(store: Store, turn: Turn) -> tuple[Ledger, int]:
    """The ledger of a stored log, and the number of its last event."""
    ledger, last = Ledger(), 0
    while entries := await store.events(turn.key, last):
        # On a thread: a long turn has tens of thousands of events.
        await to_thread.run_sync(_apply, ledger, entries)
        last = entries[-1].seq
    return ledger, last


def _apply(ledger: Ledger, entries: Sequence[LogEntry]) -> None:
    for entry in entries:
        event, origin = event_from_json(entry.data)
        if event is not None:
            ledger.apply(event, origin)


def orphan_ending(turn: Turn, error: TurnError = INTERRUPTED) -> Ending:
    """How a running turn ends that nobody runs any more: as the cancel says that was asked for, else failed."""
    if turn.cancel is not None and turn.cancel.mode != "after_step":
        return Ending("cancelled", reason=error.message)
    return Ending("failed", error, reason=error.message)
