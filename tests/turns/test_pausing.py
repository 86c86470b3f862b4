"""Answers to pauses: who is gone while answering, what is full, what has expired."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from app.errors import StoreUnavailable, TooManyTurns
from tests.turns.stage import LIMITS, stage

pytestmark = pytest.mark.anyio
LONG_AGO = timedelta(seconds=-1)


async def test_a_turn_whose_answer_was_stored_runs_also_if_the_caller_is_gone(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        turn = await scene.paused()
        request = asyncio.ensure_future(scene.go_on(turn))
        scene.on_resumed = request.cancel
        with pytest.raises(asyncio.CancelledError):
            await request
        with anyio.fail_after(5):
            await scene.runs.begun.wait()
            live = scene.execution.find(turn.id)
            assert live is not None
            scene.runs.may_end.set()
            await live.settled.wait()
        assert await scene.status(turn) == "completed"


@pytest.mark.parametrize("limit", ["max_turns", "max_turns_per_caller"])
async def test_an_answer_that_would_make_too_many_turns_run_is_refused_and_can_be_given_again(
    tmp_path: Path, limit: str
) -> None:
    async with stage(tmp_path, replace(LIMITS, **{limit: 1})) as scene:
        first, second = await scene.paused(), await scene.paused()
        await scene.go_on(first)
        with pytest.raises(TooManyTurns) as refusal:
            await scene.go_on(second)
        assert refusal.value.retry_after_s
        assert await scene.status(second) == "paused"
        running = scene.execution.find(first.id)
        assert running is not None
        scene.runs.may_end.set()
        with anyio.fail_after(5):
            await running.settled.wait()
        await scene.go_on(second)


async def test_of_answers_at_the_same_moment_no_more_are_taken_than_may_run(tmp_path: Path) -> None:
    async with stage(tmp_path, replace(LIMITS, max_turns=2)) as scene:
        turns = [await scene.paused() for _ in range(5)]
        taken = await asyncio.gather(*(scene.go_on(turn) for turn in turns), return_exceptions=True)
        assert [type(outcome) for outcome in taken if outcome is not None] == [TooManyTurns] * 3
        assert len(scene.execution.running()) == 2


async def test_an_answer_that_was_given_before_attaches_however_many_turns_run(tmp_path: Path) -> None:
    async with stage(tmp_path, replace(LIMITS, max_turns=1)) as scene:
        turn = await scene.paused()
        await scene.go_on(turn)
        await scene.go_on(turn)
        assert len(scene.execution.running()) == 1


async def test_all_turns_whose_pause_is_over_end_and_no_others(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        over = [await scene.paused(expires_in=LONG_AGO) for _ in range(5)]
        waiting = await scene.paused()
        await scene.pauses.expire(at_once=2)
        assert [await scene.status(turn) for turn in over] == ["cancelled"] * 5
        assert await scene.status(waiting) == "paused"
        ended = await scene.store.turn(waiting.caller, over[0].id)
        assert ended.cancel is not None
        assert ended.cancel.by == "expiry"


async def test_an_answer_that_finds_no_store_leaves_the_turn_paused_for_its_listeners_too(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as scene:
        turn = await scene.paused()
        scene.refused.add("turn_items")
        with pytest.raises(StoreUnavailable):
            await scene.go_on(turn)
        with anyio.fail_after(5):
            assert [entries async for entries in scene.logs.tail(turn, turn.last_event_id)] == []
        scene.refused.clear()
        await scene.go_on(turn)
