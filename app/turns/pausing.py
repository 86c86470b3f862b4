"""Pauses: the answers that let a paused turn go on, each used once, and the end of those that nobody answers.

The order of checks is the contract's (section 8): an unknown id, an id already answered, a turn that is not
paused. A partial answer is kept and logged; the last one starts the turn's next run.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

import anyio

from app.domain.caller import Caller
from app.domain.events import ApprovalDecided, TurnPaused, TurnResumed
from app.domain.ids import new_pause_id
from app.domain.json_types import JsonObject
from app.domain.pause import Answers, Asked, Decision, Pause, PauseReason, ToolOutput
from app.domain.ports import EventLog, IdempotencyKey, Runtime, Store
from app.domain.turn import Cancel, CancelledBy, Turn, advance, now
from app.errors import (
    AlreadyDecided,
    InvalidRequest,
    NotFound,
    ShuttingDown,
    StoreUnavailable,
    TurnNotPaused,
)
from app.turns.endings import Ending
from app.turns.execution import Execution, Resumption, TurnLimits
from app.turns.live import LiveTurn
from app.turns.places import Places
from app.turns.revival import revived
from app.turns.service import Attached

logger = logging.getLogger(__name__)

EXPIRY_CHECK_S = 30.0
EXPIRED_AT_ONCE = 100
_REASONS: dict[CancelledBy, str] = {
    "expiry": "nobody answered in time",
    "conflict": "the conversation went on without an answer",
}
"""Why a call that waited was cancelled, for its event."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a request says to one thing that was asked for. `shown` is compared with an earlier answer."""

    id: str
    shown: JsonObject
    decision: Decision | None = None
    output: ToolOutput | None = None


class Pauses:
    """Paused turns of this process's store."""

    def __init__(
        self,
        store: Store,
        logs: EventLog,
        runtime: Runtime,
        execution: Execution,
        limits: TurnLimits,
        places: Places,
        *,
        on_resumed: Callable[[LiveTurn], None],
    ) -> None:
        self._store = store
        self._logs = logs
        self._runtime = runtime
        self._execution = execution
        self._limits = limits
        self._places = places
        self._on_resumed = on_resumed
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def decide(
        self, caller: Caller, turn_id: str, decisions: Sequence[Decision], key: IdempotencyKey | None
    ) -> Attached:
        given = [_Answer(d.approval_id, replace(d, call_id=None).as_json(), decision=d) for d in decisions]
        return await self._answer(caller, turn_id, "approval", given, key)

    async def give_outputs(
        self, caller: Caller, turn_id: str, outputs: Sequence[ToolOutput], key: IdempotencyKey | None
    ) -> Attached:
        given = [_Answer(o.call_id, o.as_json(), output=o) for o in outputs]
        return await self._answer(caller, turn_id, "tool_output", given, key)

    async def resume(self, caller: Caller, turn_id: str, pause_id: str, key: IdempotencyKey | None) -> Attached:
        given = [_Answer(pause_id, {"pause_id": pause_id})]
        return await self._answer(caller, turn_id, "step", given, key)

    async def cancel(self, turn: Turn, cancel: Cancel) -> None:
        """End a paused turn at once, whatever the mode; nothing if it is not paused any more."""
        async with self._lock(turn.id):
            current = await self._store.turn(turn.caller, turn.id)
            if current.status == "paused":
                await self._end(current, cancel)

    async def _end(self, turn: Turn, cancel: Cancel) -> None:
        live = await revived(self._store, self._logs, replace(turn, cancel=cancel))
        self._execution.add(live)
        await self._execution.settle(live, Ending("cancelled", reason=_REASONS.get(cancel.by)))

    async def expire_for_ever(self) -> None:
        """Cancel paused turns whose time is over."""
        while True:
            await anyio.sleep(min(EXPIRY_CHECK_S, self._limits.pause_expiry_s / 2))
            try:
                await self.expire()
            except StoreUnavailable:
                logger.warning("paused turns could not be checked")
            except Exception:
                logger.exception("paused turns could not be checked")

    async def expire(self, *, at_once: int = EXPIRED_AT_ONCE) -> None:
        """Cancel the paused turns whose time is over, so many at a time."""
        while overdue := await self._store.overdue_turns(now(), at_once):
            for turn in overdue:
                with suppress(NotFound):  # it was deleted since it was read
                    await self._expire(turn)
            if len(overdue) < at_once:
                return

    async def _expire(self, turn: Turn) -> None:
        """It may have been answered since it was read, and have paused again."""
        async with self._lock(turn.id):
            current = await self._store.turn(turn.caller, turn.id)
            if _is_over(current):
                await self._end(current, Cancel("keep", "expiry", now()))

    # answering

    async def _answer(
        self, caller: Caller, turn_id: str, kind: str, given: Sequence[_Answer], key: IdempotencyKey | None
    ) -> Attached:
        # Shielded: a caller that is gone after its answer was stored still has a turn that somebody runs.
        return await asyncio.shield(asyncio.ensure_future(self._answered(caller, turn_id, kind, given, key)))

    async def _answered(
        self, caller: Caller, turn_id: str, kind: str, given: Sequence[_Answer], key: IdempotencyKey | None
    ) -> Attached:
        _check_distinct(given)
        turn = await self._store.turn(caller, turn_id)
        async with self._lock(turn.id):
            turn = await self._store.turn(caller, turn_id)
            asked = {one.id: one for one in await self._store.asked(turn.key) if one.kind == kind}
            fresh = _fresh(turn, asked, given)
            if not fresh:
                after = max(asked[answer.id].answered_after or 0 for answer in given)
                return self._attached(turn, after)
            if _is_over(turn):
                await self._end(turn, Cancel("keep", "expiry", now()))
                turn = await self._store.turn(caller, turn_id)
            if turn.status != "paused" or turn.pause is None:
                raise TurnNotPaused(f"{turn.id} is {turn.status}, not paused.")
            if self._execution.draining:
                raise ShuttingDown("The service is stopping. Answer again in a moment.", retry_after_s=5)
            self._check_arguments(turn, asked, given, fresh)
            attached = await self._taken(turn, turn.pause, asked, fresh)
            if key is not None:
                await self._store.remember_answer(caller, key, turn.key, attached.after)
            return attached

    async def _taken(
        self, turn: Turn, pause: Pause, asked: dict[str, Asked], fresh: Sequence[_Answer]
    ) -> Attached:
        """Keep the answers; go on if they were the last ones. Raises TooManyTurns, and nothing is kept."""
        left = _left(pause, {answer.id for answer in fresh})
        with self._places.for_resumed(turn.caller) if left is None else nullcontext():
            return await self._kept(turn, pause, left, asked, fresh)

    async def _kept(
        self,
        turn: Turn,
        pause: Pause,
        left: Pause | None,
        asked: dict[str, Asked],
        fresh: Sequence[_Answer],
    ) -> Attached:
        state, before = await self._store.paused_state(turn.key)
        answers = _joined(before, asked, fresh)
        live = await revived(self._store, self._logs, turn)
        after = live.log.next_seq - 1
        try:
            for answer in fresh:
                if answer.decision is not None:
                    self._log_decision(live, asked[answer.id], answer.decision)
            if left is None:
                await self._go_on(live, pause, Resumption(state, answers))
            else:
                await self._wait_on(live, left, answers)
        except BaseException:
            self._logs.close(turn.id)
            raise
        return Attached(live.turn, after)

    async def _go_on(self, live: LiveTurn, pause: Pause, resumption: Resumption) -> None:
        turn = replace(
            live.turn,
            status=advance(live.turn.status, "running"),
            runs=live.turn.runs + 1,
            pause=None,
            last_event_id=live.log.next_seq,
        )
        live.emit(TurnResumed(pause.reason, turn.runs))
        batch = live.log.take()
        if not await self._store.resume(turn, resumption.answers, batch):
            raise TurnNotPaused(f"{turn.id} is not paused any more.")
        live.turn = turn
        live.log.publish(batch)
        self._execution.add(live)
        self._on_resumed(live)
        self._execution.begin(live, resumption)

    async def _wait_on(self, live: LiveTurn, left: Pause, answers: Answers) -> None:
        turn = replace(live.turn, pause=left, last_event_id=live.log.next_seq)
        live.emit(TurnPaused(turn.as_json(with_input=False)))
        batch = live.log.take()
        await self._store.answer(turn, answers, batch)
        live.turn = turn
        live.log.publish(batch)
        self._logs.close(turn.id)

    def _log_decision(self, live: LiveTurn, asked: Asked, decision: Decision) -> None:
        event = ApprovalDecided(decision.approval_id, asked.call_id or "", decision.decision, decision.reason)
        live.emit(event, live.ledger.origin_of(asked.call_id or ""))

    def _check_arguments(
        self, turn: Turn, asked: dict[str, Asked], given: Sequence[_Answer], fresh: Sequence[_Answer]
    ) -> None:
        for index, answer in enumerate(given):
            edited = answer.decision.arguments if answer.decision else None
            if edited is not None and answer in fresh:
                loc: list[str | int] = ["body", "decisions", index, "arguments"]
                self._runtime.check_arguments(turn.agent, asked[answer.id].tool or "", edited, loc)

    def _attached(self, turn: Turn, after: int) -> Attached:
        return Attached(self._execution.current(turn), after, replayed=True)

    def _lock(self, turn_id: str) -> anyio.Lock:
        lock = self._locks.get(turn_id)
        if lock is None:
            lock = self._locks[turn_id] = anyio.Lock()
        return lock


def _is_over(turn: Turn) -> bool:
    return turn.status == "paused" and turn.pause is not None and turn.pause.expires_at <= now()


def _check_distinct(given: Sequence[_Answer]) -> None:
    ids = [answer.id for answer in given]
    if not ids or len(set(ids)) < len(ids):
        raise InvalidRequest(
            "Answer each id once, and at least one.",
            errors=[{"loc": ["body"], "message": "no id, or one that stands twice"}],
        )


def _fresh(turn: Turn, asked: dict[str, Asked], given: Sequence[_Answer]) -> list[_Answer]:
    """The answers that are new. Raises NotFound for an unknown id, AlreadyDecided for a changed mind."""
    for answer in given:
        if answer.id not in asked:
            raise NotFound(f"{turn.id} never asked for {answer.id!r}.")
    answered = [answer for answer in given if asked[answer.id].answer is not None]
    for answer in answered:
        if asked[answer.id].answer != answer.shown:
            raise AlreadyDecided(f"{answer.id!r} was answered differently before.")
    return [answer for answer in given if answer not in answered]


def _joined(before: Answers, asked: dict[str, Asked], fresh: Sequence[_Answer]) -> Answers:
    decisions = [replace(a.decision, call_id=asked[a.id].call_id) for a in fresh if a.decision]
    outputs = [a.output for a in fresh if a.output]
    steps = tuple(a.id for a in fresh if a.decision is None and a.output is None)
    return Answers((*before.decisions, *decisions), (*before.outputs, *outputs), (*before.steps, *steps))


def _left(pause: Pause, answered: set[str]) -> Pause | None:
    """What is left to wait for, under a new id; None if nothing is."""
    approvals = tuple(a for a in pause.approvals if a.approval_id not in answered)
    calls = tuple(c for c in pause.tool_calls if c.call_id not in answered)
    if not approvals and not calls:
        return None
    reason: PauseReason = "approval" if approvals else "tool_output"
    return replace(pause, id=new_pause_id(), reason=reason, approvals=approvals, tool_calls=calls)
