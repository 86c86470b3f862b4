import pytest

from app.domain.conversation import NewItem, PageRequest
from app.domain.ids import ConversationId, ItemId
from app.errors import BadRequest, ConversationExists, InvalidRequest
from tests.store.scene import ALICE, Scene, batch, event, item

pytestmark = pytest.mark.anyio


async def superseded(scene: Scene, conversation_key: int) -> list[str]:
    page = await scene.store.items(conversation_key, PageRequest(limit=100))
    return [stored.id for stored in page.data if stored.superseded]


async def test_history_grows_turn_by_turn(scene: Scene) -> None:
    await scene.ran("chat", "q1", "a1")
    turn = await scene.ran("chat", "q2", "a2")

    assert await scene.history(turn) == ["q1", "a1", "q2", "a2"]


async def test_seeds_come_before_everything_and_belong_to_no_turn(scene: Scene) -> None:
    seeds = [item("seed")]
    chat = await scene.store.create_conversation(
        ALICE, ConversationId("chat"), agent=None, metadata={}, items=seeds
    )
    await scene.ran("chat", "q1")

    stored = (await scene.store.items(chat.key, PageRequest())).data
    assert [(s.id, s.turn_id is None) for s in stored] == [("seed", True), ("q1", False)]
    assert await scene.history(chat) == ["seed", "q1"]


async def test_item_keeps_its_content_and_its_origin(scene: Scene) -> None:
    admitted = await scene.admit()
    said = NewItem(ItemId("i"), {"type": "message", "content": "é\u2028\x00", "n": 1.5}, "https://upstream")
    await scene.store.append(admitted.turn.key, batch(event(2), items=[said]))

    assert await scene.store.turn_items(admitted.turn.key) == [said]


async def test_settling_replaces_what_the_turn_has_recorded(scene: Scene) -> None:
    admitted = await scene.admit(items=["q"])
    await scene.store.append(admitted.turn.key, batch(event(2), items=[item("call"), item("reasoning")]))
    before = {s.id: s.created_at for s in await scene.store.history(admitted.turn.conversation_key)}
    turn = await scene.store.turn(ALICE, admitted.turn.id)
    await scene.settle(turn, "q", "call", "output")

    after = await scene.store.history(turn.conversation_key)
    assert [s.id for s in after] == ["q", "call", "output"]
    assert [s.created_at for s in after[:2]] == [before[ItemId("q")], before[ItemId("call")]]


async def test_edit_supersedes_what_followed_the_turn_it_goes_back_to(scene: Scene) -> None:
    first = await scene.ran("chat", "q1", "a1")
    await scene.ran("chat", "q2", "a2")
    edit = await scene.ran("chat", "q3", "a3", after_turn=first.id)

    assert await scene.history(edit) == ["q1", "a1", "q3", "a3"]
    assert await superseded(scene, edit.conversation_key) == ["q2", "a2"]


async def test_edit_from_the_start_leaves_only_the_seeds(scene: Scene) -> None:
    chat = await scene.store.create_conversation(
        ALICE, ConversationId("chat"), agent=None, metadata={}, items=[item("seed")]
    )
    await scene.ran("chat", "q1")
    await scene.ran("chat", "q2", after_turn=None)

    assert await scene.history(chat) == ["seed", "q2"]


async def test_edit_can_go_back_to_a_branch_that_was_superseded(scene: Scene) -> None:
    first = await scene.ran("chat", "q1")
    second = await scene.ran("chat", "q2")
    await scene.ran("chat", "q3", after_turn=first.id)
    back = await scene.ran("chat", "q4", after_turn=second.id)

    assert await scene.history(back) == ["q1", "q2", "q4"]
    assert await superseded(scene, back.conversation_key) == ["q3"]


async def test_rollback_of_a_turn_leaves_history_exactly_as_before(scene: Scene) -> None:
    await scene.ran("chat", "q1", "a1")
    admitted = await scene.admit(items=["q2"])
    await scene.settle(admitted.turn, status="cancelled", rollback=True)
    turn = await scene.ran("chat", "q3")

    assert await scene.history(turn) == ["q1", "a1", "q3"]


async def test_rollback_of_an_edit_brings_back_what_it_superseded(scene: Scene) -> None:
    first = await scene.ran("chat", "q1")
    await scene.ran("chat", "q2")
    edit = await scene.admit(items=["q3"], after_turn=first.id)
    assert await scene.history(edit.turn) == ["q1", "q3"]
    await scene.settle(edit.turn, status="cancelled", rollback=True)
    following = await scene.ran("chat", "q4")

    assert await scene.history(following) == ["q1", "q2", "q4"]
    assert await superseded(scene, edit.turn.conversation_key) == []


async def test_queued_edit_moves_history_only_when_it_starts(scene: Scene) -> None:
    first = await scene.ran("chat", "q1")
    running = await scene.admit(items=["q2"])
    edit = await scene.admit(on_conflict="enqueue", after_turn=first.id)
    assert await scene.history(first) == ["q1", "q2"]
    await scene.settle(running.turn, "q2", "a2")
    assert await scene.history(first) == ["q1", "q2", "a2"]
    await scene.start(edit.turn, "q3")

    assert await scene.history(first) == ["q1", "q3"]


async def test_queued_turn_follows_what_was_before_it_when_it_starts(scene: Scene) -> None:
    running = await scene.admit(items=["q1"])
    queued = await scene.admit(on_conflict="enqueue")
    await scene.settle(running.turn, "q1", "a1")
    await scene.start(queued.turn, "q2")

    assert await scene.history(queued.turn) == ["q1", "a1", "q2"]


async def test_turn_that_never_started_leaves_nothing_and_can_be_followed(scene: Scene) -> None:
    running = await scene.admit(items=["q1"])
    queued = await scene.admit(on_conflict="enqueue")
    await scene.settle(queued.turn, status="cancelled", rollback=True)
    await scene.settle(running.turn, "q1")
    edit = await scene.ran("chat", "q2", after_turn=queued.turn.id)

    assert await scene.history(edit) == ["q1", "q2"]


async def test_fork_copies_the_history_as_it_was_after_a_turn(scene: Scene) -> None:
    first = await scene.ran("chat", "q1", "a1")
    await scene.ran("chat", "q2", "a2")
    source = await scene.store.conversation(ALICE, "chat")
    fork = await scene.store.fork_conversation(source, ConversationId("fork"), after_turn=first.id, whole=False)
    await scene.ran("fork", "q3")

    assert await scene.history(fork) == ["q1", "a1", "q3"]
    assert await scene.history(source) == ["q1", "a1", "q2", "a2"]


async def test_fork_from_the_start_has_no_turns_items(scene: Scene) -> None:
    await scene.ran("chat", "q1")
    source = await scene.store.conversation(ALICE, "chat")
    fork = await scene.store.fork_conversation(source, ConversationId("fork"), after_turn=None, whole=False)

    assert await scene.history(fork) == []


async def test_whole_fork_leaves_out_what_is_superseded_and_what_is_under_way(scene: Scene) -> None:
    first = await scene.ran("chat", "q1")
    await scene.ran("chat", "q2")
    await scene.ran("chat", "q3", after_turn=first.id)
    await scene.admit(items=["q4"])
    source = await scene.store.conversation(ALICE, "chat")
    fork = await scene.store.fork_conversation(source, ConversationId("fork"), after_turn=None, whole=True)

    assert await scene.history(fork) == ["q1", "q3"]


async def test_fork_speaks_with_the_agent_that_spoke_last_there(scene: Scene) -> None:
    admitted = await scene.admit()
    first = await scene.settle(admitted.turn, "q1", last_agent="poet")
    admitted = await scene.admit()
    await scene.settle(admitted.turn, "q2", last_agent="critic")
    source = await scene.store.conversation(ALICE, "chat")
    fork = await scene.store.fork_conversation(source, ConversationId("fork"), after_turn=first.id, whole=False)

    assert (source.last_agent, fork.last_agent) == ("critic", "poet")


async def test_fork_is_refused_for_a_taken_id_or_a_foreign_turn(scene: Scene) -> None:
    turn = await scene.ran("chat", "q1")
    other = await scene.ran("other", "q1")
    source = await scene.store.conversation(ALICE, "chat")

    with pytest.raises(ConversationExists):
        await scene.store.fork_conversation(source, ConversationId("other"), after_turn=turn.id, whole=False)
    with pytest.raises(InvalidRequest):
        await scene.store.fork_conversation(source, ConversationId("new"), after_turn=other.id, whole=False)
    assert await scene.store.find_conversation(ALICE, "new") is None


@pytest.mark.parametrize(("order", "expected"), [("asc", ["a", "b", "c"]), ("desc", ["c", "b", "a"])])
async def test_items_are_read_page_by_page(scene: Scene, order: str, expected: list[str]) -> None:
    turn = await scene.ran("chat", "a", "b", "c")
    seen: list[str] = []
    cursor = None
    while True:
        page = await scene.store.items(turn.conversation_key, PageRequest(1, cursor, order))
        seen += [stored.id for stored in page.data]
        if (cursor := page.next) is None:
            break

    assert seen == expected


@pytest.mark.parametrize(
    "cursor", ["", "x", "é", "aXRlbXM6eA", "dHVybnM6MQ", "aXRlbXM6OTk5OTk5OTk5OTk5OTk5OTk5OTk5"]
)
async def test_malformed_cursor_is_refused(scene: Scene, cursor: str) -> None:
    turn = await scene.ran("chat", "a")

    with pytest.raises(BadRequest):
        await scene.store.items(turn.conversation_key, PageRequest(1, cursor))
