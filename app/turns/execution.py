"""Runs turns: each in one task of one group, from its start to its settlement, and then the next in its queue.

Whatever happens in a run, its turn ends by one `settle`, under a shield and a bound: no log stays without an
end. What the store refuses for long is cut off from its listeners and ended later, from its log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TypeVarTuple, Unpack
from weakref import WeakValueDictionary

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from app.domain.conversation import StoredItem
from app.domain.events import TurnPaused, TurnQueued, TurnStarted
from app.domain.ids import TurnId, new_pause_id
from app.domain.pause import Answers, Pause
from app.domain.ports import (
    EventBatch,
    EventLog,
    RunFailed,
    RunJob,
    RunOutcome,
    RunPaused,
    RunStopped,
    Runtime,
    Settlement,
    Store,
)
from app.domain.turn import Turn, TurnError, TurnStatus, advance, now, timestamp
from app.errors import NotFound, StoreUnavailable, TurnwireError
from app.turns.endings import Ending, ended, ending_of, remaining_items, terminal_event
from app.turns.live import LiveTurn

Ts = TypeVarTuple("Ts")

logger = logging.getLogger(__name__)

UNWIND_S = 5.0
"""How long a cancelled run may take to clean up; what takes longer goes on alone and is not heard."""
SETTLE_S = 30.0
SETTLE_RETRIES_S = (0.1, 0.5, 2.0)


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """The settings that bound turns, in seconds and counts."""

    max_turns: int
    max_turns_per_caller: int
    queue_limit: int
    turn_timeout_s: float
    cancel_wait_s: float
    disconnect_grace_s: float
    pause_expiry_s: float
    max_listeners: int

    def turn_timeout(self, turn: Turn) -> float:
        """A request can only lower the setting."""
        return min(turn.request.timeout_s or self.turn_timeout_s, self.turn_timeout_s)


@dataclass(frozen=True, slots=True)
class Resumption:
    """A paused turn that goes on: the state it was paused with and all answers to that pause."""

    state: bytes
    answers: Answers


class Execution:
    """The live turns of this process."""

    def __init__(
        self,
        store: Store,
        logs: EventLog,
        runtime: Runtime,
        limits: TurnLimits,
        *,
        on_ended: Callable[[LiveTurn, Turn], None],
        on_lost: Callable[[Turn], None],
        on_upstream_failed: Callable[[str], None],
    ) -> None:
        self._store = store
        self._logs = logs
        self._runtime = runtime
        self._limits = limits
        self._on_ended = on_ended
        self._on_lost = on_lost
        self._on_upstream_failed = on_upstream_failed
        self._live: dict[TurnId, LiveTurn] = {}
        self._tasks: TaskGroup | None = None
        self._queue_locks: WeakValueDictionary[int, anyio.Lock] = WeakValueDictionary()
        self.draining = False

    def attach(self, tasks: TaskGroup) -> None:
        """Turns run in this group from now on."""
        self._tasks = tasks

    def spawn(self, work: Callable[[Unpack[Ts]], Awaitable[object]], *args: *Ts) -> None:
        """Do something beside the turns, in their group. A defect in it ends neither the group nor a turn."""
        if self._tasks is None:
            raise RuntimeError("the manager has not been entered")
        self._tasks.start_soon(self._guarded, partial(work, *args))

    async def _guarded(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except StoreUnavailable as error:
            logger.warning("given up: %s", error.detail)
        except Exception:
            # The group's boundary: one task that fails would cancel all others, and every turn with them.
            logger.exception("a task beside the turns broke")

    # what is live

    def find(self, turn_id: str) -> LiveTurn | None:
        return self._live.get(TurnId(turn_id))

    def current(self, stored: Turn) -> Turn:
        """A turn as it is now: while it is live, with what was shown so far."""
        live = self.find(stored.id)
        return live.snapshot() if live is not None and not stored.ended else stored

    def add(self, live: LiveTurn) -> None:
        self._live[live.turn.id] = live

    def drop(self, turn_id: TurnId) -> None:
        self._live.pop(turn_id, None)

    def running(self) -> list[LiveTurn]:
        return [live for live in self._live.values() if live.turn.status == "running"]

    def count(self, caller_name: str | None = None, *, status: TurnStatus | None = None) -> int:
        """Of a caller, in a status; of all without."""
        if caller_name is None and status is None:
            return len(self._live)
        return sum(
            (caller_name is None or live.turn.caller.name == caller_name)
            and (status is None or live.turn.status == status)
            for live in self._live.values()
        )

    def queue_lock(self, conversation_key: int) -> anyio.Lock:
        """Whoever starts or ends queued turns of a conversation holds it."""
        lock = self._queue_locks.get(conversation_key)
        if lock is None:
            lock = self._queue_locks[conversation_key] = anyio.Lock()
        return lock

    # running

    def begin(self, live: LiveTurn, resumption: Resumption | None = None) -> None:
        """Run a turn that is `running` in the store, in a task of its own."""
        live.on_upstream_failed = self._on_upstream_failed
        self.spawn(self._run_to_end, live, resumption)

    async def _run_to_end(self, live: LiveTurn, resumption: Resumption | None) -> None:
        outcome: RunOutcome = RunStopped()
        try:
            outcome = await self._outcome(live, resumption)
        finally:
            with anyio.CancelScope(shield=True):
                await self._conclude(live, outcome)

    async def _outcome(self, live: LiveTurn, resumption: Resumption | None) -> RunOutcome:
        """How the run ended. It has a task of its own, so that agents see one plain cancellation, as everywhere
        in asyncio, and can clean up after it."""
        timeout_s = self._limits.turn_timeout(live.turn)
        deadline = anyio.current_time() + timeout_s
        task = asyncio.create_task(self._attempt(live, resumption, deadline))
        try:
            with live.scope, anyio.move_on_after(timeout_s) as limit:
                await asyncio.wait({task})
        finally:
            await self._unwind(task, live)
        if limit.cancelled_caught and not live.stopped:
            message = f"The turn did not end within {timeout_s:g} seconds."
            return RunFailed(TurnError("timeout", message, retryable=True))
        return task.result() if task.done() and not task.cancelled() else RunStopped()

    async def _unwind(self, task: "asyncio.Task[RunOutcome]", live: LiveTurn) -> None:
        if task.done():
            return
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({task}, timeout=UNWIND_S)
        if not task.done():
            logger.warning("a run did not let go of its tools", extra={"turn_id": live.turn.id})

    async def _attempt(self, live: LiveTurn, resumption: Resumption | None, deadline: float) -> RunOutcome:
        try:
            job = await self._job(live, resumption)
            return await self._runtime.run(job, live, live, deadline)
        except StoreUnavailable as error:
            return RunFailed(TurnError("store_unavailable", error.detail, retryable=True))
        except TurnwireError as error:
            message = f"The paused turn no longer fits the service: {error.detail} Send the request again."
            return RunFailed(TurnError("interrupted", message, retryable=True))
        except Exception:
            # The one boundary around a turn: a defect ends this turn and no other.
            logger.exception("turn broke")
            return RunFailed(TurnError("internal", "The service made a mistake. It is in its log."))

    async def _job(self, live: LiveTurn, resumption: Resumption | None) -> RunJob:
        turn = live.turn
        if resumption is not None:
            # On a thread: input may be megabytes of base64. Agents and models may have changed since.
            live.prepared = await to_thread.run_sync(
                partial(self._runtime.prepare, turn.request, agent=turn.agent)
            )
        history = await self._store.history(turn.conversation_key)
        before = tuple(item for item in history if item.turn_id != turn.id or item.is_summary)
        return RunJob(
            turn=turn,
            prepared=live.prepared,
            history=before,
            recorded=tuple(live.recorded),
            run=turn.runs,
            steps_before=live.ledger.steps,
            state=resumption.state if resumption else None,
            answers=resumption.answers if resumption else Answers(),
            context_tokens=await self._store.context_tokens(turn.key) if before else None,
            unfolded=await self._unfolded(turn, before),
        )

    async def _unfolded(self, turn: Turn, before: tuple[StoredItem, ...]) -> tuple[StoredItem, ...]:
        """A compaction that a provider made is readable to nobody else: another one gets what it stands for."""
        if not any(item.item.get("type") == "compaction" for item in before):
            return ()
        history = await self._store.unfolded_history(turn.conversation_key)
        return tuple(item for item in history if item.turn_id != turn.id)

    # ending

    async def _conclude(self, live: LiveTurn, outcome: RunOutcome) -> None:
        try:
            if isinstance(outcome, RunPaused) and live.cancel is None:
                await self._pause(live, outcome)
            else:
                await self.settle(live, ending_of(outcome, live.cancel, shutting_down=live.shutting_down))
        except Exception:
            # A turn that stayed live would hold up whoever waits for it, and the service as it stops.
            if self.find(live.turn.id) is live:
                self._lose(live)
            raise

    async def settle(self, live: LiveTurn, ending: Ending, *, then_next: bool = True) -> None:
        """End a turn: history, status and terminal event in one transaction, shown only after it.

        `then_next` starts the conversation's next queued turn; whoever holds the queue's lock does without.
        """
        for event, origin in live.ledger.closing(reason=ending.reason):
            live.emit(event, origin)
        items, rolled_back = remaining_items(live.turn, ending, live.recorded, live.ledger)
        turn = ended(live.turn, ending, live.ledger, live.log.next_seq)
        batch = live.end(terminal_event(turn))
        if not await self._stored(live, Settlement(turn, items, batch, rolled_back)):
            self._lose(live)
            return
        self._let_go(live, turn, batch)
        self.spawn(self._runtime.ended, turn)
        if then_next:
            await self.start_next(turn.conversation_key)

    async def _stored(self, live: LiveTurn, settlement: Settlement) -> bool:
        """Try under a bound; False if the store refuses, if earlier events were refused, or if the turn was
        deleted with its conversation."""
        with anyio.move_on_after(SETTLE_S):
            for wait_s in (*SETTLE_RETRIES_S, None):
                if live.log.failure is not None:
                    return False
                try:
                    await self._store.settle(settlement)
                except NotFound:
                    return False
                except StoreUnavailable:
                    logger.warning("the end of a turn could not be stored", extra={"turn_id": live.turn.id})
                else:
                    return True
                if wait_s is not None:
                    await anyio.sleep(wait_s)
        return False

    async def _pause(self, live: LiveTurn, outcome: RunPaused) -> None:
        """Store the pause and let go of everything."""
        expires_at = now() + timedelta(seconds=self._limits.pause_expiry_s)
        pause = Pause(new_pause_id(), outcome.reason, expires_at, outcome.approvals, outcome.tool_calls)
        turn = replace(
            live.turn,
            status=advance(live.turn.status, "paused"),
            pause=pause,
            output_text=live.ledger.output_text,
            usage=live.ledger.usage_so_far,
            last_agent=live.ledger.last_agent or live.turn.last_agent,
            last_event_id=live.log.next_seq,
        )
        batch = live.end(TurnPaused(turn.as_json(with_input=False)))
        try:
            await self._store.pause(turn, outcome.state, batch)
        except StoreUnavailable:
            self._lose(live)
        else:
            self._let_go(live, turn, batch)

    def _let_go(self, live: LiveTurn, turn: Turn, batch: EventBatch) -> None:
        """The turn has ended or paused, and its last batch is stored: show it."""
        live.turn = turn
        live.log.publish(batch)
        self._logs.close(turn.id)
        self.drop(turn.id)
        live.settled.set()
        self._on_ended(live, turn)

    def _lose(self, live: LiveTurn) -> None:
        """What became of the turn could not be stored: its listeners are cut off, and it is ended later."""
        self._logs.cut(live.turn.id)
        self.drop(live.turn.id)
        live.settled.set()
        self._on_lost(live.turn)

    # queue

    async def start_next(self, conversation_key: int) -> None:
        """Start the conversation's oldest queued turn if nothing is active, and tell the others their place."""
        if self.draining:
            return
        async with self.queue_lock(conversation_key):
            waiting = await self._store.queued_turns(conversation_key)
            if not waiting:
                return
            if await self._store.active_turn(conversation_key) is not None:
                self._tell_positions(waiting)
                return
            live = self.find(waiting[0].id)
            if live is not None:
                await self._start_queued(live)
                self._tell_positions(waiting[1:])

    async def _start_queued(self, live: LiveTurn) -> None:
        turn = replace(
            live.turn,
            status=advance(live.turn.status, "running"),
            runs=1,
            started_at=now(),
            last_event_id=live.log.next_seq,
        )
        live.emit(started_event(turn), items=live.prepared.stored_items)
        batch = live.log.take()
        live.turn = turn
        try:
            if not await self._store.start(turn, batch):
                raise RuntimeError(f"{turn.id} was to start while another turn is active")
        except Exception:
            self._lose(live)
            raise
        live.log.publish(batch)
        self.begin(live)

    def _tell_positions(self, waiting: list[Turn]) -> None:
        for position, turn in enumerate(waiting, start=1):
            live = self.find(turn.id)
            if live is not None and live.position != position:
                live.position = position
                live.emit(TurnQueued(turn.conversation_id, position))


def started_event(turn: Turn) -> TurnStarted:
    at = timestamp(turn.started_at or turn.created_at)
    return TurnStarted(turn.conversation_id, turn.agent, turn.runs, at)
