"""The turns of this process: start, attach, cancel, drain. Implements `TurnService` for the HTTP side."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
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
from app.domain.ports import ArtifactKeeper, EventLog, IdempotencyKey, Runtime, Store, StoredArtifact, Taker
from app.domain.turn import CancelMode, Turn, TurnRequest, TurnStatus
from app.errors import AgentNotFound, InvalidEventId
from app.turns.admission import Admissions
from app.turns.cancelling import Cancels
from app.turns.conversations import Conversations
from app.turns.execution import Execution, TurnLimits
from app.turns.live import LiveTurn
from app.turns.measures import TurnMeasures
from app.turns.pausing import Pauses
from app.turns.places import Places
from app.turns.recovery import Recovery
from app.turns.retention import Retention
from app.turns.service import Attached, Cancelled


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
        self._measures = measures
        self._execution = Execution(
            store,
            logs,
            runtime,
            limits,
            on_ended=measures.turn_ended,
            on_lost=self._lost,
            on_upstream_failed=measures.upstream_failed,
        )
        places = Places(self._execution, limits)
        self._admissions = Admissions(
            store, logs, runtime, self._execution, limits, places, on_admitted=self._admitted
        )
        self._pauses = Pauses(store, logs, runtime, self._execution, limits, places, on_resumed=self._resumed)
        self._cancels = Cancels(
            store, logs, self._execution, self._pauses, limits, measures, default_cancel_mode
        )
        self._recovery = Recovery(store, logs, runtime, self._execution)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["TurnManager"]:
        """Recover what a crash left, then serve until the block ends; all turns have ended by then."""
        async with anyio.create_task_group() as tasks:
            self._execution.attach(tasks)
            await self._recovery.recover()
            self._execution.spawn(self._pauses.expire_for_ever)
            self._execution.spawn(self._retention.sweep_for_ever)
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
            self._execution.spawn(self._cancels.make_way, admitted.turn, admitted.ahead)
        return Attached(admitted.turn, 0)

    def _admitted(self, live: LiveTurn) -> None:
        self._measures.turn_admitted(live)
        self._cancels.watch_listeners(live)

    def _resumed(self, live: LiveTurn) -> None:
        self._cancels.watch_listeners(live)

    def _lost(self, turn: Turn) -> None:
        """The store refused a turn's end, and its listeners are cut off."""
        self._execution.spawn(self._recovery.end_later, turn)

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
        return self._execution.current(turn)

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

    def tail(self, attached: Attached, taker: Taker | None = None) -> AsyncGenerator[list[LogEntry], None]:
        return self._logs.tail(
            attached.turn, attached.after, max_listeners=self._limits.max_listeners, taker=taker
        )

    async def events(self, caller: Caller, turn_id: str, after: int, limit: int) -> tuple[list[LogEntry], bool]:
        attached = await self.attach(caller, turn_id, after)
        entries = await self._store.events(attached.turn.key, after, limit=limit)
        last = entries[-1].seq if entries else after
        return entries, last < attached.turn.last_event_id

    async def outcome(self, attached: Attached) -> Turn:
        while True:
            async with aclosing(self.tail(attached)) as entries:
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
        return await self._cancels.cancel(await self._store.turn(caller, turn_id), mode, by="caller")

    async def cancel_active(
        self,
        caller: Caller,
        conversation_id: str,
        mode: CancelMode | None,
        queued: Literal["keep", "cancel"],
    ) -> Cancelled:
        conversation = await self._store.conversation(caller, conversation_id)
        return await self._cancels.cancel_active(conversation, mode, queued)

    async def _stop_conversation(self, conversation_key: int) -> None:
        await self._cancels.cancel_all(conversation_key)

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
        return self._execution.count(status=status)

    @property
    def draining(self) -> bool:
        return self._execution.draining

    async def ready(self) -> bool:
        return not self.draining and await self._store.ready()

    # stopping

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
