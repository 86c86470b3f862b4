"""A few threads that read, each with its own connection: a snapshot a job, never in the writer's way."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import Connection

from app.errors import StoreUnavailable
from app.store.database import REFUSALS, Database, driver, refused
from app.store.promises import Outcome, deliver

T = TypeVar("T")

THREADS = 3
CAPACITY = 10_000
"""Jobs that may wait; one more is refused."""
_CACHE_MIB = 16
_Job = tuple[Callable[[Connection], Any], asyncio.Future[Any]]


class Readers:
    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop) -> None:
        self._database = database
        self._loop = loop
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run, name=f"turnwire-reader-{number}", daemon=True)
            for number in range(THREADS)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish what waits, then end. Blocks: for a thread that may wait."""
        self._stopping = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def submit(self, work: Callable[[Connection], T]) -> asyncio.Future[T]:
        """Have `work` done on one snapshot. Call it from the loop's thread."""
        promise: asyncio.Future[T] = self._loop.create_future()
        if self._stopping:
            promise.set_exception(StoreUnavailable("The service is stopping.", retry_after_s=5))
        elif self._queue.qsize() >= CAPACITY:
            promise.set_exception(StoreUnavailable("The store is overloaded.", retry_after_s=1))
        else:
            self._queue.put((work, promise))
        return promise

    def _run(self) -> None:
        with self._database.connect(cache_mib=_CACHE_MIB, read_only=True) as connection:
            while job := self._queue.get():
                work, promise = job
                if not promise.done():
                    deliver(self._loop, [_read(connection, work, promise)])


def _read(connection: Connection, work: Callable[[Connection], Any], promise: asyncio.Future[Any]) -> Outcome:
    raw = driver(connection)
    try:
        raw.execute("BEGIN")
        return Outcome(promise, result=work(connection))
    except REFUSALS as error:
        return Outcome(promise, error=refused(error))
    except Exception as error:  # noqa: BLE001 - whatever a job raises is its submitter's to handle
        return Outcome(promise, error=error)
    finally:
        if raw.in_transaction:
            raw.execute("ROLLBACK")
