import asyncio
import resource
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread
from sqlalchemy import Connection

from app.domain.events import LogEntry
from app.domain.turn import Turn
from app.errors import StoreUnavailable
from app.store import SqliteStore, open_store
from app.store.events import AppendRow
from app.store.journal import (
    MAX_BYTES,
    ROTATE_BYTES,
    SEGMENT_BYTES,
    Journal,
    JournalFull,
    left_behind,
    paths,
)
from app.store.writer import CAPACITY
from tests.bounds import BOUND_S
from tests.store.scene import ALICE, Scene, batch, event

pytestmark = pytest.mark.anyio

ROWS: list[AppendRow] = [(1, 2, 3, b"two\nthree"), (7, 5, 5, b""), (1, 4, 4, b"\x00four\n\xff")]


def journal_of(database: Path, rows: list[AppendRow]) -> None:
    """As a process leaves it that was killed."""
    Journal(database).write(rows)


def of_turn(turn: Turn, seq: int, text: str = "") -> AppendRow:
    line = f'{{"type":"message.delta","seq":{seq},"turn_id":"{turn.id}","delta":"{text}"}}'
    return turn.key, seq, seq, line.encode()


async def kept(store: SqliteStore, turn: Turn) -> list[int]:
    return [entry.seq for entry in await store.events(turn.key, 0)]


@asynccontextmanager
async def reopened(database: Path) -> AsyncIterator[SqliteStore]:
    async with open_store(database, owner="the next process") as store:
        yield store


def test_rows_come_back_as_they_were_written_in_the_order_of_each_turn(database: Path) -> None:
    journal = Journal(database)
    journal.write(ROWS[:2])
    journal.write([(2, 1, 1, b"x" * ROTATE_BYTES)])
    journal.grouped(1)
    journal.write(ROWS[2:])

    assert left_behind(database) == [ROWS[0], ROWS[2], (2, 1, 1, b"x" * ROTATE_BYTES), ROWS[1]]


@pytest.mark.parametrize("size", range(1, 60))
def test_torn_record_ends_the_file_and_costs_nothing_before_it(database: Path, size: int) -> None:
    journal = Journal(database)
    journal.write(ROWS[:1])
    whole = paths(database)[0].read_bytes()[: journal.used]
    paths(database)[0].write_bytes(whole + whole[:size][: len(whole) - 1] + bytes(100))

    assert left_behind(database) == ROWS[:1]


def test_record_whose_bytes_have_changed_is_not_taken(database: Path) -> None:
    journal = Journal(database)
    journal.write(ROWS[:1])
    whole = bytearray(paths(database)[0].read_bytes())
    whole[journal.used - 1] ^= 1
    paths(database)[0].write_bytes(whole)

    assert left_behind(database) == []


def test_files_are_for_their_owner_alone(database: Path) -> None:
    Journal(database)

    assert [path.stat().st_mode & 0o777 for path in paths(database)] == [0o600, 0o600]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_finds_no_room_leaves_nothing_behind(database: Path) -> None:
    journal = Journal(database)
    journal.write(ROWS[:1])
    with files_of_at_most(SEGMENT_BYTES), pytest.raises(OSError, match="large"):
        journal.write([(1, 4, 4, b"x" * SEGMENT_BYTES)])
    journal.write(ROWS[2:])

    assert left_behind(database) == [ROWS[0], ROWS[2]]


def test_file_grows_for_what_is_large_and_shrinks_again(database: Path) -> None:
    journal = Journal(database)
    large: AppendRow = (1, 4, 4, b"x" * (3 * SEGMENT_BYTES))
    journal.write([*ROWS[:1], large])
    assert left_behind(database) == [ROWS[0], large]
    journal.committed(0, all_quiet=True)

    assert left_behind(database) == []
    assert [path.stat().st_size for path in paths(database)] == [SEGMENT_BYTES, SEGMENT_BYTES]


def test_more_than_may_wait_is_refused(database: Path) -> None:
    journal = Journal(database)
    journal.write([(1, 1, 1, bytes(MAX_BYTES))])
    with pytest.raises(JournalFull):
        journal.write(ROWS[:1])


async def test_what_a_process_left_is_in_the_database_of_the_next(scene: Scene, database: Path) -> None:
    turn = (await scene.admit()).turn
    journal_of(database, [of_turn(turn, 2), of_turn(turn, 3, "seen")])
    async with reopened(database) as store:
        assert await kept(store, turn) == [1, 2, 3]
        assert left_behind(database) == []


async def test_what_the_database_has_already_is_not_brought_in_again(scene: Scene, database: Path) -> None:
    turn = (await scene.admit()).turn
    await scene.store.append(turn.key, batch(event(2), event(3)))
    journal_of(database, [of_turn(turn, 2), of_turn(turn, 3), of_turn(turn, 4)])
    async with reopened(database) as store:
        assert await kept(store, turn) == [1, 2, 3, 4]


async def test_row_that_would_leave_a_gap_is_left_out(scene: Scene, database: Path) -> None:
    turn = (await scene.admit()).turn
    journal_of(database, [of_turn(turn, 3)])
    async with reopened(database) as store:
        assert await kept(store, turn) == [1]


async def test_row_of_another_turn_with_the_same_number_is_left_out(scene: Scene, database: Path) -> None:
    turn, other = (await scene.admit("one")).turn, (await scene.admit("two")).turn
    _, first, last, body = of_turn(other, 2, "not hers")
    journal_of(database, [(turn.key, first, last, body)])
    async with reopened(database) as store:
        assert await kept(store, turn) == [1]


async def test_turn_that_has_ended_takes_nothing_more(scene: Scene, database: Path) -> None:
    ended = await scene.settle((await scene.admit()).turn)
    journal_of(database, [of_turn(ended, 3)])
    async with reopened(database) as store:
        assert await kept(store, ended) == [1, 2]


async def test_what_is_journaled_is_before_whatever_is_written_next(scene: Scene) -> None:
    turn = (await scene.admit()).turn
    scene.store.journal([(turn.key, batch(event(2)))])
    ended = await scene.settle(turn, with_batch=batch(event(3, "turn.completed")))

    assert await kept(scene.store, ended) == [1, 2, 3]


async def test_reader_sees_what_was_journaled_a_moment_ago(scene: Scene) -> None:
    turn = (await scene.admit()).turn
    scene.store.journal([(turn.key, batch(event(2)))])

    assert await kept(scene.store, turn) == [1, 2]


async def test_journal_is_emptied_once_the_database_has_it(scene: Scene, database: Path) -> None:
    """What is deleted from the database must not stay in a file beside it."""
    turn = (await scene.admit()).turn
    scene.store.journal([(turn.key, batch(event(2, text="secret")))])
    assert held(database, b"secret")
    await scene.store.appends.committed(turn.key)

    assert not held(database, b"secret")

    assert await kept(scene.store, turn) == [1, 2]


async def test_journal_stays_small_under_load(scene: Scene, database: Path) -> None:
    turn = (await scene.admit()).turn
    for seq in range(2, 400):
        scene.store.journal([(turn.key, batch(event(seq, text="x" * 4096)))])
        await anyio.lowlevel.checkpoint()
    await scene.store.appends.committed(turn.key)

    assert [path.stat().st_size for path in paths(database)] == [SEGMENT_BYTES, SEGMENT_BYTES]
    assert len(await scene.store.events(turn.key, 0, max_bytes=1 << 30)) == 399


async def test_what_the_database_refuses_is_kept_in_order_until_it_takes_it(scene: Scene) -> None:
    turn = (await scene.admit()).turn
    await room(scene.store, 1)
    scene.store.journal([(turn.key, batch(event(2, text="x" * 10_000_000)))])
    with pytest.raises(StoreUnavailable):
        await scene.store.appends.committed(turn.key)
    with pytest.raises(StoreUnavailable):
        scene.store.journal([(turn.key, batch(event(3)))])
    with pytest.raises(StoreUnavailable):
        await scene.settle(turn, with_batch=batch(event(3, "turn.completed")))
    await room(scene.store, 1_000_000)
    ended = await scene.settle(turn, with_batch=batch(event(3, "turn.completed")))

    assert [e.seq for e in await scene.store.events(ended.key, 0, max_bytes=1 << 30)] == [1, 2, 3]


async def test_what_the_database_refuses_to_the_end_is_there_for_the_next_process(
    database: Path,
) -> None:
    async with open_store(database, owner="first") as store:
        scene = Scene(store)
        turn = (await scene.admit()).turn
        await room(store, 1)
        line = of_turn(turn, 2, "x" * 10_000_000)[3]
        store.journal([(turn.key, batch(LogEntry(2, "message.delta", line)))])
        with pytest.raises(StoreUnavailable):
            await store.appends.committed(turn.key)

    async with reopened(database) as store:
        assert [e.seq for e in await store.events(turn.key, 0, max_bytes=1 << 30)] == [1, 2]
        assert [orphan.id for orphan in await store.orphans()] == [turn.id]


async def test_what_does_not_wait_is_read_while_the_database_refuses(scene: Scene) -> None:
    ended = await scene.settle((await scene.admit("one")).turn)
    turn = (await scene.admit("two")).turn
    await room(scene.store, 1)
    scene.store.journal([(turn.key, batch(event(2, text="x" * 10_000_000)))])
    with pytest.raises(StoreUnavailable):
        await scene.store.appends.committed(turn.key)

    assert await kept(scene.store, ended) == [1, 2]
    with pytest.raises(StoreUnavailable):
        await scene.store.events(turn.key, 0)
    await room(scene.store, 1_000_000)


async def test_full_queue_of_the_writer_loses_no_events(scene: Scene, database: Path) -> None:
    turn = (await scene.admit()).turn
    held, begun = threading.Event(), threading.Event()

    def hold(_connection: Connection) -> None:
        begun.set()
        held.wait(BOUND_S)

    writer = scene.store.writer
    waiting = [writer.submit(hold)]
    await to_thread.run_sync(begun.wait, BOUND_S)
    waiting += [writer.submit(lambda _: None) for _ in range(CAPACITY)]
    with pytest.raises(StoreUnavailable):
        await writer.submit(lambda _: None)
    scene.store.journal([(turn.key, batch(event(2)))])
    reading = asyncio.ensure_future(kept(scene.store, turn))
    await asyncio.sleep(0)
    held.set()
    await asyncio.gather(*waiting)

    assert await reading == [1, 2]


async def test_nothing_is_taken_after_the_end(database: Path) -> None:
    async with open_store(database, owner="first") as store:
        turn = (await Scene(store).admit()).turn
    with pytest.raises(StoreUnavailable):
        store.journal([(turn.key, batch(event(2)))])


async def test_deleted_turn_takes_no_other_turn_with_it(scene: Scene) -> None:
    turn, other = (await scene.admit("one")).turn, (await scene.admit("two")).turn
    conversation = await scene.store.conversation(ALICE, "one")
    await scene.store.delete_conversation(conversation.key)
    scene.store.journal([(turn.key, batch(event(2))), (other.key, batch(event(2)))])
    await scene.store.appends.committed(turn.key)

    assert await kept(scene.store, other) == [1, 2]


async def test_one_turns_rows_of_a_group_are_one_row(scene: Scene, database: Path) -> None:
    turn = (await scene.admit()).turn
    for seq in range(2, 12):
        scene.store.journal([(turn.key, batch(event(seq)))])
    await scene.store.appends.committed(turn.key)

    with closing(sqlite3.connect(database)) as raw:
        found = raw.execute("SELECT first_seq, last_seq FROM events ORDER BY key").fetchall()
    assert found == [(1, 1), (2, 11)]
    assert await kept(scene.store, turn) == list(range(1, 12))


def held(database: Path, text: bytes) -> bool:
    return any(text in path.read_bytes() for path in paths(database))


async def room(store: SqliteStore, pages: int) -> None:
    await store.writer.submit(lambda c: c.exec_driver_sql(f"PRAGMA max_page_count = {pages}"))
