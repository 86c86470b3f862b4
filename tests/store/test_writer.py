import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from anyio import to_thread
from sqlalchemy import Connection

from app.errors import StoreUnavailable
from app.store import SqliteStore
from app.store.database import Database, driver
from app.store.schema import migrate
from app.store.writer import Writer
from tests.bounds import BOUND_S
from tests.store.scene import ALICE, Scene, batch, event, pause_for

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def writing(database: Path, *, capacity: int = 100) -> AsyncIterator[Writer]:
    """A writer of its own on a migrated database with a table of notes."""
    migrate(Database(database))
    with closing(sqlite3.connect(database)) as raw, raw:
        raw.execute("CREATE TABLE notes (text TEXT UNIQUE)")
    running = Writer(Database(database), asyncio.get_running_loop(), capacity=capacity)
    running.start()
    try:
        yield running
    finally:
        await to_thread.run_sync(running.stop)


def note(text: str, connection: Connection) -> None:
    connection.exec_driver_sql("INSERT INTO notes VALUES (?)", (text,))


def notes(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as raw:
        return [text for (text,) in raw.execute("SELECT text FROM notes ORDER BY rowid")]


async def test_failing_job_does_not_sink_the_others_of_its_commit(database: Path) -> None:
    async with writing(database) as running:
        held, begun = Event(), Event()

        def hold(_connection: Connection) -> None:
            begun.set()
            held.wait(BOUND_S)

        def fail(connection: Connection) -> None:
            note("half done", connection)
            raise LookupError("on purpose")

        def clash(connection: Connection) -> None:
            note("first", connection)

        first = running.submit(hold)
        await to_thread.run_sync(begun.wait, BOUND_S)
        group = [running.submit(partial(note, "first")), running.submit(fail), running.submit(clash)]
        group.append(running.submit(partial(note, "last")))
        held.set()
        results = await asyncio.gather(first, *group, return_exceptions=True)

    assert [type(result) for result in results] == [
        type(None),
        type(None),
        LookupError,
        StoreUnavailable,
        type(None),
    ]
    assert notes(database) == ["first", "last"]


async def test_what_waits_together_is_committed_together(database: Path) -> None:
    async with writing(database) as running:
        held, begun = Event(), Event()

        def hold(_connection: Connection) -> None:
            begun.set()
            held.wait(BOUND_S)

        waiting = [running.submit(hold)]
        await to_thread.run_sync(begun.wait, BOUND_S)
        waiting += [running.submit(partial(note, f"{n}")) for n in range(50)]
        assert notes(database) == []
        held.set()
        await waiting[1]

        assert len(notes(database)) == 50
        await asyncio.gather(*waiting)


async def test_promise_is_kept_only_after_the_commit(database: Path) -> None:
    async with writing(database) as running:
        for number in range(20):
            await running.submit(partial(note, f"{number}"))
            assert len(notes(database)) == number + 1


@pytest.mark.parametrize(("durable", "synchronous"), [(True, 2), (False, 1)])
async def test_durable_job_is_synced_by_its_commit_and_the_next_is_not(
    database: Path, durable: bool, synchronous: int
) -> None:
    def setting(connection: Connection) -> int:
        return int(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())

    async with writing(database) as running:
        assert await running.submit(setting, durable=durable) == synchronous
        assert await running.submit(setting) == 1


async def test_end_and_pause_of_a_turn_are_synced_and_what_runs_is_not(scene: Scene) -> None:
    statements: list[str] = []
    await scene.store.writer.submit(lambda c: driver(c).set_trace_callback(statements.append))

    async def synced(step: Awaitable[object]) -> bool:
        statements.clear()
        await step
        return "PRAGMA synchronous = FULL" in statements

    turn = (await scene.admit("one")).turn
    assert not await synced(scene.store.append(turn.key, batch(event(2))))
    assert await synced(scene.settle(replace(turn, last_event_id=2)))
    other = (await scene.admit("two")).turn
    assert await synced(scene.store.pause(replace(other, pause=pause_for("p")), b"", batch(event(2))))


async def test_journaled_events_of_many_turns_are_one_statement(scene: Scene) -> None:
    turns = [(await scene.admit(f"chat-{n}")).turn for n in range(3)]
    statements: list[str] = []
    await scene.store.writer.submit(lambda c: driver(c).set_trace_callback(statements.append))
    for turn in turns:
        scene.store.journal([(turn.key, batch(event(2)))])
    await scene.store.appends.committed(turns[-1].key)

    await scene.store.writer.submit(lambda c: driver(c).set_trace_callback(None))
    assert len([s for s in statements if s.startswith("INSERT INTO events")]) == 1
    for turn in turns:
        assert [entry.seq for entry in await scene.store.events(turn.key, 1)] == [2]


async def test_append_that_cannot_be_leaves_the_other_appends_alone(scene: Scene) -> None:
    turns = [(await scene.admit(f"chat-{n}")).turn for n in range(3)]
    no_such_turn = 10_000
    answers = await asyncio.gather(
        *(scene.store.submit(key, batch(event(2))) for key in (turns[0].key, no_such_turn, turns[1].key)),
        scene.store.submit(turns[2].key, batch(event(1))),
        return_exceptions=True,
    )

    assert [isinstance(answer, StoreUnavailable) for answer in answers] == [False, True, False, True]
    assert [len(await scene.store.events(turn.key, 0)) for turn in turns] == [2, 2, 1]


async def test_full_disk_is_a_refusal_that_shows_no_path_and_no_statement(
    scene: Scene, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turn = (await scene.admit()).turn
    await full(scene.store)
    with caplog.at_level(logging.ERROR), pytest.raises(StoreUnavailable) as refusal:
        await scene.store.append(turn.key, batch(event(2, text="x" * 10_000_000)))

    for shown in (refusal.value.detail, caplog.text):
        assert "INSERT" not in shown
        assert str(database) not in shown
    assert "SQLITE_FULL" in caplog.text


async def test_store_goes_on_once_there_is_room_again(scene: Scene) -> None:
    turn = (await scene.admit()).turn
    await full(scene.store)
    with pytest.raises(StoreUnavailable):
        await scene.settle(turn, "a" * 10_000_000)
    await with_room(scene.store)
    await scene.settle(turn, "a")

    assert (await scene.store.turn(ALICE, turn.id)).status == "completed"
    assert await scene.store.ready()


async def test_locked_database_is_a_refusal(scene: Scene, database: Path) -> None:
    await scene.admit("before")
    await scene.store.writer.submit(lambda c: c.exec_driver_sql("PRAGMA busy_timeout = 50"))
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            await scene.admit("meanwhile")
        assert not await scene.store.ready()
        other.execute("ROLLBACK")

    assert await scene.store.ready()
    await scene.admit("after")


async def test_more_jobs_than_may_wait_are_refused(database: Path) -> None:
    async with writing(database, capacity=3) as running:
        held, begun = Event(), Event()

        def hold(_connection: Connection) -> None:
            begun.set()
            held.wait(BOUND_S)

        first = running.submit(hold)
        await to_thread.run_sync(begun.wait, BOUND_S)
        waiting = [running.submit(partial(note, f"{n}")) for n in range(3)]
        with pytest.raises(StoreUnavailable):
            await running.submit(partial(note, "too many"))
        held.set()
        await asyncio.gather(first, *waiting)

    assert notes(database) == ["0", "1", "2"]


async def test_stopping_finishes_what_waits_and_refuses_what_comes_after(database: Path) -> None:
    async with writing(database) as running:
        waiting = [running.submit(partial(note, f"{n}")) for n in range(10)]
    await asyncio.gather(*waiting)

    assert len(notes(database)) == 10
    with pytest.raises(StoreUnavailable):
        await running.submit(partial(note, "late"))


async def full(store: SqliteStore) -> None:
    await store.writer.submit(lambda c: c.exec_driver_sql("PRAGMA max_page_count = 1"))


async def with_room(store: SqliteStore) -> None:
    await store.writer.submit(lambda c: c.exec_driver_sql("PRAGMA max_page_count = 1000000"))
