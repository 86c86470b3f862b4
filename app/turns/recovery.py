"""Takes on what nobody runs any more: turns of a process that was killed, and those whose end was refused."""

import logging
from contextlib import suppress
from functools import partial

import anyio
from anyio import to_thread

from app.domain.ports import EventLog, Runtime, Store
from app.domain.turn import Turn, TurnError
from app.errors import NotFound, StoreUnavailable, TurnwireError
from app.turns.endings import INTERRUPTED, Ending
from app.turns.execution import Execution
from app.turns.revival import revived

logger = logging.getLogger(__name__)

BACKOFF_S = (1.0, 2.0, 5.0, 10.0, *(30.0 for _ in range(100)))
STORE_LOST = TurnError("store_unavailable", "What the turn did could not be stored.", retryable=True)


class Recovery:
    """Ended turns are settled like all others, from their logs."""

    def __init__(self, store: Store, logs: EventLog, runtime: Runtime, execution: Execution) -> None:
        self._store = store
        self._logs = logs
        self._runtime = runtime
        self._execution = execution

    async def recover(self) -> None:
        """At the start: end the turns whose owner is gone, queue those that waited, and start what can."""
        for turn in await self._store.orphans():
            await self._end_orphan(turn, INTERRUPTED)
        for key in await self._store.waiting_conversations():
            for turn in await self._store.queued_turns(key):
                await self._requeue(turn)
            await self._execution.start_next(key)

    async def end_later(self, turn: Turn) -> None:
        """The store has refused a turn's end: end it when the store is back; at the next start if that takes
        longer than an hour."""
        for wait_s in BACKOFF_S:
            await anyio.sleep(wait_s)
            try:
                with suppress(NotFound):  # it was deleted with its conversation
                    await self._end_lost(turn)
            except StoreUnavailable:
                continue
            return
        logger.error("a turn could not be ended: the next start does", extra={"turn_id": turn.id})

    async def _end_lost(self, turn: Turn) -> None:
        async with self._execution.queue_lock(turn.conversation_key):
            stored = await self._store.turn(turn.caller, turn.id)
            if stored.ended:
                return
            await self._end_orphan(stored, STORE_LOST)
        await self._execution.start_next(turn.conversation_key)

    async def _requeue(self, turn: Turn) -> None:
        live = await revived(self._store, self._logs, turn)
        self._execution.add(live)
        try:
            # On a thread: input may be megabytes of base64.
            live.prepared = await to_thread.run_sync(
                partial(self._runtime.prepare, turn.request, agent=turn.agent)
            )
        except TurnwireError as error:
            failure = TurnError("internal", f"The turn no longer fits the service: {error.detail}")
            await self._execution.settle(live, Ending("failed", failure), then_next=False)

    async def _end_orphan(self, turn: Turn, error: TurnError) -> None:
        live = await revived(self._store, self._logs, turn)
        self._execution.add(live)
        await self._execution.settle(live, _orphan_ending(turn, error), then_next=False)
        logger.info("a turn without an owner was ended", extra={"turn_id": turn.id})


def _orphan_ending(turn: Turn, error: TurnError) -> Ending:
    """How a running turn ends that nobody runs any more: as the cancel says that was asked for, else failed."""
    if turn.cancel is not None and turn.cancel.mode != "after_step":
        return Ending("cancelled", reason=error.message)
    return Ending("failed", error, reason=error.message)
