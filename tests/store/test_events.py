import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from anyio import to_thread

from app.domain.events import LogEntry
from app.domain.turn import Turn, now
from app.errors import EventsExpired
from app.store import SqliteStore, open_store
from tests.store.scene import ALICE, Scene, batch, event

pytestmark = pytest.mark.anyio


async def logged(scene: Scene, count: int, *, in_batches_of: int = 1, text: str = "x") -> Turn:
    """A running turn whose log holds `turn.started` and deltas up to number `count`."""
    admitted = await scene.admit()
    for first in range(2, count + 1, in_batches_of):
        numbers = range(first, min(first + in_batches_of, count + 1))
        await scene.store.append(admitted.turn.key, batch(*(event(seq, text=text) for seq in numbers)))
    return await scene.store.turn(ALICE, admitted.turn.id)


async def packed(store: SqliteStore) -> None:
    """Returns once no ended log is left to pack."""
    assert await to_thread.run_sync(store.packer.idle.wait, 5)


def _rows(database: Path) -> int:
    with closing(sqlite3.connect(database)) as raw:
        return int(raw.execute("SELECT count(*) FROM events").fetchone()[0])


async def numbers(store: SqliteStore, turn: Turn, after: int, **bounds: int) -> list[int]:
    return [entry.seq for entry in await store.events(turn.key, after, **bounds)]


@pytest.mark.parametrize("after", range(11))
async def test_reading_begins_right_behind_any_number(scene: Scene, after: int) -> None:
    turn = await logged(scene, 10, in_batches_of=4)

    assert await numbers(scene.store, turn, after) == list(range(after + 1, 11))


async def test_entries_come_back_byte_for_byte_with_their_type(scene: Scene) -> None:
    admitted = await scene.admit()
    data = '{"type":"workflow.event","seq":2,"x":"é\\u2028"}'.encode()
    await scene.store.append(admitted.turn.key, batch(LogEntry(2, "workflow.event", data)))

    assert await scene.store.events(admitted.turn.key, 1) == [LogEntry(2, "workflow.event", data)]


async def test_reading_is_bounded_in_number_and_bytes_but_gives_at_least_one(scene: Scene) -> None:
    turn = await logged(scene, 10, in_batches_of=5, text="y" * 1000)

    assert await numbers(scene.store, turn, 1, limit=3) == [2, 3, 4]
    assert await numbers(scene.store, turn, 1, max_bytes=2500) == [2, 3]
    assert await numbers(scene.store, turn, 1, max_bytes=1) == [2]


async def test_nothing_is_behind_the_end_nor_far_beyond_it(scene: Scene) -> None:
    turn = await logged(scene, 3)

    assert await numbers(scene.store, turn, 3) == []
    assert await numbers(scene.store, turn, 2**80) == []


async def test_ended_log_is_packed_and_reads_as_before(scene: Scene, database: Path) -> None:
    turn = await logged(scene, 400, text="the same words again")
    before = await scene.store.events(turn.key, 0)
    await scene.settle(turn)
    await packed(scene.store)

    after = await scene.store.events(turn.key, 0)
    assert after[:400] == before
    assert after[400].type == "turn.completed"
    for start in (1, 127, 128, 129, 400):
        assert await numbers(scene.store, turn, start) == list(range(start + 1, 402))
    with closing(sqlite3.connect(database)) as raw:
        (size,) = raw.execute("SELECT sum(length(body)) FROM events").fetchone()
    assert _rows(database) == 4
    assert size < sum(len(entry.data) for entry in after) / 5


async def test_what_was_not_packed_is_packed_at_the_next_start(scene: Scene, database: Path) -> None:
    turn = await logged(scene, 10)
    scene.store.packer.stop()
    await scene.settle(turn)
    async with open_store(database, owner="the next process") as restarted:
        await packed(restarted)

        assert _rows(database) == 1
        assert await numbers(restarted, turn, 0) == list(range(1, 12))


async def test_expired_events_are_told_from_events_that_never_were(scene: Scene) -> None:
    turn = await scene.ran("chat", "a")
    assert await scene.store.expire_events(now() - timedelta(hours=1)) == 0
    assert await scene.store.expire_events(now() + timedelta(hours=1)) == 1
    assert await scene.store.expire_events(now() + timedelta(hours=1)) == 0

    with pytest.raises(EventsExpired):
        await scene.store.events(turn.key, 0)
    with pytest.raises(EventsExpired):
        await scene.store.events(turn.key, turn.last_event_id - 1)
    assert await numbers(scene.store, turn, turn.last_event_id) == []
    assert await scene.history(turn) == ["a"]
    assert (await scene.store.turn(ALICE, turn.id)).last_event_id == turn.last_event_id


async def test_turns_under_way_do_not_expire(scene: Scene) -> None:
    turn = await logged(scene, 3)

    assert await scene.store.expire_events(now() + timedelta(hours=1)) == 0
    assert await numbers(scene.store, turn, 0) == [1, 2, 3]
