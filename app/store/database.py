"""The SQLite file: how each thread's own connection to it is opened, and what its refusals become.

The driver's own transactions are off: a thread says BEGIN and COMMIT itself, so that one transaction can hold
the work of many callers and a savepoint is what it says.
"""

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from app.errors import StoreUnavailable

logger = logging.getLogger(__name__)

FILE_NAME = "turnwire.sqlite3"
REFUSALS = (sqlite3.Error, SQLAlchemyError)
"""What the database and the layer above it raise."""

BUSY_S = 5
"""How long a connection waits for another one's lock."""

# Checkpoints have a thread of their own: an automatic one would make a commit pay for its fsync.
_PRAGMAS = (
    f"PRAGMA busy_timeout = {BUSY_S * 1000}",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA wal_autocheckpoint = 0",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA secure_delete = FAST",
)


class UnsupportedDatabase(Exception):
    """The configured database is none that this version speaks."""


class Database:
    """One SQLite file. Connections belong to the thread that opened them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.engine = _engine(path)

    @property
    def wal_path(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    @contextmanager
    def connect(self, *, cache_mib: int, read_only: bool = False) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA cache_size = -{cache_mib * 1024}")
            if read_only:
                connection.exec_driver_sql("PRAGMA query_only = ON")
            yield connection


def path_of(database: str | Path) -> Path:
    """The file that a path or a `sqlite:///` URL names."""
    if isinstance(database, Path):
        return database
    scheme, separator, rest = database.partition(":///")
    if not separator:
        if "://" in database:
            raise UnsupportedDatabase("TURNWIRE_DATABASE_URL: only sqlite:/// URLs are supported")
        return Path(database)
    if scheme != "sqlite" or not rest:
        raise UnsupportedDatabase("TURNWIRE_DATABASE_URL: only sqlite:/// URLs with a file are supported")
    return Path(rest)


def driver(connection: Connection) -> sqlite3.Connection:
    """The driver's connection below, for the few hot statements."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - narrows the type: the engine is SQLite's
    return raw


def refused(error: BaseException) -> StoreUnavailable:
    """What a caller sees when the database refuses. Statements and paths stay out of it, and of the log."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    logger.error("the database refused: %s", getattr(cause, "sqlite_errorname", type(cause).__name__))
    refusal = StoreUnavailable("The store cannot be used right now; try again later.", retry_after_s=1)
    refusal.__cause__ = error
    return refusal


def _engine(path: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        isolation_level="AUTOCOMMIT",
        poolclass=NullPool,
        connect_args={"cached_statements": 256},
    )
    event.listen(engine, "connect", _set_pragmas)
    return engine


def _set_pragmas(connection: Any, _record: Any) -> None:
    for pragma in _PRAGMAS:
        connection.execute(pragma)
    _use_wal(connection)


def _use_wal(connection: sqlite3.Connection) -> None:
    """A new database is switched over by whoever opens it first; the switch alone heeds no busy timeout."""
    given_up_at = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= given_up_at:
                raise
            time.sleep(0.01)
        else:
            return
