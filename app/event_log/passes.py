"""One write for each pass of the event loop: whatever was appended in it, to any log, goes into the journal.

Asked for by the logs, which stay the owners of what they staged: a log whose batch needs a transaction of its
own submits it when it is asked for what is due. A delta that comes alone does not wait for the pass to end
(`keep`): another pass costs as much as the write.
"""

import asyncio
from collections.abc import Iterable, Sequence

from app.domain.ports import EventBatch, Store
from app.errors import StoreUnavailable
from app.event_log.live_log import LiveLog


class PassWriter:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: list[LiveLog] = []

    def schedule(self, log: LiveLog) -> None:
        """Write what the log has staged at the end of this pass."""
        if not self._asked:
            asyncio.get_running_loop().call_soon(self._write_asked)
        self._asked.append(log)

    def write(self, logs: Iterable[LiveLog]) -> None:
        """Write what is due of these logs now, and show it."""
        due = [(log, batch) for log in logs if (batch := log.due()) is not None]
        if due:
            self.keep(due)

    def keep(self, batches: Sequence[tuple[LiveLog, EventBatch]]) -> None:
        """Write batches into the journal and show them; if they are refused, their logs have failed."""
        try:
            self._store.journal([(log.key, batch) for log, batch in batches])
        except StoreUnavailable as error:
            for log, _ in batches:
                log.fail(error)
        else:
            for log, batch in batches:
                log.publish(batch)

    def submit(self, turn_key: int, batch: EventBatch) -> asyncio.Future[None]:
        """Write a batch in a transaction of its own."""
        return self._store.submit(turn_key, batch)

    def _write_asked(self) -> None:
        asked, self._asked = self._asked, []
        self.write(asked)
