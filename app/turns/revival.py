"""Brings stored turns back to life: what a crash left running, what is paused, what is queued.

A live turn is made again from its log (the ledger) and its items. It can then go on, or end by the same
functions as any other: a crash, a restart or a cancel of a paused turn are no special cases.
"""

from collections.abc import Sequence

from anyio import to_thread

from app.domain.events import LogEntry
from app.domain.ledger import Ledger
from app.domain.ports import EventLog, Prepared, Store
from app.domain.turn import Turn
from app.event_log import event_from_json
from app.turns.live import LiveTurn


async def revived(store: Store, logs: EventLog, turn: Turn) -> LiveTurn:
    """The live turn that a stored turn was, to be prepared anew if it shall run. Raises StoreUnavailable."""
    ledger, last = await _ledger(store, turn)
    recorded = await store.turn_items(turn.key)
    # Last: its listeners wait for whoever opened a log.
    log = logs.open(turn.id, turn_key=turn.key, next_seq=last + 1)
    live = LiveTurn(turn, Prepared(turn.agent, turn.model, ()), log, ledger)
    live.recorded = recorded
    return live


async def _ledger(store: Store, turn: Turn) -> tuple[Ledger, int]:
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
