"""A summary stands for older items on every branch that leads over the turn that made it, and on no other."""

from typing import Any

import pytest

from app.domain.conversation import Compaction, PageRequest
from app.domain.ids import ConversationId, ItemId
from app.domain.ports import EventBatch
from app.domain.turn import Turn
from app.domain.usage import TokenCounts, Usage
from tests.store.scene import Scene, event, item

pytestmark = pytest.mark.anyio


def compacting(turn: Turn, summary: str, *gone: str) -> EventBatch:
    entries = (event(turn.last_event_id + 1, "history.compacted"),)
    return EventBatch(entries, compaction=Compaction((item(summary),), tuple(map(ItemId, gone))))


async def compacted(scene: Scene, summary: str, *gone: str, **request: Any) -> Turn:
    """A turn that compacts and ends: q-SUMMARY, a-SUMMARY."""
    turn = (await scene.admit(items=[f"q-{summary}"], **request)).turn
    await scene.store.append(turn.key, compacting(turn, summary, *gone))
    turn = await scene.store.turn(scene.caller, turn.id)
    return await scene.settle(turn, f"q-{summary}", f"a-{summary}")


async def unfolded(scene: Scene, turn: Turn) -> list[str]:
    return [stored.id for stored in await scene.store.unfolded_history(turn.conversation_key)]


async def test_summary_stands_where_the_items_stood(scene: Scene) -> None:
    await scene.ran("chat", "q1", "a1")
    await scene.ran("chat", "q2", "a2")
    turn = await compacted(scene, "s", "q1", "a1")

    assert await scene.history(turn) == ["s", "q2", "a2", "q-s", "a-s"]
    assert [s.id for s in await scene.store.history(turn.conversation_key) if s.is_summary] == ["s"]
    assert await unfolded(scene, turn) == ["q1", "a1", "q2", "a2", "q-s", "a-s"]
    assert [new.id for new in await scene.store.turn_items(turn.key)] == ["q-s", "a-s"]


async def test_what_it_stands_for_stays_readable(scene: Scene) -> None:
    await scene.ran("chat", "q1", "a1")
    turn = await compacted(scene, "s", "q1", "a1")

    page = await scene.store.items(turn.conversation_key, PageRequest())
    assert [(s.id, s.superseded) for s in page.data][:2] == [("q1", True), ("a1", True)]
    assert len(page.data) == 5


async def test_summary_can_be_compacted_in_its_turn(scene: Scene) -> None:
    await scene.ran("chat", "q1")
    await scene.ran("chat", "q2")
    await compacted(scene, "s", "q1")
    turn = await compacted(scene, "t", "s", "q2")

    assert await scene.history(turn) == ["t", "q-s", "a-s", "q-t", "a-t"]
    assert await unfolded(scene, turn) == ["q1", "q2", "q-s", "a-s", "q-t", "a-t"]


async def test_rollback_of_the_turn_gives_the_items_back(scene: Scene) -> None:
    await scene.ran("chat", "q1", "a1")
    turn = (await scene.admit(items=["q2"])).turn
    await scene.store.append(turn.key, compacting(turn, "s", "q1", "a1"))
    assert await scene.history(turn) == ["s", "q2"]
    turn = await scene.store.turn(scene.caller, turn.id)
    await scene.settle(turn, status="cancelled", rollback=True)

    assert await scene.history(turn) == ["q1", "a1"]
    page = await scene.store.items(turn.conversation_key, PageRequest())
    assert [(s.id, s.superseded) for s in page.data] == [("q1", False), ("a1", False)]


async def test_each_branch_has_its_own_summaries(scene: Scene) -> None:
    """The same items may be compacted on two branches; each sees its own summary and never both."""
    first = await scene.ran("chat", "q1")
    await scene.ran("chat", "q2")
    here = await compacted(scene, "s", "q1", "q2")
    await scene.ran("chat", "q3", after_turn=first.id)
    there = await compacted(scene, "t", "q1", "q3")
    assert await scene.history(there) == ["t", "q-t", "a-t"]
    back = await scene.ran("chat", "q4", after_turn=here.id)

    assert await scene.history(back) == ["s", "q-s", "a-s", "q4"]
    before = await scene.ran("chat", "q5", after_turn=first.id)
    assert await scene.history(before) == ["q1", "q5"]


async def test_compaction_that_comes_with_the_settlement_holds_unless_it_rolls_back(scene: Scene) -> None:
    await scene.ran("chat", "q1")
    for rollback, history in ((True, ["q1"]), (False, ["s", "q2"])):
        turn = (await scene.admit(items=["q2"])).turn
        left = [] if rollback else ["q2"]
        last = compacting(turn, "s", "q1")
        ended = await scene.settle(turn, *left, status="cancelled", rollback=rollback, with_batch=last)
        assert await scene.history(ended) == history


async def test_fork_copies_what_the_model_sees_in_its_order(scene: Scene) -> None:
    await scene.ran("chat", "q1", "a1")
    await scene.ran("chat", "q2", "a2")
    turn = await compacted(scene, "s", "q1", "a1")
    source = await scene.store.conversation(scene.caller, "chat")
    copy = await scene.store.fork_conversation(source, ConversationId("copy"), after_turn=None, whole=True)

    assert await scene.history(copy) == await scene.history(turn)


async def test_how_full_the_window_was_is_told_by_the_newest_turn_on_the_way(scene: Scene) -> None:
    first = await scene.ran("chat", "q1")
    used = Usage.of_call("m", TokenCounts(requests=1, total_tokens=700))
    second = (await scene.admit(items=["q2"])).turn
    await scene.settle(second, "q2", usage=used)
    await scene.ran("chat", "q3")
    newest = await scene.ran("chat", "q4")
    edit = await scene.ran("chat", "q5", after_turn=first.id)

    assert await scene.store.context_tokens(newest.key) == 700
    assert await scene.store.context_tokens(edit.key) is None


async def test_after_a_compaction_the_window_is_unknown_until_the_next_call(scene: Scene) -> None:
    used = Usage.of_call("m", TokenCounts(requests=1, total_tokens=700))
    first = (await scene.admit(items=["q1"])).turn
    await scene.settle(first, "q1", usage=used)
    await scene.ran("chat", "q2")
    turn = await compacted(scene, "s", "q1")
    following = await scene.ran("chat", "q3")

    assert await scene.store.context_tokens(turn.key) == 700
    assert await scene.store.context_tokens(following.key) is None
