"""What turns ask for when they pause, and how it was answered: approvals, client tools' outputs, a go-ahead."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from app.domain.caller import Caller
from app.domain.conversation import Page, PageRequest
from app.domain.ids import CallId
from app.domain.json_types import JsonObject
from app.domain.pause import Answers, Asked, DecisionKind, Pause, PauseReason
from app.domain.turn import now, timestamp
from app.store import cursors
from app.store.cursors import AnyRow
from app.store.ownership import owned_by, owner_columns
from app.store.tables import asked, conversations, turns

_DECIDED: dict[DecisionKind, str] = {"approve": "approved", "reject": "rejected"}

_ADD = insert(asked).prefix_with("OR IGNORE", dialect="sqlite")
_CHANGE_PENDING = update(asked).where(asked.c.turn_key == bindparam("of_turn"), asked.c.status == "pending")
_ANSWER = _CHANGE_PENDING.where(asked.c.kind == bindparam("of_kind"), asked.c.id == bindparam("asked_id"))
_OF_TURN = select(asked).where(asked.c.turn_key == bindparam("of_turn")).order_by(asked.c.key)


def add(connection: Connection, turn_key: int, pause: Pause) -> None:
    """All that a pause asks for; what was asked before stays as it is."""
    fixed = {
        "turn_key": turn_key,
        "pause_id": pause.id,
        "status": "pending",
        "created_at": now(),
        "expires_at": pause.expires_at,
    }
    rows = [fixed | row for row in _rows(pause)]
    if rows:
        connection.execute(_ADD, rows)


def _rows(pause: Pause) -> Iterator[dict[str, Any]]:
    for approval in pause.approvals:
        yield {"kind": "approval", "id": approval.approval_id} | {
            name: getattr(approval, name) for name in ("call_id", "tool", "agent", "arguments")
        }
    for call in pause.tool_calls:
        yield {"kind": "tool_output", "id": call.call_id, "call_id": call.call_id, "tool": call.tool} | {
            "agent": None,
            "arguments": call.arguments,
        }
    if pause.reason == "step":
        nothing = dict.fromkeys(("call_id", "tool", "agent", "arguments"))
        yield {"kind": "step", "id": pause.id} | nothing


def renew(connection: Connection, turn_key: int, pause: Pause) -> None:
    """What is left of a pause has a new id."""
    changes = {"pause_id": pause.id, "expires_at": pause.expires_at}
    connection.execute(_CHANGE_PENDING, changes | {"of_turn": turn_key})


def answer(connection: Connection, turn_key: int, answers: Answers, after: int) -> None:
    """Keep what was answered; an answer that is kept already stays. `after`: its stream begins behind that."""
    for kind, asked_id, status, shown in _answers(answers):
        which = {"of_turn": turn_key, "of_kind": kind, "asked_id": asked_id}
        changes = {"status": status, "answer": shown, "answered_after": after, "answered_at": now()}
        connection.execute(_ANSWER, which | changes)


def _answers(answers: Answers) -> Iterable[tuple[PauseReason, str, str, JsonObject]]:
    for decision in answers.decisions:
        shown = replace(decision, call_id=None).as_json()
        yield "approval", decision.approval_id, _DECIDED[decision.decision], shown
    for output in answers.outputs:
        yield "tool_output", output.call_id, "answered", output.as_json()
    for pause_id in answers.steps:
        yield "step", pause_id, "answered", {"pause_id": pause_id}


def withdraw(connection: Connection, turn_key: int) -> None:
    """The turn has ended: nobody is asked any more."""
    connection.execute(_CHANGE_PENDING, {"of_turn": turn_key, "status": "cancelled"})


def of_turn(connection: Connection, turn_key: int) -> list[Asked]:
    """In the order in which it was asked for."""
    return [
        Asked(
            id=row.id,
            kind=row.kind,
            call_id=row.call_id and CallId(row.call_id),
            tool=row.tool,
            answer=row.answer,
            answered_after=row.answered_after,
        )
        for row in connection.execute(_OF_TURN, {"of_turn": turn_key})
    ]


def approvals(connection: Connection, caller: Caller, request: PageRequest, status: str) -> Page[JsonObject]:
    """`status` is `pending`, `approved`, `rejected` or `cancelled`; the oldest first by default."""
    query = (
        select(
            asked,
            turns.c.id.label("turn_id"),
            turns.c.caller_user.label("user"),
            conversations.c.id.label("conversation_id"),
        )
        .select_from(asked.join(turns).join(conversations))
        .where(owned_by(turns, narrowed=caller.user is not None))
        .where(asked.c.status == status, asked.c.kind == "approval")
    )
    descending = request.order == "desc"
    if request.cursor is not None:
        (key,) = cursors.decode("approvals", request.cursor, 1)
        query = query.where(asked.c.key < key if descending else asked.c.key > key)
    query = query.order_by(asked.c.key.desc() if descending else asked.c.key).limit(request.limit + 1)
    rows = connection.execute(query, owner_columns(caller)).all()
    return cursors.page_of(rows, request.limit, _approval, _cursor)


def _cursor(row: AnyRow) -> str:
    return cursors.encode("approvals", row.key)


def _approval(row: AnyRow) -> JsonObject:
    return {
        "approval_id": row.id,
        "turn_id": row.turn_id,
        "conversation_id": row.conversation_id,
        "user": row.user or None,
        "pause_id": row.pause_id,
        "call_id": row.call_id,
        "tool": row.tool,
        "agent": row.agent,
        "arguments": row.arguments,
        "status": row.status,
        "reason": row.answer and row.answer["reason"],
        "created_at": timestamp(row.created_at),
        "expires_at": timestamp(row.expires_at),
        "decided_at": row.answered_at and timestamp(row.answered_at),
    }
