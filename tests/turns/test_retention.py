"""Old events and conversations go; what is young, or under way, stays."""

from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from app.artifacts import ArtifactStore
from app.domain.caller import ANONYMOUS
from app.domain.conversation import PageRequest
from app.domain.events import TurnCancelled, TurnStarted
from app.domain.ids import new_conversation_id, new_turn_id
from app.domain.ledger import Ledger
from app.domain.ports import Admission, EventBatch, Settlement
from app.domain.turn import Turn, TurnRequest
from app.errors import EventsExpired, NotFound, StoreUnavailable
from app.event_log import encoded
from app.store import SqliteStore, open_store
from app.turns import retention
from app.turns.endings import Ending, ended
from app.turns.retention import Retention
from tests.bounds import BOUND_S

pytestmark = pytest.mark.anyio
AT_ONCE = timedelta(seconds=-1)


def batch(turn: Turn, event: TurnStarted | TurnCancelled, seq: int) -> EventBatch:
    return EventBatch((encoded(event, turn_id=turn.id, seq=seq),))


def kept(folder: Path, store: SqliteStore) -> ArtifactStore:
    return ArtifactStore(folder / "artifacts", store)


async def a_turn(store: SqliteStore, *, over: bool) -> Turn:
    def first(turn: Turn, position: int) -> EventBatch:
        return batch(turn, TurnStarted(turn.conversation_id, turn.agent, 1, "now"), 1)

    admitted = await store.admit(
        Admission(
            turn_id=new_turn_id(),
            caller=ANONYMOUS,
            conversation_id=new_conversation_id(),
            request=TurnRequest(input="hi"),
            agent="assistant",
            model=None,
            first_batch=first,
            queue_limit=1,
        )
    )
    if over:
        final = ended(admitted.turn, Ending("cancelled"), Ledger(), 2)
        last = batch(final, TurnCancelled(final.as_json(with_input=False)), 2)
        await store.settle(Settlement(final, (), last, rollback=True))
    return admitted.turn


async def test_events_of_ended_turns_go_and_the_turn_stays_readable(tmp_path: Path) -> None:
    async with open_store(tmp_path / "db", owner="test") as store:
        old, running = await a_turn(store, over=True), await a_turn(store, over=False)
        assert await Retention(store, kept(tmp_path, store), events=AT_ONCE).sweep() == (1, 0)
        with pytest.raises(EventsExpired):
            await store.events(old.key, 0)
        assert (await store.turn(ANONYMOUS, old.id)).status == "cancelled"
        assert len(await store.events(running.key, 0)) == 1


async def test_young_events_stay(tmp_path: Path) -> None:
    async with open_store(tmp_path / "db", owner="test") as store:
        turn = await a_turn(store, over=True)
        assert await Retention(store, kept(tmp_path, store), events=timedelta(hours=1)).sweep() == (0, 0)
        assert len(await store.events(turn.key, 0)) == 2


async def test_conversations_without_activity_go_whole_unless_a_turn_is_under_way(tmp_path: Path) -> None:
    async with open_store(tmp_path / "db", owner="test") as store:
        old, running = await a_turn(store, over=True), await a_turn(store, over=False)
        retention = Retention(store, kept(tmp_path, store), events=timedelta(hours=1), conversations=AT_ONCE)
        assert await retention.sweep() == (0, 1)
        with pytest.raises(NotFound):
            await store.turn(ANONYMOUS, old.id)
        left = await store.conversations(ANONYMOUS, PageRequest())
        assert [c.id for c in left.data] == [running.conversation_id]


@pytest.mark.parametrize("failure", [StoreUnavailable("not now"), OSError("full"), LookupError("a defect")])
async def test_a_sweep_that_fails_is_not_the_last_one(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[None] = []
    went_on = anyio.Event()

    async def sweep(self: Retention) -> tuple[int, int]:
        begun.append(None)
        if len(begun) == 1:
            raise failure
        went_on.set()
        return 0, 0

    monkeypatch.setattr(Retention, "sweep", sweep)
    monkeypatch.setattr(retention, "SWEEP_EVERY_S", 0.001)
    async with open_store(tmp_path / "turnwire.sqlite3", owner="this process") as store:
        swept = Retention(store, kept(tmp_path, store), events=AT_ONCE)
        async with anyio.create_task_group() as group:
            group.start_soon(swept.sweep_for_ever)
            with anyio.fail_after(BOUND_S):
                await went_on.wait()
            group.cancel_scope.cancel()
    told = next(r for r in caplog.records if "could not be removed" in r.message)
    assert (told.exc_info is not None) == isinstance(failure, LookupError)
