"""From a request to a turn that runs or waits, in one transaction, or to a refusal that stores none."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from anyio import to_thread

from app.domain.caller import Caller
from app.domain.conversation import Conversation
from app.domain.events import TurnQueued
from app.domain.ids import ConversationId, new_conversation_id, new_turn_id
from app.domain.ports import (
    Admission,
    Admitted,
    EventBatch,
    EventLog,
    IdempotencyKey,
    Prepared,
    Runtime,
    Store,
    TurnLog,
)
from app.domain.turn import Turn, TurnRequest
from app.errors import ShuttingDown
from app.turns.execution import Execution, TurnLimits, started_event
from app.turns.live import LiveTurn
from app.turns.places import Places

logger = logging.getLogger(__name__)

SHORT_TEXT = 10_000
"""Characters of an input that is checked in less time than a thread would take."""


class Admissions:
    """Lets turns in."""

    def __init__(
        self,
        store: Store,
        logs: EventLog,
        runtime: Runtime,
        execution: Execution,
        limits: TurnLimits,
        places: Places,
        *,
        on_admitted: Callable[[LiveTurn], None],
    ) -> None:
        self._store = store
        self._logs = logs
        self._runtime = runtime
        self._execution = execution
        self._limits = limits
        self._places = places
        self._on_admitted = on_admitted

    async def admit(
        self,
        caller: Caller,
        conversation_id: ConversationId | None,
        request: TurnRequest,
        idempotency: IdempotencyKey | None,
        *,
        trace_parent: str | None = None,
    ) -> Admitted:
        """Admit a turn and begin it if nothing is before it. Raises what a refused request gets."""
        if self._execution.draining:
            raise ShuttingDown("The service is stopping. Send the request again in a moment.", retry_after_s=5)
        with ExitStack() as place:
            place.enter_context(self._places.for_new(caller))
            conversation = conversation_id and await self._store.find_conversation(caller, conversation_id)
            prepared = await self._prepared(request, conversation or None)
            held = place.pop_all()
        # Shielded: a caller that is gone after its turn was stored still has a turn that somebody runs.
        stored = self._stored(held, caller, conversation_id, request, idempotency, prepared, trace_parent)
        return await asyncio.shield(asyncio.ensure_future(stored))

    async def _prepared(self, request: TurnRequest, conversation: Conversation | None) -> Prepared:
        prepare = partial(
            self._runtime.prepare,
            request,
            agent=conversation.agent if conversation else None,
            last_agent=conversation.last_agent if conversation else None,
        )
        # On a thread: input may be megabytes of base64, and schemas take their time.
        return prepare() if _is_plain(request) else await to_thread.run_sync(prepare)

    async def _stored(
        self,
        place: ExitStack,
        caller: Caller,
        conversation_id: ConversationId | None,
        request: TurnRequest,
        idempotency: IdempotencyKey | None,
        prepared: Prepared,
        trace_parent: str | None,
    ) -> Admitted:
        """Admit it in the store and begin it. `place` is held until it is one of the live turns."""
        with place:
            turn_id = new_turn_id()
            log = self._logs.open(turn_id)
            admission = Admission(
                turn_id=turn_id,
                caller=caller,
                conversation_id=conversation_id or new_conversation_id(),
                request=request,
                agent=prepared.agent,
                model=prepared.model,
                first_batch=lambda turn, position: _first_batch(log, turn, position, prepared),
                queue_limit=self._limits.queue_limit,
                idempotency=idempotency,
                trace_parent=trace_parent,
            )
            try:
                admitted = await self._store.admit(admission)
            except BaseException:
                self._logs.close(turn_id)
                raise
            if admitted.replayed or admitted.batch is None:
                self._logs.close(turn_id)
            else:
                self._begin(admitted, admitted.batch, log, prepared)
            return admitted

    def _begin(self, admitted: Admitted, batch: EventBatch, log: TurnLog, prepared: Prepared) -> None:
        self._logs.bind(log, admitted.turn.key, admitted.turn.conversation_key)
        live = LiveTurn(admitted.turn, prepared, log)
        live.recorded = list(batch.items)
        live.position = admitted.position or None
        log.publish(batch)
        self._execution.add(live)
        self._on_admitted(live)
        if admitted.turn.status == "running":
            self._execution.begin(live)


def _is_plain(request: TurnRequest) -> bool:
    """True for a short text alone, which most requests are."""
    is_short = isinstance(request.input, str) and len(request.input) <= SHORT_TEXT
    return is_short and not request.tools and request.output_schema is None


def _first_batch(log: TurnLog, turn: Turn, position: int, prepared: Prepared) -> EventBatch:
    """Called inside the admitting transaction, on the store's thread: nobody else has the log yet."""
    if turn.status == "running":
        log.append(started_event(turn), items=prepared.stored_items)
    else:
        log.append(TurnQueued(turn.conversation_id, position))
    return log.take()
