"""Moves the write-ahead log into the database on a thread of its own, so that no commit pays for the fsync."""

import sqlite3
import threading

from app.store.database import Database, driver, refused

INTERVAL_S = 0.5
PASSIVE_BYTES = 1024 * 1024
TRUNCATE_BYTES = 32 * 1024 * 1024
"""A passive checkpoint never catches up with a busy writer: beyond this size the writer waits for the rest."""
_CACHE_MIB = 1


class Checkpointer:
    def __init__(self, database: Database, *, truncate_bytes: int = TRUNCATE_BYTES) -> None:
        self._database = database
        self._truncate_bytes = truncate_bytes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="turnwire-checkpointer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Checkpoint a last time and end, after all others. Blocks: for a thread that may wait."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with self._database.connect(cache_mib=_CACHE_MIB) as connection:
            raw = driver(connection)
            # In TRUNCATE the writer is held off while readers are waited for: not for long.
            raw.execute("PRAGMA busy_timeout = 20")
            while not self._stop.wait(INTERVAL_S):
                self.checkpoint(raw)
            _run_checkpoint(raw, "TRUNCATE")

    def checkpoint(self, raw: sqlite3.Connection) -> None:
        """What is done each half second."""
        if self._wal_bytes() > PASSIVE_BYTES:
            _run_checkpoint(raw, "PASSIVE")
        if self._wal_bytes() > self._truncate_bytes:
            _run_checkpoint(raw, "PASSIVE")  # what was written meanwhile, so that little is left to wait for
            _run_checkpoint(raw, "TRUNCATE")

    def _wal_bytes(self) -> int:
        try:
            return self._database.wal_path.stat().st_size
        except OSError:
            return 0


def _run_checkpoint(raw: sqlite3.Connection, mode: str) -> None:
    try:
        raw.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    except sqlite3.Error as error:
        refused(error)
