"""Turns as they are read: one, those of a conversation, those in a status, page by page."""

from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, literal, select

from app.domain.caller import Caller
from app.domain.conversation import Page, PageRequest
from app.domain.ids import ConversationId, TurnId
from app.domain.pause import Answers, Pause
from app.domain.turn import ACTIVE, Cancel, Turn, TurnError, TurnRequest, TurnStatus
from app.domain.usage import Usage
from app.errors import InvalidRequest, NotFound
from app.store import conversations, cursors, tables
from app.store.cursors import AnyRow
from app.store.ownership import owned_by, owner_columns, owner_of
from app.store.tables import JsonText, compacted
from app.store.tables import turns as table

UNFINISHED: tuple[TurnStatus, ...] = ("queued", "running", "paused")

_HEAVY = {"input", "state", "answers"}
_COLUMNS = [column for column in table.c if column.name not in _HEAVY]
_LAST_EVENT = (
    select(tables.events.c.last_seq)
    .where(tables.events.c.turn_key == table.c.key)
    .order_by(tables.events.c.first_seq.desc())
    .limit(1)
    .correlate(table)
    .scalar_subquery()
)
"""While a turn is under way its log is ahead of its row."""


def _query(*, with_input: bool = True) -> Select[Any]:
    shown = table.c.input if with_input else literal("", JsonText).label("input")
    return select(
        *_COLUMNS,
        shown,
        tables.conversations.c.id.label("conversation_id"),
        func.coalesce(_LAST_EVENT, 0).label("logged"),
    ).select_from(table.join(tables.conversations))


_BY_KEY = _query().where(table.c.key == bindparam("turn_key"))
_IN_ORDER = _query().order_by(table.c.key)
_OF_CONVERSATION = table.c.conversation_key == bindparam("of_conversation")
_NEXT = _IN_ORDER.where(_OF_CONVERSATION, table.c.key > bindparam("turn_key")).limit(1)
_NEWEST_KEY = select(func.max(table.c.key)).where(_OF_CONVERSATION)
_KEY_IN = select(table.c.key).where(_OF_CONVERSATION, table.c.id == bindparam("turn_id"))

_UNDER_WAY = table.c.ended_at.is_(None) & table.c.status.in_(bindparam("statuses", expanding=True))
"""That none of them has ended lets the database look at the few that have not."""
_WITH_STATUS = _IN_ORDER.where(_UNDER_WAY)
_UNFINISHED = _WITH_STATUS.where(_OF_CONVERSATION)
_ORPHANS = _WITH_STATUS.where(table.c.owner.is_distinct_from(bindparam("own")))

_EXPIRED_FIRST = (
    select(tables.asked.c.turn_key)
    .where(tables.asked.c.status == "pending", tables.asked.c.expires_at <= bindparam("at"))
    .group_by(tables.asked.c.turn_key)
    .order_by(func.min(tables.asked.c.expires_at))
    .limit(bindparam("at_most"))
)
_OVERDUE = _IN_ORDER.where(table.c.status == "paused", table.c.key.in_(_EXPIRED_FIRST))

_WAY_AND_USAGE = select(table.c.parent_key, table.c.usage).where(table.c.key == bindparam("turn_key"))
_HAS_COMPACTED = select(compacted).where(compacted.c.turn_key == bindparam("of_turn")).limit(1)
_PAUSED_STATE = select(table.c.state, table.c.answers).where(table.c.key == bindparam("turn_key"))


@cache
def _by_id(*, narrowed: bool) -> Select[Any]:
    return _query().where(owned_by(table, narrowed=narrowed), table.c.id == bindparam("turn_id"))


def by_key(connection: Connection, key: int) -> Turn:
    row = connection.execute(_BY_KEY, {"turn_key": key}).one_or_none()
    if row is None:
        raise NotFound("this turn was deleted")
    return _turn(row)


def get(connection: Connection, caller: Caller, turn_id: str) -> Turn:
    which = owner_columns(caller) | {"turn_id": turn_id}
    row = connection.execute(_by_id(narrowed=caller.user is not None), which).one_or_none()
    if row is None:
        raise NotFound(f"there is no turn {turn_id!r}")
    return _turn(row)


def unfinished(connection: Connection, conversation_key: int, *statuses: TurnStatus) -> list[Turn]:
    """A conversation's turns in these of the `UNFINISHED` statuses, in order of admission."""
    return _found(connection, _UNFINISHED, of_conversation=conversation_key, statuses=statuses)


def with_status(connection: Connection, status: TurnStatus) -> list[Turn]:
    """All turns in one of the `UNFINISHED` statuses, in order of admission."""
    return _found(connection, _WITH_STATUS, statuses=[status])


def overdue(connection: Connection, at: datetime, limit: int) -> list[Turn]:
    """Paused turns that nobody has answered in time, at most `limit`: those that expired first."""
    return _found(connection, _OVERDUE, at=at, at_most=limit)


def active(connection: Connection, conversation_key: int) -> Turn | None:
    return next(iter(unfinished(connection, conversation_key, *ACTIVE)), None)


def orphans(connection: Connection, owner: str) -> list[Turn]:
    """Running turns of another owner. It is gone: the data folder is held by this process."""
    return _found(connection, _ORPHANS, statuses=["running"], own=owner)


def after(connection: Connection, conversation_key: int, key: int) -> Turn | None:
    found = _found(connection, _NEXT, of_conversation=conversation_key, turn_key=key)
    return found[0] if found else None


def _found(connection: Connection, query: Select[Any], **which: Any) -> list[Turn]:
    return [_turn(row) for row in connection.execute(query, which)]


def newest_key(connection: Connection, conversation_key: int) -> int:
    """0 if the conversation has no turn."""
    return connection.scalars(_NEWEST_KEY, {"of_conversation": conversation_key}).one() or 0


def waiting_conversations(connection: Connection) -> list[int]:
    """Those that have queued turns, also behind a paused one."""
    queued = select(table.c.conversation_key).where(_UNDER_WAY).distinct()
    return list(connection.scalars(queued, {"statuses": ["queued"]}))


def page(
    connection: Connection,
    caller: Caller,
    request: PageRequest,
    *,
    conversation_key: int | None,
    status: TurnStatus | None,
    agent: str | None,
) -> Page[Turn]:
    """Of a conversation as `request.order` says, without one the newest first. Inputs are left out."""
    kind = "turns" if conversation_key is None else f"turns-{conversation_key}"
    descending = conversation_key is None or request.order == "desc"
    query = _query(with_input=False).where(owned_by(table, narrowed=caller.user is not None))
    if conversation_key is not None:
        query = query.where(table.c.conversation_key == conversation_key)
    if status is not None:
        query = query.where(table.c.status == status)
    if agent is not None:
        query = query.where(table.c.agent == agent)
    if request.cursor is not None:
        (key,) = cursors.decode(kind, request.cursor, 1)
        query = query.where(table.c.key < key if descending else table.c.key > key)
    query = query.order_by(table.c.key.desc() if descending else table.c.key).limit(request.limit + 1)
    rows = connection.execute(query, owner_columns(caller)).all()
    return cursors.page_of(rows, request.limit, _turn, lambda row: cursors.encode(kind, row.key))


def key_in(connection: Connection, conversation_key: int, turn_id: str) -> int:
    """The key of a turn that history shall lead to. Raises InvalidRequest if it is not of this conversation."""
    which = {"of_conversation": conversation_key, "turn_id": turn_id}
    key: int | None = connection.scalars(_KEY_IN, which).one_or_none()
    if key is None:
        message = f"{turn_id!r} is no turn of this conversation"
        raise InvalidRequest(
            f"after_turn: {message}", errors=[{"loc": ["body", "after_turn"], "message": message}]
        )
    return key


def settled_head(connection: Connection, conversation_key: int) -> int | None:
    """Where history leads, without the turn that is under way."""
    query = select(table.c.previous_head_key).where(_OF_CONVERSATION, _UNDER_WAY)
    which = {"of_conversation": conversation_key, "statuses": list(ACTIVE)}
    under_way = connection.execute(query, which).one_or_none()
    return conversations.head_of(connection, conversation_key) if under_way is None else under_way[0]


def last_agent_at(connection: Connection, head: int | None) -> str | None:
    """Who spoke last in the history that leads to that turn."""
    while head is not None:
        row = connection.execute(
            select(table.c.last_agent, table.c.parent_key).where(table.c.key == head)
        ).one()
        if row.last_agent is not None:
            return str(row.last_agent)
        head = row.parent_key
    return None


def context_tokens_before(connection: Connection, key: int) -> int | None:
    """What the newest call before a turn, on the way that leads to it, has left in the model's window."""
    before = connection.execute(_WAY_AND_USAGE, {"turn_key": key}).one_or_none()
    while before is not None and before.parent_key is not None:
        parent = before.parent_key
        before = connection.execute(_WAY_AND_USAGE, {"turn_key": parent}).one_or_none()
        tokens = Usage.from_json(before.usage).context_tokens if before is not None else 0
        if tokens:
            return tokens
        if connection.execute(_HAS_COMPACTED, {"of_turn": parent}).first():
            return None
    return None


def paused_state(connection: Connection, key: int) -> tuple[bytes, Answers]:
    """The run as it was at the last pause, and what has been answered to that pause."""
    row = connection.execute(_PAUSED_STATE, {"turn_key": key}).one_or_none()
    if row is None or row.state is None:
        raise NotFound("this turn has no paused run")
    return row.state, Answers.from_json(row.answers)


def _turn(row: AnyRow) -> Turn:
    return Turn(
        key=row.key,
        id=TurnId(row.id),
        conversation_key=row.conversation_key,
        conversation_id=ConversationId(row.conversation_id),
        caller=owner_of(row),
        status=row.status,
        agent=row.agent,
        model=row.model,
        request=TurnRequest.model_validate(row.request | {"input": row.input}),
        created_at=row.created_at,
        last_agent=row.last_agent,
        output_text=row.output_text,
        output=row.output,
        usage=Usage.from_json(row.usage),
        error=row.error and TurnError.from_json(row.error),
        pause=row.pause and Pause.from_json(row.pause),
        cancel=row.cancel and Cancel.from_json(row.cancel),
        runs=row.runs,
        last_event_id=max(row.last_event_id, row.logged),
        metadata=row.metadata,
        started_at=row.started_at,
        ended_at=row.ended_at,
        trace_parent=row.trace_parent,
    )
