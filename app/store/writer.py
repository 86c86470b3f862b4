"""The one thread that writes, by group commit: whatever waits goes into the next transaction.

An idle writer commits at once. A busy one lets at least 5 ms pass between two commits, so that more goes into
each. Every job has a savepoint of its own, so that one that fails does not sink the others. Rows of events
share one, and a group of nothing else is a single statement.
"""

import asyncio
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import Connection

from app.errors import StoreUnavailable
from app.store.database import REFUSALS, Database, driver, refused
from app.store.events import APPEND, AppendRow
from app.store.promises import Outcome, Promise, deliver

logger = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[Connection], T]

CAPACITY = 20_000
"""Jobs that may wait; one more is refused. Rows of events are bounded by the journal that holds them."""
MAX_GROUP = 2_000
GATHER_S = 0.005
BUSY_COMMITS = 4
"""So many commits within as many times `GATHER_S` show that the writer is busy."""
APPENDED_AT_ONCE = 128
_CACHE_MIB = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """Either work, or rows of events to append. `durable`: its commit is synced to disk."""

    promise: Promise
    work: Work[Any] | None = None
    rows: Sequence[AppendRow] | None = None
    durable: bool = False

    @property
    def is_append(self) -> bool:
        return self.rows is not None


class Writer:
    """Jobs are done in the order in which they were submitted; a promise is kept after its COMMIT."""

    def __init__(
        self, database: Database, loop: asyncio.AbstractEventLoop, *, capacity: int = CAPACITY
    ) -> None:
        self.failing = False
        """True from a refusal of the database until the next commit that brings something."""
        self._database = database
        self._capacity = capacity
        self._loop = loop
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._stopping = False
        self._owed: list[AppendRow] = []
        """Rows that the database has refused: they go in front of the next ones, so that no log has a gap."""
        self._begun: deque[float] = deque([0.0] * BUSY_COMMITS, maxlen=BUSY_COMMITS)
        self._thread = threading.Thread(target=self._run, name="turnwire-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish what waits, then end. Blocks: for a thread that may wait."""
        self._stopping = True
        self._queue.put(None)
        self._thread.join()

    @property
    def backlog(self) -> int:
        return self._queue.qsize()

    def submit(self, work: Work[T], *, durable: bool = False) -> asyncio.Future[T]:
        """Have `work` done in a transaction. Call it from the loop's thread."""
        promise: asyncio.Future[T] = self._loop.create_future()
        self._put(_Job(promise, work=work, durable=durable))
        return promise

    def append(self, rows: Sequence[AppendRow]) -> asyncio.Future[None]:
        """Append rows of events, behind those that are owed. A row of a turn that was deleted is dropped. If
        the promise fails the rows are owed, and `append(())` tries again."""
        promise: asyncio.Future[None] = self._loop.create_future()
        self._put(_Job(promise, rows=rows))
        return promise

    def submit_from_thread(self, work: Work[T]) -> ThreadFuture[T]:
        promise: ThreadFuture[T] = ThreadFuture()
        self._put(_Job(promise, work=work))
        return promise

    def _put(self, job: _Job) -> None:
        if self._stopping:
            job.promise.set_exception(StoreUnavailable("The service is stopping.", retry_after_s=5))
        elif job.rows is None and self._queue.qsize() >= self._capacity:
            job.promise.set_exception(StoreUnavailable("The store is overloaded.", retry_after_s=1))
        else:
            self._queue.put(job)

    # --- the thread ---

    def _run(self) -> None:
        with self._database.connect(cache_mib=_CACHE_MIB) as connection:
            while group := self._next_group():
                self._begun.append(time.monotonic())
                deliver(self._loop, self._commit(connection, group))

    def _next_group(self) -> list[_Job]:
        """Whatever waits, at least one job; empty at the end."""
        first = self._queue.get()
        if first is None:
            return []
        now = time.monotonic()
        if now - self._begun[0] < BUSY_COMMITS * GATHER_S:
            time.sleep(max(0.0, self._begun[-1] + GATHER_S - now))
        group = [first]
        while len(group) < MAX_GROUP:
            try:
                job = self._queue.get_nowait()
            except Empty:
                break
            if job is None:
                self._queue.put(None)
                break
            group.append(job)
        return group

    def _commit(self, connection: Connection, group: list[_Job]) -> list[Outcome]:
        raw = driver(connection)
        owed = self._owed
        if self._append_at_once(raw, group):
            self.failing = False
            return [Outcome(job.promise) for job in group]
        durable = any(job.durable for job in group)
        try:
            if durable:
                raw.execute("PRAGMA synchronous = FULL")
            raw.execute("BEGIN IMMEDIATE")
            outcomes = list(self._outcomes(connection, group))
            raw.execute("COMMIT")
        except REFUSALS as error:
            if raw.in_transaction:
                raw.execute("ROLLBACK")
            self._owed = owed + _rows_of(group)
            self.failing = True
            refusal = refused(error)
            return [Outcome(job.promise, error=refusal) for job in group]
        finally:
            if durable:
                raw.execute("PRAGMA synchronous = NORMAL")
        if any(outcome.error is None for outcome in outcomes):
            self.failing = any(isinstance(o.error, StoreUnavailable) for o in outcomes)
        return outcomes

    def _outcomes(self, connection: Connection, group: list[_Job]) -> Iterator[Outcome]:
        for are_appends, jobs in groupby(group, key=lambda job: job.is_append):
            if are_appends:
                yield from self._append_all(driver(connection), list(jobs))
            else:
                yield from (self._outcome(connection, job) for job in jobs)

    def _append_at_once(self, raw: sqlite3.Connection, group: list[_Job]) -> bool:
        """True if the group was nothing but events and is committed: one statement, a transaction of its own.

        The driver lets go of the interpreter's lock at every statement and then waits for the loop to give it
        back: that costs more than the statement. What is refused here is done again step by step.
        """
        if not all(job.is_append for job in group):
            return False
        rows = self._owed + _rows_of(group)
        if len(rows) > APPENDED_AT_ONCE:
            return False
        try:
            if rows:
                raw.execute(_append(len(rows)), list(chain.from_iterable(rows)))
        except sqlite3.Error:
            return False
        self._owed = []
        return True

    def _append_all(self, raw: sqlite3.Connection, jobs: list[_Job]) -> Iterable[Outcome]:
        rows = self._owed + _rows_of(jobs)
        try:
            with _Savepoint(raw):
                raw.executemany(APPEND, rows)
            self._owed = []
        except sqlite3.Error as error:
            _check_open(raw, error)
            self._owed = _append_each(raw, rows)
        if self._owed:
            self.failing = True
            refusal = StoreUnavailable("The store cannot be used right now; try again later.", retry_after_s=1)
            return [Outcome(job.promise, error=refusal) for job in jobs]
        return [Outcome(job.promise) for job in jobs]

    def _outcome(self, connection: Connection, job: _Job) -> Outcome:
        assert job.work is not None  # noqa: S101 - narrows the type: a job is work or rows
        raw = driver(connection)
        try:
            with _Savepoint(raw):
                return Outcome(job.promise, result=job.work(connection))
        except REFUSALS as error:
            _check_open(raw, error)
            return self._refusal(job, error)
        except Exception as error:  # noqa: BLE001 - whatever a job raises is its submitter's to handle
            return Outcome(job.promise, error=error)

    def _refusal(self, job: _Job, error: Exception) -> Outcome:
        self.failing = True
        return Outcome(job.promise, error=refused(error))


def _rows_of(jobs: Iterable[_Job]) -> list[AppendRow]:
    return [row for job in jobs for row in job.rows or ()]


def _append_each(raw: sqlite3.Connection, rows: list[AppendRow]) -> list[AppendRow]:
    """Append row by row; returns those from the first that the database refuses on."""
    for number, row in enumerate(rows):
        try:
            raw.execute(APPEND, row)
        except sqlite3.IntegrityError:
            logger.warning("events of a turn that was deleted are dropped", extra={"turn_key": row[0]})
        except sqlite3.Error as error:
            _check_open(raw, error)
            refused(error)
            return rows[number:]
    return []


@cache
def _append(rows: int) -> str:
    return APPEND + ", (?, ?, ?, 0, ?)" * (rows - 1)


class _Savepoint:
    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    def __enter__(self) -> None:
        self._raw.execute("SAVEPOINT job")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._raw.in_transaction:
            self._raw.execute("ROLLBACK TO job")
        if self._raw.in_transaction:
            self._raw.execute("RELEASE job")


def _check_open(raw: sqlite3.Connection, error: Exception) -> None:
    """A full disk or an I/O error can undo the whole transaction: then all of its jobs have failed by it."""
    if not raw.in_transaction:
        raise error
