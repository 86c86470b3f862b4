"""Events on their way into the database: in the journal at once, committed in groups behind it.

Whatever else is written goes behind them (`hand_over`), so that no transaction finds a log without the events
that came before it.
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from app.errors import StoreUnavailable
from app.store.database import refused
from app.store.events import AppendRow, merged
from app.store.journal import Journal, Segment
from app.store.writer import Writer

logger = logging.getLogger(__name__)

GATHER_S = 0.25
RETRY_S = 1.0
"""How soon rows that the database has refused are offered to it again."""
GROUP_BYTES = 1024 * 1024
"""So much is handed over without waiting for more."""
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""What may be in the journal and not in the database; more is refused."""


class Appends:
    """Belongs to the event loop. Until the database has refused something, rows are taken; then not before it
    has taken those."""

    def __init__(self, journal: Journal, writer: Writer, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._writer = writer
        self._loop = loop
        self._files = ThreadPoolExecutor(1, thread_name_prefix="turnwire-journal")
        self._gathered: list[AppendRow] = []
        self._gathered_bytes = 0
        self._uncommitted_bytes = 0
        self._groups = 0
        self._committed = 0
        self._newest: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._refused = False

    def add(self, rows: Sequence[AppendRow]) -> None:
        """Keep rows; when this returns, no end of the process loses them. Raises StoreUnavailable."""
        if self._refused:
            raise StoreUnavailable("The store cannot be used right now; try again later.", retry_after_s=1)
        if self._uncommitted_bytes > MAX_WAITING_BYTES:
            raise StoreUnavailable("The store is overloaded.", retry_after_s=1)
        try:
            self._journal.write(rows)
        except OSError as error:
            raise refused(error) from error
        self._gathered += rows
        size = sum([len(row[3]) for row in rows])
        self._gathered_bytes += size
        self._uncommitted_bytes += size
        if self._gathered_bytes >= GROUP_BYTES:
            self.hand_over()
        elif self._timer is None:
            self._timer = self._loop.call_later(GATHER_S, self._due)

    def hand_over(self) -> None:
        """Put what has gathered into the writer's queue, ahead of what is put there next."""
        if self._gathered or self._refused:
            rows, size = self._gathered, self._gathered_bytes
            self._gathered, self._gathered_bytes = [], 0
            self._groups += 1
            self._journal.grouped(self._groups)
            group = self._groups
            self._newest = self._writer.append(merged(rows))
            self._newest.add_done_callback(lambda done: self._written(group, size, done))

    async def committed(self) -> None:
        """Return once all rows so far are in the database. Raises StoreUnavailable if it refuses them."""
        self.hand_over()
        if self._newest is not None and self._committed < self._groups:
            await asyncio.shield(self._newest)

    def close(self) -> None:
        """After the writer has stopped. What it could not write stays in the journal, for the next start."""
        if self._timer is not None:
            self._timer.cancel()
        self._files.shutdown()
        self._journal.close(clear=not self._writer.owes)

    def _due(self) -> None:
        self._timer = None
        if self._gathered or self._refused:
            self.hand_over()
        elif self._committed == self._groups and not self._journal.is_empty:
            # All is quiet: what the journal holds is in the database, and may be deleted there.
            self._journal.rotate()
            self._clear_obsolete()

    def _written(self, group: int, size: int, done: asyncio.Future[None]) -> None:
        if done.cancelled():
            return
        if done.exception() is not None:
            self._refused = True
            self._again_in(RETRY_S)
            return
        self._refused = False
        self._committed = group
        self._uncommitted_bytes -= size
        if group == self._groups:
            self._uncommitted_bytes = self._gathered_bytes  # without what had been refused before
        self._clear_obsolete()
        if not self._journal.is_empty:
            self._again_in(GATHER_S)

    def _again_in(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._due)

    def _clear_obsolete(self) -> None:
        segment = self._journal.obsolete(self._committed)
        if segment is not None:
            cleared = self._loop.run_in_executor(self._files, segment.clear)
            cleared.add_done_callback(lambda done: self._cleared(segment, done))

    def _cleared(self, segment: Segment, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error("the journal cannot be emptied: %s", type(error).__name__)
        self._journal.freed(segment)
        if not self._journal.is_empty:
            self._again_in(GATHER_S)
