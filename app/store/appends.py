"""Events on their way into the database: in the journal at once, committed in groups behind it.

Whatever else is written goes behind them (`hand_over`), so that no transaction finds a log without the events
that came before it.
"""

import asyncio
from collections.abc import Sequence

from app.errors import StoreUnavailable
from app.store.database import refused
from app.store.events import AppendRow, merged
from app.store.journal import ROTATE_BYTES, Journal, JournalFull
from app.store.writer import Writer

GATHER_S = 1.0
"""How long rows may gather before they are handed over."""
RETRY_S = 1.0
"""How soon rows that the database has refused are offered to it again."""


class Appends:
    """Belongs to the event loop. Once the database has refused rows, no more are taken before it has those."""

    def __init__(self, journal: Journal, writer: Writer, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._writer = writer
        self._loop = loop
        self._gathered: list[AppendRow] = []
        self._groups = 0
        """The number of the newest group that was handed over."""
        self._committed = 0
        """The number of the newest group that the database has."""
        self._newest: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._refused = False
        self._closed = False
        self._group_of: dict[int, int] = {}
        """The newest group that holds rows of a turn, for turns of which not all is committed."""

    def add(self, rows: Sequence[AppendRow]) -> None:
        """Keep rows; when this returns, no end of the process loses them. Raises StoreUnavailable."""
        if self._refused or self._closed:
            raise StoreUnavailable("The store cannot be used right now; try again later.", retry_after_s=1)
        try:
            self._journal.write(rows)
        except JournalFull as error:
            raise StoreUnavailable("The store is overloaded.", retry_after_s=1) from error
        except OSError as error:
            raise refused(error) from error
        self._gathered += rows
        for row in rows:
            self._group_of[row[0]] = self._groups + 1
        if self._timer is None:
            self._timer = self._loop.call_later(GATHER_S, self._due)
        if self._journal.used >= ROTATE_BYTES and self._committed == self._groups:
            self.hand_over()

    def hand_over(self) -> None:
        """Put what has gathered into the writer's queue, ahead of what is put there next."""
        if not self._gathered and not self._refused:
            return
        rows, self._gathered = self._gathered, []
        self._groups += 1
        self._journal.grouped(self._groups)
        group = self._groups
        self._newest = self._writer.append(merged(rows))
        self._newest.add_done_callback(lambda done: self._written(group, done))

    async def committed(self, turn_key: int) -> None:
        """Return once the turn's rows are all in the database. Raises StoreUnavailable if it refuses them."""
        if self._group_of.get(turn_key, 0) <= self._committed:
            return
        self.hand_over()
        if self._newest is not None:
            await asyncio.shield(self._newest)

    def close(self) -> None:
        """After the writer has stopped. What it could not write stays in the journal, for the next start."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._journal.close(wipe=self._committed == self._groups and not self._gathered)

    def _due(self) -> None:
        self._timer = None
        self.hand_over()

    def _written(self, group: int, done: asyncio.Future[None]) -> None:
        if done.cancelled() or self._closed:
            return
        self._refused = done.exception() is not None
        if self._refused:
            if self._timer is None:
                self._timer = self._loop.call_later(RETRY_S, self._due)
            return
        self._committed = group
        self._group_of = {key: newest for key, newest in self._group_of.items() if newest > group}
        self._journal.committed(group, all_quiet=not self._group_of)
