import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from anyio import fail_after, to_thread

from app.domain.events import TurnStarted
from app.domain.ids import new_turn_id
from app.domain.ports import EventBatch
from app.errors import StoreUnavailable
from app.event_log import EventLogs
from app.store import SqliteStore
from tests.bounds import BOUND_S
from tests.event_log.live import LiveScene, delta
from tests.store.scene import batch, event, item

pytestmark = pytest.mark.anyio


def rows(database: Path) -> list[tuple[int, int]]:
    with closing(sqlite3.connect(database)) as raw:
        return raw.execute("SELECT first_seq, last_seq FROM events ORDER BY key").fetchall()


async def full(store: SqliteStore, pages: int = 1) -> None:
    await store.writer.submit(lambda c: c.exec_driver_sql(f"PRAGMA max_page_count = {pages}"))


async def test_flush_returns_when_everything_appended_is_stored(live: LiveScene) -> None:
    turn, log = await live.begin()
    log.append(delta("a"), items=[item("i")])
    log.append(delta("b", "item_2"))
    log.add_items([item("j")])
    await log.flush()

    assert [entry.seq for entry in await live.store.events(turn.key, 0)] == [1, 2, 3]
    assert [new.id for new in await live.store.turn_items(turn.key)] == ["i", "j"]
    assert log.published_seq == 3


async def test_flush_covers_what_was_appended_while_another_was_on_its_way(live: LiveScene) -> None:
    turn, log = await live.begin()
    log.append(delta("a"))
    first = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    log.append(delta("b"))
    await log.flush()
    await first

    assert [json.loads(e.data).get("delta") for e in await live.store.events(turn.key, 1)] == ["a", "b"]


async def test_what_is_appended_in_one_pass_is_one_row(live: LiveScene, tmp_path: Path) -> None:
    turn, log = await live.begin()
    for number in range(5):
        log.append(delta("x", f"item_{number}"))
    await log.flush()
    await live.store.appends.committed(turn.key)

    assert rows(tmp_path / "turnwire.sqlite3") == [(1, 1), (2, 6)]


async def test_appended_events_are_stored_without_being_asked_to(live: LiveScene) -> None:
    turn, log = await live.begin()
    async with live.listening(turn) as listener:
        log.append(delta("a"))
        await listener.to(2)

    assert len(await live.store.events(turn.key, 0)) == 2


async def test_unbound_log_can_be_filled_on_another_thread(live: LiveScene) -> None:
    log = live.logs.open(new_turn_id())

    def admit() -> EventBatch:
        log.append(TurnStarted("c", "a", 1, "now"), items=[item("q")])
        return log.take()

    first = await to_thread.run_sync(admit)
    assert ([e.seq for e in first.entries], [i.id for i in first.items]) == ([1], ["q"])
    log.publish(first)
    assert log.published_seq == 1


async def test_flush_of_an_unbound_log_is_a_defect(live: LiveScene) -> None:
    log = live.logs.open(new_turn_id())
    log.append(delta("a"))

    with pytest.raises(RuntimeError):
        await log.flush()


async def test_batch_that_was_taken_while_a_flush_is_on_its_way_is_shown_after_it(live: LiveScene) -> None:
    turn, log = await live.begin()
    async with live.listening(turn) as listener:
        await listener.to(1)
        log.append(delta("a"), items=[item("i")])
        await asyncio.sleep(0)  # the flush leaves in this pass
        log.append(delta("b"))
        last = log.take()
        log.publish(last)
        live.logs.close(turn.id)
        assert log.published_seq == 1
        await listener.to_end()

    assert listener.numbers == [1, 2, 3]


async def test_events_alone_are_shown_as_soon_as_they_are_in_the_journal(
    live: LiveScene, tmp_path: Path
) -> None:
    _, log = await live.begin()
    log.append(delta("a"))
    log.append(delta("b"))
    await asyncio.sleep(0)

    assert log.published_seq == 3
    assert b'"delta":"a"' in (tmp_path / "turnwire.sqlite3-events-0").read_bytes()
    assert rows(tmp_path / "turnwire.sqlite3") == [(1, 1)]


async def test_journal_does_not_run_ahead_of_a_transaction(live: LiveScene, tmp_path: Path) -> None:
    turn, log = await live.begin()
    log.append(delta("a"), items=[item("i")])
    await asyncio.sleep(0)  # the transaction is on its way from this pass on
    log.append(delta("b"))

    assert log.published_seq == 1
    assert b'"delta":"b"' not in (tmp_path / "turnwire.sqlite3-events-0").read_bytes()
    await log.flush()
    assert [entry.seq for entry in await live.store.events(turn.key, 0)] == [1, 2, 3]


async def test_nothing_is_shown_after_items_were_refused(live: LiveScene) -> None:
    _, log = await live.begin()
    await full(live.store)
    log.add_items([item("i", "x" * 10_000_000)])
    with pytest.raises(StoreUnavailable):
        await log.flush()
    log.append(delta("late"))

    assert log.published_seq == 1


async def test_deltas_that_come_together_are_joined_behind_the_first(live: LiveScene) -> None:
    turn, log = await live.begin()
    for _ in range(100):
        log.append(delta("x"))
    await log.flush()
    shown = [json.loads(entry.data)["delta"] for entry in await live.store.events(turn.key, 1)]

    assert "".join(shown) == "x" * 100
    assert len(shown) < 50


async def test_log_fails_while_the_database_owes_a_commit(live: LiveScene) -> None:
    turn, log = await live.begin()
    await full(live.store)
    log.append(delta("x" * 10_000_000))
    await log.flush()
    with pytest.raises(StoreUnavailable):
        await live.store.events(turn.key, 0)
    log.append(delta("not shown"))
    with pytest.raises(StoreUnavailable):
        await log.flush()
    await full(live.store, pages=1_000_000)

    assert log.published_seq == 2
    assert [entry.seq for entry in await live.store.events(turn.key, 0, max_bytes=1 << 30)] == [1, 2]


async def test_what_has_items_is_not_shown_before_it_is_committed(live: LiveScene) -> None:
    _, log = await live.begin()
    log.append(delta("a"), items=[item("i")])
    for _ in range(3):
        assert log.published_seq < 2 or len(await live.store.events(1, 1)) == 1
        await asyncio.sleep(0)
    await log.flush()

    assert log.published_seq == 2


async def test_log_that_the_store_refuses_has_failed_and_says_so(live: LiveScene) -> None:
    turn, log = await live.begin()
    await full(live.store)
    log.append(delta("x" * 10_000_000), items=[item("i")])
    with pytest.raises(StoreUnavailable):
        await log.flush()
    assert isinstance(log.failure, StoreUnavailable)
    await full(live.store, pages=1_000_000)
    log.append(delta("late"))

    with pytest.raises(StoreUnavailable):
        await log.flush()
    assert [entry.seq for entry in await live.store.events(turn.key, 0)] == [1]
    assert log.published_seq == 1


async def test_end_that_would_follow_a_lost_batch_is_refused(live: LiveScene) -> None:
    turn, log = await live.begin()
    await full(live.store)
    log.append(delta("x" * 10_000_000), items=[item("i")])
    with pytest.raises(StoreUnavailable):
        await log.flush()
    await full(live.store, pages=1_000_000)

    with pytest.raises(StoreUnavailable):
        await live.end(turn, log)


async def test_failing_log_leaves_other_logs_alone(live: LiveScene) -> None:
    _, log = await live.begin("one")
    turn, other = await live.begin("two")
    await live.store.delete_conversation((await live.store.conversation(live.caller, "one")).key)
    log.append(delta("a"), items=[item("i")])
    other.append(delta("b"), items=[item("j")])
    await other.flush()
    with pytest.raises(StoreUnavailable):
        await log.flush()

    assert len(await live.store.events(turn.key, 0)) == 2


async def test_log_goes_on_behind_the_number_it_is_opened_with(store: SqliteStore, live: LiveScene) -> None:
    turn, log = await live.begin()
    await store.append(turn.key, batch(event(2), event(3)))
    live.logs.cut(turn.id)
    again = EventLogs(store, window_bytes=1024).open(turn.id, turn_key=turn.key, next_seq=4)
    again.append(delta("a"))
    with fail_after(BOUND_S):
        await again.flush()

    assert [entry.seq for entry in await store.events(turn.key, 0)] == [1, 2, 3, 4]
    assert log is not again
