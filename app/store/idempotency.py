"""Idempotency keys: which turn a caller's key stands for, for 24 hours."""

from datetime import timedelta

from sqlalchemy import Connection, delete, insert, select

from app.domain.caller import Caller
from app.domain.ports import IdempotencyKey, KnownAnswer
from app.domain.turn import now
from app.errors import IdempotencyKeyReused
from app.store import turns
from app.store.ownership import owner_columns
from app.store.tables import idempotency_keys

LIFETIME = timedelta(hours=24)


def find(connection: Connection, caller: Caller, idempotency: IdempotencyKey) -> KnownAnswer | None:
    """Raises IdempotencyKeyReused if the key stands for another request. Keys are a caller's and user's own."""
    table = idempotency_keys.c
    owner = owner_columns(caller)
    row = connection.execute(
        select(table.fingerprint, table.turn_key, table.after).where(
            table.caller_name == owner["caller_name"],
            table.caller_user == owner["caller_user"],
            table.idempotency_key == idempotency.key,
            table.created_at > now() - LIFETIME,
        )
    ).one_or_none()
    if row is None:
        return None
    if row.fingerprint != idempotency.fingerprint:
        raise IdempotencyKeyReused(
            "Idempotency-Key: this key was used for another request within 24 hours; use a new one"
        )
    return KnownAnswer(turns.by_key(connection, row.turn_key), row.after)


def add(connection: Connection, caller: Caller, idempotency: IdempotencyKey, turn_key: int, after: int) -> None:
    """Remember a key. The same request once more changes nothing. Sweeps the keys whose time is over."""
    connection.execute(delete(idempotency_keys).where(idempotency_keys.c.created_at <= now() - LIFETIME))
    if find(connection, caller, idempotency) is not None:
        return
    row = owner_columns(caller) | {
        "idempotency_key": idempotency.key,
        "fingerprint": idempotency.fingerprint,
        "turn_key": turn_key,
        "after": after,
        "created_at": now(),
    }
    connection.execute(insert(idempotency_keys), row)
