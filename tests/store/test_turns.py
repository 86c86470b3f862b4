from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.domain.caller import Caller
from app.domain.conversation import PageRequest
from app.domain.pause import Answers, Approval, Asked, Decision, PendingCall, ToolOutput
from app.domain.ports import Admitted
from app.domain.turn import Cancel, CancelMode, IllegalTransition, Turn, TurnError, now
from app.domain.usage import TokenCounts, Usage
from app.errors import NotFound, StoreUnavailable
from app.store import SqliteStore, open_store
from tests.store.scene import ALICE, Scene, batch, event, pause_for

pytestmark = pytest.mark.anyio

APPROVAL = Approval("appr_1", "call_1", "delete", "assistant", {"path": "x"})  # type: ignore[arg-type]
OTHER_APPROVAL = Approval("appr_2", "call_2", "delete", "assistant", None)  # type: ignore[arg-type]
CALL = PendingCall("call_3", "ask_browser", {"q": 1})  # type: ignore[arg-type]


async def paused(scene: Scene, conversation: str = "chat", **waits: Any) -> Turn:
    admitted = await scene.admit(conversation)
    turn = replace(admitted.turn, status="paused", pause=pause_for("pause_1", **waits), last_event_id=2)
    await scene.store.pause(turn, b"state", batch(event(2, "turn.paused")))
    return turn


async def test_turn_comes_back_as_it_was_settled(scene: Scene) -> None:
    admitted = await scene.admit(reasoning_effort="low", tools=[{"name": "t"}], after_turn=None)
    usage = Usage.of_call("some-model", TokenCounts(requests=1, input_tokens=3, total_tokens=5))
    ended = await scene.settle(
        admitted.turn,
        status="failed",
        output_text="so far",
        output={"a": [1, None]},
        usage=usage,
        error=TurnError("timeout", "too slow", retryable=True),
        cancel=Cancel("after_step", "caller", now().replace(microsecond=0)),
        last_agent="poet",
    )

    stored = await scene.store.turn(ALICE, ended.id)
    assert stored == ended
    assert stored.request.edits_history


async def test_lone_surrogates_anywhere_are_stored_as_replacement_characters(scene: Scene) -> None:
    admitted = await scene.admit()
    ended = await scene.settle(
        admitted.turn, last_agent="a\ud800", output_text="x\udfff", output=["\ud800", {"\udc00": 2**70}]
    )

    stored = await scene.store.turn(ALICE, ended.id)
    assert (stored.last_agent, stored.output_text) == ("a\ufffd", "x\ufffd")
    assert stored.output == ["\ufffd", {"\ufffd": 2.0**70}]
    assert await scene.store.find_conversation(ALICE, "\ud800") is None


async def test_running_turn_shows_how_far_its_log_has_come(scene: Scene) -> None:
    admitted = await scene.admit()
    await scene.store.append(admitted.turn.key, batch(event(2), event(3)))

    assert (await scene.store.turn(ALICE, admitted.turn.id)).last_event_id == 3


async def test_ended_turn_cannot_end_again(scene: Scene) -> None:
    turn = await scene.ran("chat", "a")

    with pytest.raises(IllegalTransition):
        await scene.settle(turn, status="failed")
    assert (await scene.store.turn(ALICE, turn.id)).status == "completed"


async def test_end_that_would_leave_a_gap_in_the_log_is_refused_whole(scene: Scene) -> None:
    admitted = await scene.admit(items=["q"])

    with pytest.raises(StoreUnavailable):
        await scene.settle(replace(admitted.turn, last_event_id=5), rollback=True)
    assert (await scene.store.turn(ALICE, admitted.turn.id)).status == "running"
    assert await scene.history(admitted.turn) == ["q"]


async def test_queued_turn_starts_once(scene: Scene) -> None:
    running = await scene.admit()
    queued = await scene.admit(on_conflict="enqueue")
    assert await scene.store.waiting_conversations() == [running.turn.conversation_key]
    await scene.settle(running.turn)
    assert await scene.store.waiting_conversations() == [running.turn.conversation_key]

    assert await scene.start(queued.turn) is True
    assert await scene.start(queued.turn) is False
    assert await scene.store.waiting_conversations() == []


async def test_cancelled_queued_turn_does_not_start(scene: Scene) -> None:
    running = await scene.admit()
    queued = await scene.admit(on_conflict="enqueue")
    await scene.settle(queued.turn, status="cancelled", rollback=True)
    await scene.settle(running.turn)

    assert await scene.start(queued.turn) is False


async def test_paused_turn_keeps_its_state_and_its_conversation_busy(scene: Scene) -> None:
    turn = await paused(scene, approvals=(APPROVAL,), tool_calls=(CALL,))

    stored = await scene.store.turn(ALICE, turn.id)
    assert (stored.status, stored.pause) == ("paused", _whole_milliseconds(turn).pause)
    assert await scene.store.paused_state(turn.key) == (b"state", Answers())
    assert [t.id for t in await scene.store.paused_turns()] == [turn.id]
    assert await scene.store.active_turn(turn.conversation_key) == stored


async def test_overdue_turns_are_found_a_few_at_a_time_the_longest_overdue_first(scene: Scene) -> None:
    late, later, latest = [
        await paused(scene, conversation, hours=hours, approvals=(APPROVAL, OTHER_APPROVAL))
        for conversation, hours in (("late", -1.0), ("later", -2.0), ("latest", -3.0))
    ]
    await paused(scene, "in time", approvals=(APPROVAL,))

    assert await overdue(scene.store, 10) == {late.id, later.id, latest.id}
    assert await overdue(scene.store, 2) == {later.id, latest.id}
    await scene.settle(latest, status="cancelled")
    assert await overdue(scene.store, 1) == {later.id}


async def test_only_a_running_turn_pauses(scene: Scene) -> None:
    turn = await paused(scene)

    with pytest.raises(IllegalTransition):
        await scene.store.pause(turn, b"", batch(event(3)))


async def test_partial_answer_is_kept_and_what_is_left_is_still_asked(scene: Scene) -> None:
    turn = await paused(scene, approvals=(APPROVAL, OTHER_APPROVAL))
    decision = Decision(APPROVAL.approval_id, "reject", "no", call_id=APPROVAL.call_id)
    left = pause_for("pause_2", approvals=(OTHER_APPROVAL,))
    await scene.store.answer(
        replace(turn, pause=left, last_event_id=4), Answers((decision,)), batch(event(3), event(4))
    )

    assert await scene.store.paused_state(turn.key) == (b"state", Answers((decision,)))
    pending = (await scene.store.approvals(ALICE, PageRequest(), status="pending")).data
    assert [(a["approval_id"], a["pause_id"]) for a in pending] == [("appr_2", "pause_2")]
    rejected = (await scene.store.approvals(ALICE, PageRequest(), status="rejected")).data
    assert [(a["approval_id"], a["reason"], a["turn_id"]) for a in rejected] == [("appr_1", "no", turn.id)]


async def test_paused_turn_resumes_once(scene: Scene) -> None:
    turn = await paused(scene, tool_calls=(CALL,))
    answers = Answers(outputs=(ToolOutput(CALL.call_id, {"found": True}),))
    running = replace(turn, status="running", pause=None, runs=2)

    assert await scene.store.resume(running, answers, batch(event(3, "turn.resumed"))) is True
    assert await scene.store.resume(running, answers, batch(event(4, "turn.resumed"))) is False
    stored = await scene.store.turn(ALICE, turn.id)
    assert (stored.status, stored.pause, stored.runs, stored.last_event_id) == ("running", None, 2, 3)


async def test_everything_asked_for_is_remembered_with_its_answer_over_all_pauses(scene: Scene) -> None:
    turn = await paused(scene, approvals=(APPROVAL,), tool_calls=(CALL,))
    decision = Decision(APPROVAL.approval_id, "approve", call_id=APPROVAL.call_id)
    output = ToolOutput(CALL.call_id, "text")
    running = replace(turn, status="running", pause=None, runs=2, last_event_id=3)
    await scene.store.resume(running, Answers((decision,), (output,)), batch(event(3)))
    again = replace(running, status="paused", pause=pause_for("pause_2"), last_event_id=4)
    await scene.store.pause(again, b"later", batch(event(4)))
    going_on = replace(again, status="running", pause=None, runs=3, last_event_id=5)
    await scene.store.resume(going_on, Answers(steps=("pause_2",)), batch(event(5)))

    shown = replace(decision, call_id=None).as_json()
    assert await scene.store.asked(turn.key) == [
        Asked("appr_1", "approval", APPROVAL.call_id, "delete", shown, 2),
        Asked("call_3", "tool_output", CALL.call_id, "ask_browser", output.as_json(), 2),
        Asked("pause_2", "step", None, None, {"pause_id": "pause_2"}, 4),
    ]


async def test_ended_turn_asks_nobody_any_more(scene: Scene) -> None:
    turn = await paused(scene, approvals=(APPROVAL,))
    await scene.settle(turn, status="cancelled")

    assert (await scene.store.approvals(ALICE, PageRequest(), status="pending")).data == []
    with pytest.raises(NotFound):
        await scene.store.paused_state(turn.key)


async def test_approvals_are_seen_by_their_caller_alone(scene: Scene) -> None:
    await paused(scene, approvals=(APPROVAL,))

    assert (await scene.store.approvals(Caller("bob"), PageRequest(), status="pending")).data == []


@pytest.mark.parametrize(
    ("first", "second", "holds"),
    [
        ("keep", "rollback", "keep"),
        ("after_step", "keep", "keep"),
        ("after_step", "after_step", "after_step"),
        ("rollback", "after_step", "rollback"),
    ],
)
async def test_first_cancel_holds_but_after_step_gives_way(
    scene: Scene, first: CancelMode, second: CancelMode, holds: CancelMode
) -> None:
    turn = (await scene.admit()).turn
    at = now().replace(microsecond=0)
    await scene.store.request_cancel(turn.key, Cancel(first, "caller", at))
    holding = await scene.store.request_cancel(turn.key, Cancel(second, "conflict", at + timedelta(seconds=1)))

    assert holding is not None
    assert holding.mode == holds
    assert (await scene.store.turn(ALICE, turn.id)).cancel == holding


async def test_ended_turn_takes_no_cancel(scene: Scene) -> None:
    turn = await scene.ran("chat", "a")

    assert await scene.store.request_cancel(turn.key, Cancel("keep", "caller", now())) is None


async def test_running_turns_of_another_process_are_orphans(database: Path, scene: Scene) -> None:
    running = await scene.admit("one")
    await scene.ran("two", "a")
    await paused(Scene(scene.store, Caller("bob")))
    assert await scene.store.orphans() == []

    async with open_store(database, owner="the next process") as restarted:
        assert [turn.id for turn in await restarted.orphans()] == [running.turn.id]


async def test_turns_of_a_conversation_are_listed_in_order_of_admission(scene: Scene) -> None:
    turns = [await scene.ran("chat", "a"), await scene.ran("chat", "b"), await scene.ran("chat", "c")]
    key = turns[0].conversation_key

    assert await listed(scene.store, conversation_key=key) == [t.id for t in turns]
    assert await listed(scene.store, conversation_key=key, order="desc") == [t.id for t in reversed(turns)]


async def test_all_turns_are_listed_newest_first_and_filtered(scene: Scene) -> None:
    first = await scene.ran("one", "a", agent="poet")
    second = await scene.admit("two", agent="critic")

    assert await listed(scene.store) == [second.turn.id, first.id]
    assert await listed(scene.store, status="running") == [second.turn.id]
    assert await listed(scene.store, agent="poet") == [first.id]


async def test_listed_turns_come_without_their_input(scene: Scene) -> None:
    await scene.admit(input="a long story")

    (turn,) = (await scene.store.turns(ALICE, PageRequest())).data
    assert turn.request.input == ""


async def test_next_turn_is_the_one_admitted_after(scene: Scene) -> None:
    first = await scene.ran("chat", "a")
    assert await scene.store.newest_turn_key(first.conversation_key) == first.key
    assert await scene.store.next_turn(first.conversation_key, first.key) is None
    second: Admitted = await scene.admit()

    following = await scene.store.next_turn(first.conversation_key, first.key)
    assert following is not None
    assert following.id == second.turn.id


async def test_turn_is_seen_by_its_owner_alone(scene: Scene) -> None:
    turn = await scene.ran("chat", "a")

    for stranger in (Caller("bob"), Caller("alice", "u_1")):
        with pytest.raises(NotFound):
            await scene.store.turn(stranger, turn.id)


async def overdue(store: SqliteStore, limit: int) -> set[str]:
    return {turn.id for turn in await store.overdue_turns(now(), limit)}


async def listed(store: SqliteStore, *, order: str = "asc", **filters: object) -> list[str]:
    """All ids, read one a page."""
    found: list[str] = []
    cursor = None
    while True:
        page = await store.turns(ALICE, PageRequest(1, cursor, order), **filters)  # type: ignore[arg-type]
        found += [turn.id for turn in page.data]
        if (cursor := page.next) is None:
            return found


def _whole_milliseconds(turn: Turn) -> Turn:
    assert turn.pause is not None
    at = turn.pause.expires_at
    whole = at.replace(microsecond=at.microsecond // 1000 * 1000)
    return replace(turn, pause=replace(turn.pause, expires_at=whole))
