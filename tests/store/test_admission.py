import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.caller import Caller
from app.domain.conversation import PageRequest
from app.domain.ids import ConversationId
from app.domain.ports import Admission, EventBatch, IdempotencyKey
from app.domain.turn import Turn, TurnRequest
from app.errors import IdempotencyKeyReused, InvalidRequest, QueueFull, TurnInProgress
from app.store import SqliteStore
from tests.store.scene import ALICE, Scene

pytestmark = pytest.mark.anyio


async def test_first_turn_runs_at_once_in_a_new_conversation(scene: Scene) -> None:
    admitted = await scene.admit("chat", items=["question"], metadata={"a": "b"})

    assert admitted.position == 0
    assert admitted.turn == await scene.store.turn(ALICE, admitted.turn.id)
    assert (admitted.turn.status, admitted.turn.runs, admitted.turn.last_event_id) == ("running", 1, 1)
    assert admitted.turn.metadata == {"a": "b"}
    assert await scene.history(admitted.turn) == ["question"]


async def test_conversation_is_bound_to_the_agent_only_if_the_request_names_it(scene: Scene) -> None:
    await scene.admit("named", agent="poet")
    await scene.admit("unnamed")

    assert (await scene.store.conversation(ALICE, "named")).agent == "poet"
    assert (await scene.store.conversation(ALICE, "unnamed")).agent is None


async def test_second_turn_is_refused_and_told_which_one_is_under_way(scene: Scene) -> None:
    first = await scene.admit()

    with pytest.raises(TurnInProgress) as refusal:
        await scene.admit()
    assert refusal.value.extra == {"turn_id": first.turn.id}


async def test_reject_also_refuses_while_turns_are_only_queued(scene: Scene) -> None:
    first = await scene.admit()
    queued = await scene.admit(on_conflict="enqueue")
    await scene.settle(first.turn)

    with pytest.raises(TurnInProgress) as refusal:
        await scene.admit()
    assert refusal.value.extra == {"turn_id": queued.turn.id}


async def test_queued_turns_know_their_place_up_to_the_limit(scene: Scene) -> None:
    await scene.admit()
    places = [(await scene.admit(on_conflict="enqueue", queue_limit=2)).position for _ in range(2)]

    assert places == [1, 2]
    with pytest.raises(QueueFull):
        await scene.admit(on_conflict="enqueue", queue_limit=2)


@pytest.mark.parametrize("policy", ["cancel", "rollback"])
async def test_cancelling_policies_name_what_is_ahead_the_active_turn_first(scene: Scene, policy: str) -> None:
    active = await scene.admit()
    queued = await scene.admit(on_conflict="enqueue")
    admitted = await scene.admit(on_conflict=policy, queue_limit=1)

    assert [turn.id for turn in admitted.ahead] == [active.turn.id, queued.turn.id]
    assert (admitted.turn.status, admitted.position) == ("queued", 2)


async def test_known_key_gives_the_same_turn_even_if_the_conversation_is_busy(scene: Scene) -> None:
    key = IdempotencyKey("k", "body")
    first = await scene.admit(key=key)
    again = await scene.admit(key=key)

    assert again.replayed
    assert again.turn == first.turn
    assert await scene.store.known_answer(ALICE, key) is not None


async def test_key_with_another_body_is_refused(scene: Scene) -> None:
    await scene.admit(key=IdempotencyKey("k", "body"))

    with pytest.raises(IdempotencyKeyReused):
        await scene.admit("elsewhere", key=IdempotencyKey("k", "other body"))


async def test_key_belongs_to_the_user_who_sent_it(scene: Scene) -> None:
    key = IdempotencyKey("k", "body")
    await scene.admit(key=key)

    assert await scene.store.known_answer(Caller("alice", "u_1"), key) is None
    assert await scene.store.known_answer(Caller("bob"), key) is None


async def test_answers_to_a_pause_can_be_remembered_with_the_event_they_follow(scene: Scene) -> None:
    admitted = await scene.admit()
    key = IdempotencyKey("k", "answer")
    await scene.store.remember_answer(ALICE, key, admitted.turn.key, after=7)
    await scene.store.remember_answer(ALICE, key, admitted.turn.key, after=9)

    known = await scene.store.known_answer(ALICE, key)
    assert known is not None
    assert (known.turn.id, known.after) == (admitted.turn.id, 7)


async def test_key_is_forgotten_after_a_day_and_swept(scene: Scene, database: Path) -> None:
    key = IdempotencyKey("k", "body")
    first = await scene.admit("one", key=key)
    with closing(sqlite3.connect(database)) as raw, raw:
        raw.execute("UPDATE idempotency_keys SET created_at = created_at - 24 * 3600 * 1000000")

    assert await scene.store.known_answer(ALICE, key) is None
    again = await scene.admit("two", key=IdempotencyKey("k", "another body"))
    assert again.turn.id != first.turn.id
    with closing(sqlite3.connect(database)) as raw:
        assert raw.execute("SELECT count(*) FROM idempotency_keys").fetchone() == (1,)


async def test_refused_request_leaves_no_key_no_conversation_and_no_turn(scene: Scene) -> None:
    key = IdempotencyKey("k", "body")

    with pytest.raises(InvalidRequest) as refusal:
        await scene.admit("new", key=key, after_turn="turn_of_nobody")
    assert [error["loc"] for error in refusal.value.errors or ()] == [["body", "after_turn"]]
    assert await scene.store.known_answer(ALICE, key) is None
    assert await scene.store.find_conversation(ALICE, "new") is None
    assert (await scene.store.turns(ALICE, PageRequest())).data == []


async def test_failing_first_batch_undoes_the_admission_and_is_raised(scene: Scene) -> None:
    def broken(_turn: Turn, _position: int) -> EventBatch:
        raise LookupError("no such agent")

    with pytest.raises(LookupError, match="no such agent"):
        await scene.store.admit(replace(_admission("chat"), first_batch=broken))
    assert await scene.store.find_conversation(ALICE, "chat") is None


async def test_after_turn_of_another_conversation_is_refused(scene: Scene) -> None:
    other = await scene.ran("other", "a")

    with pytest.raises(InvalidRequest):
        await scene.admit("chat", after_turn=other.id)


async def test_of_many_turns_at_once_exactly_one_is_admitted(scene: Scene) -> None:
    answers = await asyncio.gather(*(scene.admit() for _ in range(20)), return_exceptions=True)

    refused = [answer for answer in answers if isinstance(answer, TurnInProgress)]
    assert len(refused) == 19


async def test_the_database_itself_keeps_a_second_turn_from_running(scene: Scene) -> None:
    await scene.admit()
    queued = await scene.admit(on_conflict="enqueue")

    assert await scene.start(queued.turn) is False
    assert (await scene.store.turn(ALICE, queued.turn.id)).status == "queued"


async def test_caller_without_user_starts_turns_in_a_users_conversation(store: SqliteStore) -> None:
    theirs = await Scene(store, Caller("alice", "u_1")).ran("chat", "a")
    admitted = await Scene(store).admit("chat")

    assert admitted.turn.conversation_key == theirs.conversation_key
    assert admitted.turn.caller == Caller("alice", "u_1")


def _admission(conversation: str) -> Admission:
    nothing: Callable[[Turn, int], EventBatch] = lambda _turn, _position: EventBatch(())  # noqa: E731
    return Admission(
        turn_id="turn_1",  # type: ignore[arg-type]
        caller=ALICE,
        conversation_id=ConversationId(conversation),
        request=TurnRequest(input="hello"),
        agent="assistant",
        model=None,
        first_batch=nothing,
        queue_limit=0,
    )
