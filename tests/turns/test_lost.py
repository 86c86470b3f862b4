"""Turns whose next move the store refuses: whoever waits for them is let go, and they are ended later."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from app.domain.caller import ANONYMOUS
from app.domain.events import TurnQueued
from app.domain.ids import new_turn_id
from app.domain.ports import Admission, EventBatch, LogCut
from app.domain.turn import Turn, TurnRequest
from app.errors import StoreUnavailable
from app.event_log import encoded
from app.turns.endings import Ending
from app.turns.revival import revived
from tests.turns.stage import Stage, stage
from tests.turns.test_retention import a_turn

pytestmark = pytest.mark.anyio


async def test_a_turn_whose_conversation_is_deleted_under_it_is_let_go(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        turn = await scene.paused()
        await scene.go_on(turn)
        live = scene.execution.find(turn.id)
        assert live is not None
        with anyio.fail_after(5):
            await scene.runs.begun.wait()
            await scene.store.delete_conversation(turn.conversation_key)
            scene.runs.may_end.set()
            await live.settled.wait()
        assert scene.execution.find(turn.id) is None


async def test_a_queued_turn_that_the_store_does_not_start_is_let_go_and_its_listeners_cut_off(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as scene:
        turn = await a_queued_turn(scene)
        live = await revived(scene.store, scene.logs, turn)
        scene.execution.add(live)
        scene.refused.add("start")
        with anyio.fail_after(5):
            with pytest.raises(StoreUnavailable):
                await scene.execution.start_next(turn.conversation_key)
            await live.settled.wait()
            with pytest.raises(LogCut):
                async for _ in scene.logs.tail(replace(turn, status="queued"), turn.last_event_id):
                    pass
        assert scene.execution.find(turn.id) is None
        assert scene.lost == [turn.id]


async def a_queued_turn(scene: Stage) -> Turn:
    """The turn that it waited for has ended."""
    first = await a_turn(scene.store, over=False)

    def queued(turn: Turn, position: int) -> EventBatch:
        return EventBatch((encoded(TurnQueued(turn.conversation_id, position), turn_id=turn.id, seq=1),))

    admission = Admission(
        turn_id=new_turn_id(),
        caller=ANONYMOUS,
        conversation_id=first.conversation_id,
        request=TurnRequest(input="hi", on_conflict="enqueue"),
        agent="assistant",
        model=None,
        first_batch=queued,
        queue_limit=1,
    )
    turn = (await scene.store.admit(admission)).turn
    first_live = await revived(scene.store, scene.logs, first)
    scene.execution.add(first_live)
    await scene.execution.settle(first_live, Ending("cancelled"), then_next=False)
    return turn
