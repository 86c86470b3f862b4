"""Idempotency keys: which turn a caller's key stands for, for 24 hours."""

from datetime import timedelta

from sqlalchemy import Connection, bindparam, delete, insert, select

from app.domain.caller import Caller
from app.domain.ports import IdempotencyKey, KnownAnswer
from app.domain.turn import now
from app.errors import IdempotencyKeyReused
from app.store import turns
from app.store.ownership import owner_columns
from app.store.tables import idempotency_keys

LIFETIME = timedelta(hours=24)

_KEYS = idempotency_keys.c
_FIND = select(_KEYS.fingerprint, _KEYS.turn_key, _KEYS.after).where(
    _KEYS.caller_name == bindparam("caller_name"),
    _KEYS.caller_user == bindparam("caller_user"),
    _KEYS.idempotency_key == bindparam("idempotency_key"),
    _KEYS.created_at > bindparam("begin"),
)
_SWEEP = delete(idempotency_keys).where(_KEYS.created_at <= bindparam("begin"))
_ADD = insert(idempotency_keys)


def find(connection: Connection, caller: Caller, idempotency: IdempotencyKey) -> KnownAnswer | None:
    """Raises IdempotencyKeyReused if the key stands for another request. Keys are a caller's and user's own."""
    which = owner_columns(caller) | {"idempotency_key": idempotency.key, "begin": now() - LIFETIME}
    row = connection.execute(_FIND, which).one_or_none()
    if row is None:
        return None
    if row.fingerprint != idempotency.fingerprint:
        raise IdempotencyKeyReused(
            "Idempotency-Key: this key was used for another request within 24 hours; use a new one"
        )
    return KnownAnswer(turns.by_key(connection, row.turn_key), row.after)


def add(connection: Connection, caller: Caller, idempotency: IdempotencyKey, turn_key: int, after: int) -> None:
    """Remember a key. The same request once more changes nothing."""
    if find(connection, caller, idempotency) is None:
        add_new(connection, caller, idempotency, turn_key, after)


def add_new(
    connection: Connection, caller: Caller, idempotency: IdempotencyKey, turn_key: int, after: int
) -> None:
    """Remember a key that `find` does not know. Sweeps the keys whose time is over."""
    at = now()
    connection.execute(_SWEEP, {"begin": at - LIFETIME})
    row = owner_columns(caller) | {
        "idempotency_key": idempotency.key,
        "fingerprint": idempotency.fingerprint,
        "turn_key": turn_key,
        "after": after,
        "created_at": at,
    }
    connection.execute(_ADD, row)
