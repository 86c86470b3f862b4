"""Conversations: found by their caller and id, listed by their newest activity, copied, removed."""

from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    bindparam,
    delete,
    insert,
    literal,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError

from app.domain.caller import Caller
from app.domain.conversation import Conversation, Page, PageRequest
from app.domain.ids import ConversationId
from app.domain.turn import now
from app.errors import ConversationExists, NotFound
from app.store import cursors
from app.store.cursors import AnyRow
from app.store.ownership import owned_by, owner_columns, owner_of
from app.store.tables import conversations, events, microseconds, turns

CHANGEABLE = frozenset({"agent", "metadata"})

_CREATE = insert(conversations).returning(*conversations.c)
_BY_KEY = select(conversations).where(conversations.c.key == bindparam("conversation_key"))
_HEAD = select(conversations.c.head_key).where(conversations.c.key == bindparam("conversation_key"))
_CHANGE = update(conversations).where(conversations.c.key == bindparam("conversation_key"))


def create(
    connection: Connection,
    caller: Caller,
    conversation_id: ConversationId,
    *,
    agent: str | None,
    metadata: dict[str, str],
    last_agent: str | None = None,
) -> Conversation:
    """Raises ConversationExists."""
    at = now()
    row = owner_columns(caller) | {
        "id": conversation_id,
        "agent": agent,
        "last_agent": last_agent,
        "metadata": metadata,
        "created_at": at,
        "active_at": at,
    }
    try:
        return _conversation(connection.execute(_CREATE, row).one())
    except IntegrityError as error:
        raise ConversationExists(
            f"a conversation {conversation_id!r} exists already: use it, or choose another id"
        ) from error


def by_key(connection: Connection, key: int) -> Conversation:
    row = connection.execute(_BY_KEY, {"conversation_key": key}).one_or_none()
    if row is None:
        raise NotFound("this conversation was deleted")
    return _conversation(row)


def find(connection: Connection, caller: Caller, conversation_id: str) -> Conversation | None:
    """The caller's conversation by that id.

    Two users of one name may have chosen the same id: without a user, the one that belongs to no user is
    preferred, else the newest.
    """
    which = owner_columns(caller) | {"conversation_id": conversation_id}
    row = connection.execute(_find(narrowed=caller.user is not None), which).one_or_none()
    return None if row is None else _conversation(row)


@cache
def _find(*, narrowed: bool) -> Select[Any]:
    return (
        select(conversations)
        .where(owned_by(conversations, narrowed=narrowed), conversations.c.id == bindparam("conversation_id"))
        .order_by(conversations.c.caller_user != "", conversations.c.key.desc())
        .limit(1)
    )


def get(connection: Connection, caller: Caller, conversation_id: str) -> Conversation:
    found = find(connection, caller, conversation_id)
    if found is None:
        raise NotFound(f"there is no conversation {conversation_id!r}")
    return found


def page(connection: Connection, caller: Caller, request: PageRequest) -> Page[Conversation]:
    """Newest activity first, whatever order the request names."""
    table = conversations.c
    query = select(conversations).where(owned_by(conversations, narrowed=caller.user is not None))
    if request.cursor is not None:
        at, key = cursors.decode("conversations", request.cursor, 2)
        query = query.where(
            tuple_(table.active_at, table.key) < tuple_(literal(at, Integer), literal(key, Integer))
        )
    query = query.order_by(table.active_at.desc(), table.key.desc()).limit(request.limit + 1)
    rows = connection.execute(query, owner_columns(caller)).all()
    return cursors.page_of(rows, request.limit, _conversation, _cursor)


def change(connection: Connection, key: int, changes: dict[str, Any]) -> Conversation:
    unknown = changes.keys() - CHANGEABLE
    if unknown:
        raise ValueError(f"{sorted(unknown)}: cannot be changed")
    if changes:
        connection.execute(_CHANGE, changes | {"conversation_key": key})
    return by_key(connection, key)


def touch(connection: Connection, key: int, **changes: Any) -> None:
    """Note activity, and whatever else changes with it."""
    connection.execute(_CHANGE, changes | {"conversation_key": key, "active_at": now()})


def head_of(connection: Connection, key: int) -> int | None:
    head: int | None = connection.scalars(_HEAD, {"conversation_key": key}).one()
    return head


def remove_some_events(connection: Connection, key: int, limit: int) -> int:
    """Remove the events of up to `limit` turns that have ended; returns of how many. They count as expired."""
    which = (turns.c.conversation_key == key, turns.c.ended_at.is_not(None), turns.c.events_form != "expired")
    keys = connection.scalars(select(turns.c.key).where(*which).limit(limit)).all()
    connection.execute(delete(events).where(events.c.turn_key.in_(keys)))
    connection.execute(update(turns).where(turns.c.key.in_(keys)).values(events_form="expired"))
    return len(keys)


def to_expire(connection: Connection, before: datetime, limit: int) -> list[int]:
    """Conversations without activity since, in which nothing is under way."""
    query = select(conversations.c.key).where(*_unused_since(before))
    return list(connection.scalars(query.order_by(conversations.c.active_at).limit(limit)))


def expire_some_events(connection: Connection, key: int, before: datetime, limit: int) -> int:
    """The same as `remove_some_events`, and nothing if the conversation has been used since it was found."""
    unused = select(conversations.c.key).where(conversations.c.key == key, *_unused_since(before))
    return remove_some_events(connection, key, limit) if connection.execute(unused).first() else 0


def expire(connection: Connection, key: int, before: datetime) -> bool:
    """Remove it if it has not been used since it was found."""
    unused = delete(conversations).where(conversations.c.key == key, *_unused_since(before))
    return connection.execute(unused).rowcount == 1


def _unused_since(before: datetime) -> tuple[ColumnElement[bool], ...]:
    under_way = select(turns.c.key).where(
        turns.c.conversation_key == conversations.c.key, turns.c.ended_at.is_(None)
    )
    return conversations.c.active_at < before, ~under_way.exists()


def remove(connection: Connection, key: int) -> None:
    """Everything that belongs to it goes with it, by the foreign keys."""
    connection.execute(delete(conversations).where(conversations.c.key == key))


def _cursor(row: AnyRow) -> str:
    active_at: datetime = row.active_at
    return cursors.encode("conversations", microseconds(active_at), row.key)


def _conversation(row: AnyRow) -> Conversation:
    return Conversation(
        key=row.key,
        id=ConversationId(row.id),
        caller=owner_of(row),
        agent=row.agent,
        last_agent=row.last_agent,
        created_at=row.created_at,
        active_at=row.active_at,
        metadata=row.metadata,
    )
