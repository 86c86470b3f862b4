import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.caller import Caller
from app.domain.conversation import Conversation, PageRequest
from app.domain.ids import ConversationId
from app.domain.pause import Approval
from app.domain.ports import IdempotencyKey
from app.domain.turn import now
from app.errors import ConversationExists, NotFound
from app.store import SqliteStore, conversations
from app.store.database import Database
from tests.store.scene import ALICE, Scene, batch, event, item, pause_for

pytestmark = pytest.mark.anyio

SOME_USER = Caller("alice", "u_1")
OTHER_USER = Caller("alice", "u_2")
BOB = Caller("bob")


async def created(store: SqliteStore, caller: Caller, conversation_id: str) -> Conversation:
    return await store.create_conversation(
        caller, ConversationId(conversation_id), agent=None, metadata={"of": str(caller.user)}, items=[]
    )


async def test_created_conversation_is_found_as_it_is(store: SqliteStore) -> None:
    made = await store.create_conversation(
        ALICE, ConversationId("chat"), agent="poet", metadata={"topic": "rain"}, items=[item("seed")]
    )

    assert await store.conversation(ALICE, "chat") == made
    assert (made.agent, made.metadata, made.caller) == ("poet", {"topic": "rain"}, ALICE)


async def test_id_is_unique_for_a_caller_and_user(store: SqliteStore) -> None:
    for caller in (ALICE, SOME_USER, OTHER_USER, BOB):
        await created(store, caller, "chat")

    with pytest.raises(ConversationExists):
        await created(store, SOME_USER, "chat")


async def test_callers_see_only_their_own(store: SqliteStore) -> None:
    await created(store, SOME_USER, "chat")

    assert await store.find_conversation(SOME_USER, "chat") is not None
    assert await store.find_conversation(OTHER_USER, "chat") is None
    with pytest.raises(NotFound):
        await store.conversation(BOB, "chat")


async def test_caller_without_user_sees_all_and_prefers_what_belongs_to_no_user(store: SqliteStore) -> None:
    await created(store, SOME_USER, "chat")
    newest = await created(store, OTHER_USER, "chat")
    assert await store.conversation(ALICE, "chat") == newest
    own = await created(store, ALICE, "chat")
    await created(store, Caller("alice", "u_3"), "chat")

    assert await store.conversation(ALICE, "chat") == own
    assert len((await store.conversations(ALICE, PageRequest())).data) == 4
    assert len((await store.conversations(SOME_USER, PageRequest())).data) == 1


async def test_conversations_are_listed_by_their_newest_activity(scene: Scene) -> None:
    for conversation in ("one", "two", "three"):
        await created(scene.store, ALICE, conversation)
    await scene.ran("one", "a")

    seen: list[str] = []
    cursor = None
    while True:
        page = await scene.store.conversations(ALICE, PageRequest(2, cursor))
        seen += [conversation.id for conversation in page.data]
        if (cursor := page.next) is None:
            break
    assert seen == ["one", "three", "two"]


async def test_agent_and_metadata_can_be_changed(store: SqliteStore) -> None:
    made = await created(store, ALICE, "chat")
    changed = await store.update_conversation(made.key, {"agent": "poet", "metadata": {"a": "b"}})

    assert (changed.agent, changed.metadata) == ("poet", {"a": "b"})
    assert await store.conversation(ALICE, "chat") == changed


async def test_who_spoke_last_is_remembered_but_not_of_a_turn_rolled_back(scene: Scene) -> None:
    await scene.settle((await scene.admit()).turn, last_agent="poet")
    await scene.settle((await scene.admit()).turn, status="cancelled", rollback=True, last_agent="critic")

    assert (await scene.store.conversation(ALICE, "chat")).last_agent == "poet"


async def test_deletion_leaves_nothing_in_any_table(scene: Scene, database: Path) -> None:
    approval = Approval("appr_1", "call_1", "t", "a", None)  # type: ignore[arg-type]
    await scene.ran("chat", "a", "b")
    turn = (await scene.admit(items=["c"], key=IdempotencyKey("k", "f"))).turn
    await scene.store.append(turn.key, batch(event(2), items=[item("d")]))
    paused = replace(turn, status="paused", pause=pause_for("pause_1", approvals=(approval,)))
    await scene.store.pause(paused, b"", batch(event(3)))
    assert 0 not in _rows(database).values()
    await scene.store.delete_conversation(turn.conversation_key)

    assert set(_rows(database).values()) == {0}
    with pytest.raises(NotFound):
        await scene.store.turn(ALICE, turn.id)


async def test_deletion_touches_no_other_conversation(scene: Scene) -> None:
    kept = await scene.ran("kept", "a")
    gone = await scene.ran("gone", "b")
    await scene.store.delete_conversation(gone.conversation_key)

    assert await scene.history(kept) == ["a"]
    assert len(await scene.store.events(kept.key, 0)) == 2


def _rows(database: Path) -> dict[str, int]:
    tables = ("turns", "items", "events", "asked", "idempotency_keys")
    with closing(sqlite3.connect(database)) as raw:
        return {table: raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}


@pytest.mark.parametrize("used_by", ["a turn under way", "a turn that has ended", None])
async def test_a_conversation_that_is_used_as_it_expires_stays(
    scene: Scene, database: Path, used_by: str | None
) -> None:
    turn = await scene.ran("old", "a")
    found_at = now()
    if used_by == "a turn under way":
        await scene.admit("old", items=["b"])
    elif used_by:
        await scene.ran("old", "b")
    with Database(database).engine.begin() as connection:
        some = conversations.expire_some_events(connection, turn.conversation_key, found_at, 10)
        gone = conversations.expire(connection, turn.conversation_key, found_at)
    assert (some, gone) == ((0, False) if used_by else (1, True))
    assert any(_rows(database).values()) == bool(used_by)


async def test_the_steps_of_a_deletion_leave_the_log_of_a_turn_under_way_whole(
    scene: Scene, database: Path
) -> None:
    await scene.ran("chat", "a")
    running = (await scene.admit("chat", items=["b"])).turn
    with Database(database).engine.begin() as connection:
        assert conversations.remove_some_events(connection, running.conversation_key, 10) == 1
        assert conversations.remove_some_events(connection, running.conversation_key, 10) == 0
    assert [entry.seq for entry in await scene.store.events(running.key, 0)] == [1]
