"""The turns of this process: start, attach, cancel, drain. Implements `TurnService` for the HTTP side."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Literal

import anyio

from app.domain.caller import Caller
from app.domain.conversation import Page, PageRequest
from app.domain.events import LogEntry
from app.domain.ids import ConversationId
from app.domain.json_types import JsonObject
from app.domain.pause import Decision, ToolOutput
from app.domain.ports import ArtifactKeeper, EventLog, IdempotencyKey, Runtime, Store, StoredArtifact
from app.domain.turn import Cancel, CancelledBy, CancelMode, Turn, TurnError, TurnRequest, TurnStatus, now
from app.errors import (
    AgentNotFound,
    InvalidEventId,
    NoActiveTurn,
    Overloaded,
    StoreUnavailable,
    TurnInProgress,
    TurnwireError,
)
from app.turns.admission import Admissions
from app.turns.conversations import Conversations
from app.turns.endings import INTERRUPTED, Ending
from app.turns.execution import Execution, TurnLimits
from app.turns.live import LiveTurn
from app.turns.measures import TurnMeasures
from app.turns.pausing import Pauses
from app.turns.recovery import orphan_ending, revived
from app.turns.retention import Retention
from app.turns.service import Attached, Cancelled

logger = logging.getLogger(__name__)

APPEARS_WITHIN_S = 0.05
DELETION_WAIT_S = 15.0
RECOVERY_BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
STORE_LOST = TurnError("store_unavailable", "What the turn did could not be stored.", retryable=True)


class TurnManager(Conversations):
    """Owns the task group in which all turns of the process live."""

    def __init__(
        self,
        store: Store,
        logs: EventLog,
        runtime: Runtime,
        limits: TurnLimits,
        *,
        default_cancel_mode: CancelMode,
        measures: TurnMeasures,
        retention: Retention,
        artifacts: ArtifactKeeper,
    ) -> None:
        super().__init__(store, logs, runtime, artifacts)
        self._retention = retention
        self._limits = limits
        self._default_cancel_mode = default_cancel_mode
        self._measures = measures
        self._execution = Execution(
            store, logs, runtime, limits, on_ended=measures.turn_ended, on_lost=self._end_later
        )
        self._admissions = Admissions(store, logs, runtime, self._execution, limits, on_admitted=self._admitted)
        self._pauses = Pauses(store, logs, runtime, self._execution, limits, on_resumed=self._watch_listeners)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["TurnManager"]:
        """Recover what a crash left, then serve until the block ends; all turns have ended by then."""
        async with anyio.create_task_group() as tasks:
            self._execution.attach(tasks)
            await self._recover()
            tasks.start_soon(self._pauses.expire_for_ever)
            tasks.start_soon(self._retention.sweep_for_ever)
            try:
                yield self
            finally:
                with anyio.CancelScope(shield=True):
                    await self.drain(0)
                tasks.cancel_scope.cancel()

    # starting

    async def known(
        self, caller: Caller, idempotency: IdempotencyKey, last_event_id: int | None
    ) -> Attached | None:
        answer = await self._store.known_answer(caller, idempotency)
        if answer is None:
            return None
        after = answer.after if last_event_id is None else last_event_id
        return self._attached(answer.turn, after, replayed=True)

    async def start(
        self,
        caller: Caller,
        conversation_id: ConversationId | None,
        request: TurnRequest,
        idempotency: IdempotencyKey | None,
        *,
        trace_parent: str | None = None,
    ) -> Attached:
        admitted = await self._admissions.admit(
            caller, conversation_id, request, idempotency, trace_parent=trace_parent
        )
        if admitted.replayed:
            return self._attached(admitted.turn, admitted.after, replayed=True)
        if admitted.turn.status == "queued":
            self._execution.tasks.start_soon(self._make_way, admitted.turn, admitted.ahead)
        return Attached(admitted.turn, 0)

    async def _make_way(self, turn: Turn, ahead: Sequence[Turn]) -> None:
        """Stop what is ahead of a turn whose policy says so, queued turns first, and start what can."""
        mode: CancelMode = "rollback" if turn.request.on_conflict == "rollback" else "keep"
        try:
            for other in sorted(ahead, key=lambda t: t.status != "queued"):
                await self._cancel(other, mode, by="conflict", wait_s=0)
            await self._execution.start_next(turn.conversation_key)
        except TurnwireError:
            logger.exception("a queued turn could not be started", extra={"turn_id": turn.id})

    def _admitted(self, live: LiveTurn) -> None:
        self._measures.turn_admitted(live)
        self._watch_listeners(live)

    def _watch_listeners(self, live: LiveTurn) -> None:
        if live.turn.request.on_disconnect == "cancel":
            self._logs.on_last_listener_left(live.turn.id, lambda: self._listeners_left(live))

    def _listeners_left(self, live: LiveTurn) -> None:
        self._execution.tasks.start_soon(self._cancel_if_alone, live)

    async def _cancel_if_alone(self, live: LiveTurn) -> None:
        with anyio.move_on_after(self._limits.disconnect_grace_s):
            await live.settled.wait()
            return
        if not self._logs.listeners(live.turn.id) and self._execution.find(live.turn.id):
            logger.info("nobody listens any more", extra={"turn_id": live.turn.id})
            await self._cancel(live.turn, self._default_cancel_mode, by="disconnect", wait_s=0)

    # reading

    async def turn(self, caller: Caller, turn_id: str) -> Turn:
        return self._now(await self._store.turn(caller, turn_id))

    async def turns(
        self,
        caller: Caller,
        page: PageRequest,
        *,
        conversation_id: str | None = None,
        status: TurnStatus | None = None,
        agent: str | None = None,
    ) -> Page[Turn]:
        key = None
        if conversation_id is not None:
            key = (await self._store.conversation(caller, conversation_id)).key
        found = await self._store.turns(caller, page, conversation_key=key, status=status, agent=agent)
        return Page([self._now(turn) for turn in found.data], found.next)

    def _now(self, turn: Turn) -> Turn:
        live = self._execution.find(turn.id)
        return live.snapshot() if live is not None and not turn.ended else turn

    async def attach(self, caller: Caller, turn_id: str, after: int) -> Attached:
        return self._attached(await self._store.turn(caller, turn_id), after)

    def _attached(self, stored: Turn, after: int, *, replayed: bool = False) -> Attached:
        turn = self._now(stored)
        if after > turn.last_event_id:
            raise InvalidEventId(
                f"Event {after} is beyond the log of {turn.id}, which ends at {turn.last_event_id}."
            )
        over = turn.ended or turn.status == "paused"
        return Attached(turn, after, replayed, nothing_left=over and after == turn.last_event_id)

    async def tail(self, attached: Attached) -> AsyncIterator[list[LogEntry]]:
        if self._logs.listeners(attached.turn.id) >= self._limits.max_listeners:
            raise Overloaded("This turn has as many listeners as it may.", retry_after_s=5)
        async with aclosing(self._logs.tail(attached.turn, attached.after)) as entries:  # type: ignore[type-var]
            async for some in entries:
                yield some

    async def events(self, caller: Caller, turn_id: str, after: int, limit: int) -> tuple[list[LogEntry], bool]:
        attached = await self.attach(caller, turn_id, after)
        entries = await self._store.events(attached.turn.key, after, limit=limit)
        last = entries[-1].seq if entries else after
        return entries, last < attached.turn.last_event_id

    async def outcome(self, attached: Attached) -> Turn:
        while True:
            async with aclosing(self.tail(attached)) as entries:  # type: ignore[type-var]
                async for some in entries:
                    attached = replace(attached, after=some[-1].seq)
            turn = self._now(await self._store.turn(attached.turn.caller, attached.turn.id))
            if turn.ended or turn.status == "paused":
                return turn
            # It was paused, and somebody has answered since.
            attached = replace(attached, turn=turn)

    async def artifacts(self, caller: Caller, turn_id: str) -> list[StoredArtifact]:
        return await self._artifacts.of_turn(await self._store.turn(caller, turn_id))

    async def artifact(
        self, caller: Caller, turn_id: str, artifact_id: str
    ) -> tuple[StoredArtifact, AsyncIterator[bytes]]:
        found = await self._artifacts.get(await self._store.turn(caller, turn_id), artifact_id)
        return found, self._artifacts.content(found)

    # cancelling

    async def cancel(self, caller: Caller, turn_id: str, mode: CancelMode | None) -> Cancelled:
        turn = await self._store.turn(caller, turn_id)
        return await self._cancel(
            turn, mode or self._default_cancel_mode, by="caller", wait_s=self._limits.cancel_wait_s
        )

    async def cancel_active(
        self,
        caller: Caller,
        conversation_id: str,
        mode: CancelMode | None,
        queued: Literal["keep", "cancel"],
    ) -> Cancelled:
        conversation = await self._store.conversation(caller, conversation_id)
        active = await self._store.active_turn(conversation.key)
        if active is None:
            raise NoActiveTurn(f"No turn is under way in the conversation {conversation_id!r}.")
        mode = mode or self._default_cancel_mode
        if queued == "cancel":
            for turn in await self._store.queued_turns(conversation.key):
                await self._cancel(turn, mode, by="caller", wait_s=0)
        return await self._cancel(active, mode, by="caller", wait_s=self._limits.cancel_wait_s)

    async def _cancel(self, turn: Turn, mode: CancelMode, *, by: CancelledBy, wait_s: float) -> Cancelled:
        """Stop a turn, wherever it is. Idempotent; returns when it has settled, or after `wait_s`."""
        began = anyio.current_time()
        cancel = Cancel(mode, by, now())
        live = self._execution.find(turn.id)
        if live is None and turn.status in ("queued", "running"):
            live = await self._appearing(turn, cancel)
        if live is not None and live.turn.status == "queued":
            await self._cancel_queued(live, cancel)
        elif live is not None:
            live.request_cancel(cancel)
            self._execution.tasks.start_soon(self._remember, live)
            with anyio.move_on_after(wait_s):
                await live.settled.wait()
        current = self._now(await self._store.turn(turn.caller, turn.id))
        if current.status == "paused":
            await self._pauses.cancel(current, cancel)
            current = self._now(await self._store.turn(turn.caller, turn.id))
            if not current.ended:
                # Somebody answered in between: it runs again, and is stopped as one that runs.
                return await self._cancel(current, mode, by=by, wait_s=wait_s)
        if current.ended and not turn.ended:
            self._measures.cancelled(mode, anyio.current_time() - began)
        return Cancelled(current, current.ended)

    async def _appearing(self, turn: Turn, cancel: Cancel) -> LiveTurn | None:
        """A turn that the store knows and this process does not yet (it is being admitted) or no more (its end
        could not be stored): the cancel is remembered, and holds when the turn is ended."""
        await self._store.request_cancel(turn.key, cancel)
        await anyio.sleep(APPEARS_WITHIN_S)
        return self._execution.find(turn.id)

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

    async def _stop_conversation(self, conversation_key: int) -> None:
        """Cancel everything of a conversation that is to be deleted, and wait for it."""
        with anyio.move_on_after(DELETION_WAIT_S):
            while True:
                queued = await self._store.queued_turns(conversation_key)
                active = await self._store.active_turn(conversation_key)
                if not queued and active is None:
                    return
                for turn in (*queued, *([active] if active else ())):
                    await self._cancel(turn, "keep", by="deletion", wait_s=DELETION_WAIT_S)
        raise TurnInProgress("A turn of the conversation does not end. Try again in a moment.")

    # continuing

    async def decide(
        self, caller: Caller, turn_id: str, decisions: Sequence[Decision], idempotency: IdempotencyKey | None
    ) -> Attached:
        return await self._pauses.decide(caller, turn_id, decisions, idempotency)

    async def give_outputs(
        self, caller: Caller, turn_id: str, outputs: Sequence[ToolOutput], idempotency: IdempotencyKey | None
    ) -> Attached:
        return await self._pauses.give_outputs(caller, turn_id, outputs, idempotency)

    async def resume(
        self, caller: Caller, turn_id: str, pause_id: str, idempotency: IdempotencyKey | None
    ) -> Attached:
        return await self._pauses.resume(caller, turn_id, pause_id, idempotency)

    async def approvals(self, caller: Caller, page: PageRequest, status: str) -> Page[JsonObject]:
        return await self._store.approvals(caller, page, status=status)

    # agents and health

    def agents(self) -> list[JsonObject]:
        return self._runtime.agents()

    def agent(self, name: str) -> JsonObject:
        for agent in self._runtime.agents():
            if agent["name"] == name:
                return agent
        raise AgentNotFound(f"There is no agent {name!r}.")

    def count(self, status: TurnStatus) -> int:
        """Live turns of this process that are `queued` or `running`."""
        return self._execution.count_status(status)

    @property
    def draining(self) -> bool:
        return self._execution.draining

    async def ready(self) -> bool:
        return not self.draining and await self._store.ready()

    # stopping and recovering

    async def drain(self, grace_s: float) -> None:
        """Admit no more turns; give running ones the grace, then end them as `shutting_down`.

        Queued turns stay queued and start with the service; their listeners are cut and come back.
        """
        self._execution.draining = True
        with anyio.move_on_after(grace_s):
            for live in self._execution.running():
                await live.settled.wait()
        for live in self._execution.running():
            live.shut_down()
        for live in self._execution.running():
            await live.settled.wait()
        self._logs.cut_all()

    async def _recover(self) -> None:
        for turn in await self._store.orphans():
            await self._end_orphan(turn, INTERRUPTED)
        for key in await self._store.waiting_conversations():
            for turn in await self._store.queued_turns(key):
                await self._requeue(turn)
            await self._execution.start_next(key)

    async def _requeue(self, turn: Turn) -> None:
        live = await revived(self._store, self._logs, turn)
        self._execution.add(live)
        try:
            live.prepared = self._runtime.prepare(turn.request, agent=turn.agent)
        except TurnwireError as error:
            failure = TurnError("internal", f"The turn no longer fits the service: {error.detail}")
            await self._execution.settle(live, Ending("failed", failure), then_next=False)

    async def _end_orphan(self, turn: Turn, error: TurnError) -> None:
        live = await revived(self._store, self._logs, turn)
        self._execution.add(live)
        await self._execution.settle(live, orphan_ending(turn, error), then_next=False)
        logger.info("a turn without an owner was ended", extra={"turn_id": turn.id})

    def _end_later(self, turn: Turn) -> None:
        """The store refused a turn's end: its listeners are cut off; end it when the store is back."""
        self._execution.tasks.start_soon(self._keep_ending, turn)

    async def _keep_ending(self, turn: Turn) -> None:
        for wait_s in RECOVERY_BACKOFF_S + (RECOVERY_BACKOFF_S[-1],) * 100:
            await anyio.sleep(wait_s)
            try:
                stored = await self._store.turn(turn.caller, turn.id)
                if not stored.ended:
                    await self._end_orphan(stored, STORE_LOST)
                    await self._execution.start_next(turn.conversation_key)
            except StoreUnavailable:
                continue
            return
