"""The moves of a turn, from its admission to its end: each within the transaction of its caller."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Update, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.domain.conversation import Conversation
from app.domain.ids import TurnId
from app.domain.pause import Answers
from app.domain.ports import EventBatch, Settlement
from app.domain.turn import Cancel, IllegalTransition, Turn, TurnRequest, TurnStatus, advance, now
from app.errors import NotFound, TurnInProgress
from app.store import asked, conversations, events, items, turns
from app.store.cursors import AnyRow
from app.store.ownership import owner_columns
from app.store.tables import turns as table

_THIS = table.c.key == bindparam("turn_key")
_INSERT = insert(table).returning(table.c.key)
_CHANGE = update(table).where(_THIS)
_MOVE = _CHANGE.where(table.c.status == bindparam("earlier_status"))
_RUN_AGAIN = _MOVE.values(attempt=table.c.attempt + 1)
_CONVERSATION_KEY = select(table.c.conversation_key).where(_THIS)
_CANCEL = select(table.c.ended_at, table.c.cancel).where(_THIS)
_BEFORE_END = select(table.c.status, table.c.parent_key, table.c.previous_head_key).where(_THIS)


def new_turn(
    conversation: Conversation,
    turn_id: TurnId,
    request: TurnRequest,
    *,
    agent: str,
    model: str | None,
    runs: int,
    trace_parent: str | None = None,
) -> Turn:
    """A turn that is about to be stored: running if `runs` is 1, else queued."""
    at = now()
    return Turn(
        key=0,
        id=turn_id,
        conversation_key=conversation.key,
        conversation_id=conversation.id,
        caller=conversation.caller,
        status="running" if runs else "queued",
        agent=agent,
        model=model,
        request=request,
        created_at=at,
        runs=runs,
        metadata=request.metadata,
        started_at=at if runs else None,
        trace_parent=trace_parent,
    )


def record(connection: Connection, key: int, batch: EventBatch) -> None:
    """Add events and items of a running turn."""
    events.add(connection, key, batch.entries)
    conversation_key = connection.scalars(_CONVERSATION_KEY, {"turn_key": key}).one_or_none()
    if conversation_key is None:
        raise NotFound("this turn was deleted")
    items.add(connection, conversation_key, key, batch.items)
    if batch.compaction is not None:
        items.compact(connection, conversation_key, key, batch.compaction)


def insert_new(
    connection: Connection,
    turn: Turn,
    first_batch: Callable[[Turn], EventBatch],
    *,
    owner: str,
    parent_key: int | None,
) -> tuple[Turn, EventBatch]:
    """Store an admitted turn, queued or running, with its first events. Raises TurnInProgress."""
    running = turn.status == "running"
    row = owner_columns(turn.caller) | {
        "id": turn.id,
        "conversation_key": turn.conversation_key,
        "status": turn.status,
        "agent": turn.agent,
        "model": turn.model,
        "input": turn.request.input,
        "request": turn.request.model_dump(exclude_unset=True, exclude={"input"}),
        "edits": turn.request.edits_history,
        "parent_key": parent_key,
        "previous_head_key": None,
        "output_text": "",
        "runs": turn.runs,
        "last_event_id": 0,
        "events_form": "plain",
        "metadata": turn.metadata,
        "trace_parent": turn.trace_parent,
        "created_at": turn.created_at,
        "started_at": turn.started_at,
        "owner": owner if running else None,
        "attempt": turn.runs,
    }
    if running:
        row |= _followed(connection, turn)
    try:
        key = connection.scalars(_INSERT, row).one()
    except IntegrityError as error:
        raise in_progress(turns.active(connection, turn.conversation_key)) from error
    turn = replace(turn, key=key)
    if running:
        _take_head(connection, turn)
    else:
        conversations.touch(connection, turn.conversation_key)
    batch = first_batch(turn)
    _record(connection, turn, batch)
    return replace(turn, last_event_id=_last_event(turn, batch)), batch


def in_progress(turn: Turn | None) -> TurnInProgress:
    turn_id = turn and turn.id
    return TurnInProgress(
        f"the conversation has a turn under way ({turn_id}): wait for it, cancel it, or set on_conflict",
        turn_id=turn_id,
    )


def start(connection: Connection, turn: Turn, batch: EventBatch, *, owner: str) -> bool:
    """queued → running. False if it is not queued any more, or another turn of the conversation is active."""
    changes = {
        "status": "running",
        "agent": turn.agent,
        "last_agent": turn.last_agent,
        "model": turn.model,
        "runs": max(turn.runs, 1),
        "started_at": turn.started_at or now(),
        "owner": owner,
    }
    try:
        if not _move(connection, turn, "queued", changes, by=_RUN_AGAIN):
            return False
    except IntegrityError:
        return False
    _change(connection, turn.key, _followed(connection, turn))
    _take_head(connection, turn)
    _record(connection, turn, batch)
    return True


def pause(connection: Connection, turn: Turn, state: bytes, batch: EventBatch) -> None:
    """running → paused, with what it waits for and the state from which it goes on."""
    changes = _progress(turn, batch) | {
        "status": "paused",
        "pause": turn.pause and turn.pause.as_json(),
        "state": state,
        "answers": None,
        "owner": None,
    }
    if not _move(connection, turn, "running", changes):
        raise IllegalTransition(f"turn {turn.id} is not running and cannot pause")
    if turn.pause is not None:
        asked.add(connection, turn.key, turn.pause)
    _record(connection, turn, batch)


def answer(connection: Connection, turn: Turn, answers: Answers, batch: EventBatch) -> None:
    """Keep a part of what a paused turn waits for; `turn.pause` is what is left."""
    changes = {
        "pause": turn.pause and turn.pause.as_json(),
        "answers": answers.as_json(),
        "last_event_id": _last_event(turn, batch),
    }
    if not _move(connection, turn, "paused", changes):
        raise IllegalTransition(f"turn {turn.id} is not paused and takes no answers")
    asked.answer(connection, turn.key, answers, _answered_after(turn, batch))
    if turn.pause is not None:
        asked.renew(connection, turn.key, turn.pause)
    _record(connection, turn, batch)


def resume(connection: Connection, turn: Turn, answers: Answers, batch: EventBatch, *, owner: str) -> bool:
    """paused → running. Its state and answers stay until it pauses again or ends."""
    changes = {
        "status": "running",
        "runs": turn.runs,
        "pause": None,
        "answers": answers.as_json(),
        "owner": owner,
    }
    if not _move(connection, turn, "paused", changes, by=_RUN_AGAIN):
        return False
    asked.answer(connection, turn.key, answers, _answered_after(turn, batch))
    _record(connection, turn, batch)
    return True


def request_cancel(connection: Connection, key: int, cancel: Cancel) -> Cancel | None:
    """The first cancel holds, but an `after_step` gives way to another mode. None: the turn has ended."""
    row = connection.execute(_CANCEL, {"turn_key": key}).one_or_none()
    if row is None or row.ended_at is not None:
        return None
    earlier = row.cancel and Cancel.from_json(row.cancel)
    if earlier and (earlier.mode != "after_step" or cancel.mode == "after_step"):
        return earlier
    _change(connection, key, {"cancel": cancel.as_json()})
    return cancel


def settle(connection: Connection, settlement: Settlement) -> None:
    """The end of a turn: its row, its items, its last events, and where the conversation's history leads."""
    turn = settlement.turn
    before = connection.execute(_BEFORE_END, {"turn_key": turn.key}).one_or_none()
    if before is None:
        raise NotFound("this turn was deleted")
    changes = _progress(turn, settlement.batch) | {
        "status": advance(before.status, turn.status),
        "pause": None,
        "cancel": turn.cancel and turn.cancel.as_json(),
        "state": None,
        "answers": None,
        "owner": None,
        "ended_at": turn.ended_at or now(),
    }
    _change(connection, turn.key, changes)
    asked.withdraw(connection, turn.key)
    _settle_history(connection, settlement, before)
    events.add(connection, turn.key, settlement.batch.entries)


def _settle_history(connection: Connection, settlement: Settlement, before: AnyRow) -> None:
    turn = settlement.turn
    items.replace_of_turn(connection, turn.conversation_key, turn.key, settlement.items)
    undone = settlement.rollback and items.undo_compaction(connection, turn.key)
    if settlement.batch.compaction is not None and not settlement.rollback:
        items.compact(connection, turn.conversation_key, turn.key, settlement.batch.compaction)
    changes: dict[str, Any] = {}
    if turn.last_agent is not None and not settlement.rollback:
        changes["last_agent"] = turn.last_agent
    if before.status == "queued":
        # It never became the head. What follows it as `after_turn` follows the history that it waited for.
        if not turn.request.edits_history:
            head = conversations.head_of(connection, turn.conversation_key)
            _change(connection, turn.key, {"parent_key": head})
    elif settlement.rollback:
        changes["head_key"] = before.previous_head_key
    conversations.touch(connection, turn.conversation_key, **changes)
    if "head_key" in changes and (undone or before.parent_key != before.previous_head_key):
        items.mark_superseded(connection, turn.conversation_key, before.previous_head_key)


def _followed(connection: Connection, turn: Turn) -> dict[str, int | None]:
    """What a turn that begins to run comes after: the head as it is. An edit's parent is chosen already."""
    head = conversations.head_of(connection, turn.conversation_key)
    edits = turn.request.edits_history
    return {"previous_head_key": head} if edits else {"previous_head_key": head, "parent_key": head}


def _take_head(connection: Connection, turn: Turn) -> None:
    """History leads to the turn from now on."""
    conversations.touch(connection, turn.conversation_key, head_key=turn.key)
    if turn.request.edits_history:
        items.mark_superseded(connection, turn.conversation_key, turn.key)


def _change(connection: Connection, key: int, changes: dict[str, Any]) -> None:
    connection.execute(_CHANGE, changes | {"turn_key": key})


def _move(
    connection: Connection, turn: Turn, status: TurnStatus, changes: dict[str, Any], by: Update = _MOVE
) -> bool:
    """Change the row if the turn still has that status."""
    which = {"turn_key": turn.key, "earlier_status": status}
    return connection.execute(by, changes | which).rowcount == 1


def _record(connection: Connection, turn: Turn, batch: EventBatch) -> None:
    events.add(connection, turn.key, batch.entries)
    items.add(connection, turn.conversation_key, turn.key, batch.items)
    if batch.compaction is not None:
        items.compact(connection, turn.conversation_key, turn.key, batch.compaction)


def _last_event(turn: Turn, batch: EventBatch) -> int:
    return batch.last_seq if batch.entries else turn.last_event_id


def _answered_after(turn: Turn, batch: EventBatch) -> int:
    return batch.entries[0].seq - 1 if batch.entries else turn.last_event_id


def _progress(turn: Turn, batch: EventBatch) -> dict[str, Any]:
    """The columns that a run has changed."""
    return {
        "agent": turn.agent,
        "last_agent": turn.last_agent,
        "model": turn.model,
        "output_text": turn.output_text,
        "output": turn.output,
        "usage": turn.usage.as_json(),
        "error": turn.error and turn.error.as_json(),
        "runs": turn.runs,
        "last_event_id": _last_event(turn, batch),
    }
