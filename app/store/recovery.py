"""What an earlier process has left in the journal is brought into the database before anything else."""

import logging
from collections.abc import Sequence

from sqlalchemy import Connection, select

from app.store import events
from app.store.database import Database, driver
from app.store.events import AppendRow
from app.store.tables import turns

logger = logging.getLogger(__name__)

_CACHE_MIB = 16


def bring_in(database: Database, rows: Sequence[AppendRow]) -> None:
    """Append the rows that the database lacks, in one transaction. Most of them it has.

    A row is taken if it follows the last event of its turn, and if it speaks of that turn: the database may be
    another one than the rows were written for, for instance a backup.
    """
    if not rows:
        return
    with database.connect(cache_mib=_CACHE_MIB) as connection:
        raw = driver(connection)
        raw.execute("PRAGMA synchronous = FULL")
        raw.execute("BEGIN IMMEDIATE")
        taken = sum(_bring_in(connection, row) for row in rows)
        raw.execute("COMMIT")
    if taken:
        logger.info("events of an earlier process were brought in from the journal: %d rows", taken)


def _bring_in(connection: Connection, row: AppendRow) -> bool:
    turn_key, first, _, body = row
    turn_id = connection.scalar(select(turns.c.id).where(turns.c.key == turn_key, turns.c.ended_at.is_(None)))
    if turn_id is None or f'"turn_id":"{turn_id}"'.encode() not in body.partition(b"\n")[0]:
        return False
    if events.last_seq(driver(connection), turn_key) != first - 1:
        return False
    driver(connection).execute(events.APPEND, row)
    return True
