"""Rewrites the events of ended turns compactly: a thread reads and compresses, the writer swaps in small steps.

What is left to do stands in the database itself, so that a crash forgets nothing.
"""

import threading
from functools import partial
from typing import Any

from sqlalchemy import Connection

from app.errors import TurnwireError
from app.store import events
from app.store.database import REFUSALS, Database, refused
from app.store.writer import Work, Writer

IDLE_S = 5.0
STEP_S = 0.005
"""Between two steps: the writer belongs to the turns."""
_BUSY_BACKLOG = 20
_CACHE_MIB = 4


class Packer:
    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer
        self.idle = threading.Event()
        """Set while nothing is left to do."""
        self._work_waits = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="turnwire-packer", daemon=True)

    def start(self) -> None:
        self._work_waits.set()  # what an earlier process left
        self._thread.start()

    def wake(self) -> None:
        """A turn has ended."""
        self.idle.clear()
        self._work_waits.set()

    def stop(self) -> None:
        """Leave the rest for the next start. Blocks: for a thread that may wait. The writer must still run."""
        self._stopping = True
        self._work_waits.set()
        self._thread.join()

    def _run(self) -> None:
        with self._database.connect(cache_mib=_CACHE_MIB, read_only=True) as connection:
            while not self._stopping:
                self._work_waits.wait(IDLE_S)
                self._work_waits.clear()
                try:
                    self._pack_all(connection)
                except TurnwireError:
                    continue  # the writer has said why; the next round tries again
                except REFUSALS as error:
                    refused(error)

    def _pack_all(self, connection: Connection) -> None:
        while not self._stopping and (turn_key := events.turn_to_pack(connection)) is not None:
            self._pack(connection, turn_key)
        self.idle.set()

    def _pack(self, connection: Connection, turn_key: int) -> None:
        behind = 0
        while not self._stopping:
            pack = events.next_pack(connection, turn_key, behind)
            if pack is None:
                self._write(partial(events.mark_packed, turn_key=turn_key))
                return
            self._write(partial(events.replace_rows, pack=pack))
            if pack.is_last:
                return
            behind = pack.last_seq

    def _write(self, work: Work[Any]) -> None:
        pause = threading.Event()
        while self._writer.backlog > _BUSY_BACKLOG and not self._stopping:
            pause.wait(STEP_S)
        self._writer.submit_from_thread(work).result()
        pause.wait(STEP_S)
