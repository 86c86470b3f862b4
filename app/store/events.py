"""The log's rows: one for each turn and commit, holding the events of that commit, a JSON object a line.

When a turn has ended its rows are rewritten, many into one and compressed. The two hot statements, append and
tail, run as text on the driver's connection.
"""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from app.domain.events import LogEntry
from app.errors import EventsExpired, StoreUnavailable
from app.store.database import driver
from app.store.tables import events, turns

AppendRow = tuple[int, int, int, bytes]
"""turn_key, first_seq, last_seq, body."""

APPEND = "INSERT INTO events (turn_key, first_seq, last_seq, packed, body) VALUES (?, ?, ?, 0, ?)"
_TAIL = (
    "SELECT first_seq, packed, body FROM events WHERE turn_key = ?1 AND first_seq >= coalesce("
    "(SELECT max(first_seq) FROM events WHERE turn_key = ?1 AND first_seq <= ?2), 0) ORDER BY first_seq"
)
_LAST = "SELECT last_seq FROM events WHERE turn_key = ? ORDER BY first_seq DESC LIMIT 1"
_UNPACKED = (
    "SELECT first_seq, last_seq, body FROM events WHERE turn_key = ? AND first_seq > ? AND packed = 0 "
    "ORDER BY first_seq LIMIT ?"
)
_TYPE_AT = len('{"type":"')
_LARGEST = 2**62

_KEPT = select(turns.c.events_form, turns.c.last_event_id).where(turns.c.key == bindparam("of_turn"))
_TO_PACK = (
    select(turns.c.key)
    .where(turns.c.events_form == "plain", turns.c.ended_at.is_not(None))
    .order_by(turns.c.ended_at)
    .limit(1)
)
_REMOVE_PLAIN = delete(events).where(
    events.c.turn_key == bindparam("of_turn"),
    events.c.first_seq.between(bindparam("begin"), bindparam("end")),
    events.c.packed.is_(False),
)
_ADD_PACKED = insert(events).values(packed=True)
_MARK_PACKED = (
    update(turns)
    .where(turns.c.key == bindparam("of_turn"), turns.c.events_form == "plain")
    .values(events_form="packed")
)

PACK_BYTES = 256 * 1024
PACK_ROWS = 128


def append_row(turn_key: int, entries: Sequence[LogEntry]) -> AppendRow:
    body = entries[0].data if len(entries) == 1 else b"\n".join([entry.data for entry in entries])
    return turn_key, entries[0].seq, entries[-1].seq, body


def merged(rows: Iterable[AppendRow]) -> list[AppendRow]:
    """The same events with what follows each other in a turn as one row."""
    runs: dict[int, list[AppendRow]] = {}
    for row in rows:
        runs.setdefault(row[0], []).append(row)
    return [
        (key, run[0][1], run[-1][2], b"\n".join([row[3] for row in run])) if len(run) > 1 else run[0]
        for key, run in runs.items()
    ]


def add(connection: Connection, turn_key: int, entries: Sequence[LogEntry]) -> None:
    """Add events that are part of a larger transaction; refuses a gap in the log."""
    if not entries:
        return
    raw = driver(connection)
    last = last_seq(raw, turn_key)
    if entries[0].seq != last + 1:
        raise StoreUnavailable(f"event {entries[0].seq} cannot follow event {last}: the log would have a gap")
    raw.execute(APPEND, append_row(turn_key, entries))


def last_seq(raw: sqlite3.Connection, turn_key: int) -> int:
    """The number of the last event that is stored; 0 if there is none."""
    row = raw.execute(_LAST, (turn_key,)).fetchone()
    return int(row[0]) if row else 0


def after(connection: Connection, turn_key: int, number: int, *, limit: int, max_bytes: int) -> list[LogEntry]:
    """Entries after `number`, at least one if there is any. Raises EventsExpired."""
    number = min(number, _LARGEST)
    found: list[LogEntry] = []
    size = 0
    for entry in _entries(driver(connection), turn_key, number + 1):
        size += len(entry.data)
        if found and (len(found) >= limit or size > max_bytes):
            break
        found.append(entry)
    if not found:
        _check_kept(connection, turn_key, number)
    return found


def _entries(raw: sqlite3.Connection, turn_key: int, start: int) -> Iterator[LogEntry]:
    for first, packed, body in raw.execute(_TAIL, (turn_key, start)):
        lines = (zlib.decompress(body) if packed else body).split(b"\n")
        for seq, data in enumerate(lines, first):
            if seq >= start:
                yield LogEntry(seq, type_of(data), data)


def type_of(data: bytes) -> str:
    """The event's type, cut from the fixed beginning of its JSON."""
    return data[_TYPE_AT : data.index(b'"', _TYPE_AT)].decode()


def _check_kept(connection: Connection, turn_key: int, number: int) -> None:
    row = connection.execute(_KEPT, {"of_turn": turn_key}).one_or_none()
    if row is not None and row.events_form == "expired" and number < row.last_event_id:
        raise EventsExpired(
            "The events of this turn are no longer kept: it ended too long ago. The turn and its items are."
        )


# --- retention ---


def to_expire(connection: Connection, before: datetime, limit: int) -> list[int]:
    """Turns that ended before and still have events, the oldest first."""
    query = (
        select(turns.c.key)
        .where(turns.c.events_form.in_(("plain", "packed")), turns.c.ended_at < before)
        .order_by(turns.c.ended_at)
        .limit(limit)
    )
    return list(connection.scalars(query))


def expire(connection: Connection, turn_key: int) -> None:
    connection.execute(delete(events).where(events.c.turn_key == turn_key))
    connection.execute(update(turns).where(turns.c.key == turn_key).values(events_form="expired"))


# --- packing ---


@dataclass(frozen=True, slots=True)
class Pack:
    """Some consecutive rows of an ended turn, and the one row that takes their place."""

    turn_key: int
    first_seq: int
    last_seq: int
    body: bytes
    is_last: bool
    """No row of the turn is behind."""


def turn_to_pack(connection: Connection) -> int | None:
    """An ended turn whose rows are as they were written."""
    return connection.scalars(_TO_PACK).one_or_none()


def next_pack(connection: Connection, turn_key: int, behind: int) -> Pack | None:
    """The next rows after event `behind`, compressed: a bounded number of rows and bytes at a time."""
    rows = driver(connection).execute(_UNPACKED, (turn_key, behind, PACK_ROWS)).fetchall()
    if not rows:
        return None
    taken, size = 0, 0
    while taken < len(rows) and (taken == 0 or size + len(rows[taken][2]) <= PACK_BYTES):
        size += len(rows[taken][2])
        taken += 1
    body = zlib.compress(b"\n".join(row[2] for row in rows[:taken]))
    return Pack(turn_key, rows[0][0], rows[taken - 1][1], body, is_last=taken == len(rows) < PACK_ROWS)


def replace_rows(connection: Connection, pack: Pack) -> None:
    """Put the packed row in the place of the plain ones, if they are still there."""
    if pack.is_last:
        mark_packed(connection, pack.turn_key)
    which = {"of_turn": pack.turn_key, "begin": pack.first_seq, "end": pack.last_seq}
    if not connection.execute(_REMOVE_PLAIN, which).rowcount:
        return  # expired, or deleted with the conversation
    row = {
        "turn_key": pack.turn_key,
        "first_seq": pack.first_seq,
        "last_seq": pack.last_seq,
        "body": pack.body,
    }
    connection.execute(_ADD_PACKED, row)


def mark_packed(connection: Connection, turn_key: int) -> None:
    connection.execute(_MARK_PACKED, {"of_turn": turn_key})
