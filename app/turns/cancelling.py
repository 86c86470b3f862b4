"""Cancels: stop a turn wherever it is (running, queued, paused, being admitted), and wait for its end."""

import logging
from collections.abc import Sequence
from typing import Literal

import anyio

from app.domain.conversation import Conversation
from app.domain.ports import EventLog, Store
from app.domain.turn import Cancel, CancelledBy, CancelMode, Turn, now
from app.errors import NoActiveTurn, StoreUnavailable, TurnInProgress, TurnwireError
from app.turns.endings import Ending
from app.turns.execution import Execution, TurnLimits
from app.turns.live import LiveTurn
from app.turns.measures import TurnMeasures
from app.turns.pausing import Pauses
from app.turns.service import Cancelled

logger = logging.getLogger(__name__)

APPEARS_WITHIN_S = 0.05
DELETION_WAIT_S = 15.0


class Cancels:
    """Of the turns of this process's store. `default_mode` is for whoever names none."""

    def __init__(
        self,
        store: Store,
        logs: EventLog,
        execution: Execution,
        pauses: Pauses,
        limits: TurnLimits,
        measures: TurnMeasures,
        default_mode: CancelMode,
    ) -> None:
        self._store = store
        self._logs = logs
        self._execution = execution
        self._pauses = pauses
        self._limits = limits
        self._measures = measures
        self._default_mode = default_mode

    async def cancel(
        self, turn: Turn, mode: CancelMode | None, *, by: CancelledBy, wait_s: float | None = None
    ) -> Cancelled:
        """Stop a turn. Idempotent; returns when it has settled, or after `wait_s` (default: the setting)."""
        mode = mode or self._default_mode
        wait_s = self._limits.cancel_wait_s if wait_s is None else wait_s
        began = anyio.current_time()
        cancel = Cancel(mode, by, now())
        live = self._execution.find(turn.id)
        if live is None and turn.status in ("queued", "running"):
            live = await self._appearing(turn, cancel)
        if live is not None and live.turn.status == "queued":
            await self._cancel_queued(live, cancel)
        elif live is not None:
            await self._cancel_running(live, cancel, wait_s)
        current = await self._current(turn)
        if current.status == "paused":
            await self._pauses.cancel(current, cancel)
            current = await self._current(turn)
        if not current.ended and self._execution.find(turn.id) not in (None, live):
            # Somebody answered in between: it runs again, and is stopped as one that runs.
            return await self.cancel(current, mode, by=by, wait_s=wait_s)
        if current.ended and not turn.ended:
            self._measures.cancelled(mode, anyio.current_time() - began)
        return Cancelled(current, current.ended)

    async def cancel_active(
        self, conversation: Conversation, mode: CancelMode | None, queued: Literal["keep", "cancel"]
    ) -> Cancelled:
        """Stop the turn under way, and first what waits behind it if `queued` says so. Raises NoActiveTurn."""
        active = await self._store.active_turn(conversation.key)
        if active is None:
            raise NoActiveTurn(f"No turn is under way in the conversation {conversation.id!r}.")
        if queued == "cancel":
            for turn in await self._store.queued_turns(conversation.key):
                await self.cancel(turn, mode, by="caller", wait_s=0)
        return await self.cancel(active, mode, by="caller")

    async def cancel_all(self, conversation_key: int) -> None:
        """Stop everything of a conversation that is to be deleted, and wait for it. Raises TurnInProgress."""
        with anyio.move_on_after(DELETION_WAIT_S):
            while True:
                queued = await self._store.queued_turns(conversation_key)
                active = await self._store.active_turn(conversation_key)
                if not queued and active is None:
                    return
                for turn in (*queued, *([active] if active else ())):
                    await self.cancel(turn, "keep", by="deletion", wait_s=DELETION_WAIT_S)
        raise TurnInProgress("A turn of the conversation does not end. Try again in a moment.")

    async def make_way(self, turn: Turn, ahead: Sequence[Turn]) -> None:
        """Stop what is ahead of a queued turn whose policy says so, queued turns first, and start what can."""
        mode: CancelMode = "rollback" if turn.request.on_conflict == "rollback" else "keep"
        try:
            for other in sorted(ahead, key=lambda t: t.status != "queued"):
                await self.cancel(other, mode, by="conflict", wait_s=0)
            await self._execution.start_next(turn.conversation_key)
        except TurnwireError:
            logger.exception("a queued turn could not be started", extra={"turn_id": turn.id})

    def watch_listeners(self, live: LiveTurn) -> None:
        """Cancel the turn once nobody has listened for the grace time, if its request asked for that."""
        if live.turn.request.on_disconnect == "cancel":
            self._logs.on_last_listener_left(live.turn.id, lambda: self._listeners_left(live))

    def _listeners_left(self, live: LiveTurn) -> None:
        self._execution.spawn(self._cancel_if_alone, live)

    async def _cancel_if_alone(self, live: LiveTurn) -> None:
        with anyio.move_on_after(self._limits.disconnect_grace_s):
            await live.settled.wait()
            return
        if not self._logs.listeners(live.turn.id) and self._execution.find(live.turn.id):
            logger.info("nobody listens any more", extra={"turn_id": live.turn.id})
            await self.cancel(live.turn, None, by="disconnect", wait_s=0)

    async def _current(self, turn: Turn) -> Turn:
        return self._execution.current(await self._store.turn(turn.caller, turn.id))

    async def _appearing(self, turn: Turn, cancel: Cancel) -> LiveTurn | None:
        """A turn that the store knows and this process does not yet (it is being admitted) or no more (its end
        could not be stored): the cancel is remembered, and holds when the turn is ended."""
        await self._store.request_cancel(turn.key, cancel)
        await anyio.sleep(APPEARS_WITHIN_S)
        return self._execution.find(turn.id)

    async def _cancel_running(self, live: LiveTurn, cancel: Cancel, wait_s: float) -> None:
        live.request_cancel(cancel)
        self._execution.spawn(self._remember, live)
        with anyio.move_on_after(wait_s):
            await live.settled.wait()

    async def _cancel_queued(self, live: LiveTurn, cancel: Cancel) -> None:
        async with self._execution.queue_lock(live.turn.conversation_key):
            started = live.turn.status != "queued"
            if not started and self._execution.find(live.turn.id):
                live.request_cancel(cancel)
                await self._execution.settle(live, Ending("cancelled"), then_next=False)
        if started:
            live.request_cancel(cancel)
            await live.settled.wait()
        else:
            await self._execution.start_next(live.turn.conversation_key)

    async def _remember(self, live: LiveTurn) -> None:
        """Store that a cancel was asked for, so that a crash before its end does not forget it."""
        if live.cancel is not None and not live.settled.is_set():
            try:
                await self._store.request_cancel(live.turn.key, live.cancel)
            except StoreUnavailable:
                logger.warning("a cancel could not be stored", extra={"turn_id": live.turn.id})
