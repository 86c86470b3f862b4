"""However a turn ends, its sandbox is stopped and told so."""

import asyncio
from typing import Never

import pytest

from app.builtin_agents.healthcare_support.workflow import MAX_APPROVAL_ROUNDS
from app.domain.json_types import JsonObject
from app.sandbox import Sandboxes
from demo.healthcare_brain import brain
from tests.bounds import BOUND_S
from tests.builtin_agents.rooms import Room
from tests.upstream.brain import Seen

pytestmark = pytest.mark.anyio

STAGES = {
    "in the orchestrator": "benefits_review",
    "in the benefits agent": "insurance_eligibility_lookup",
    "in the policy agent": "finalize_policy_packet",
    "in the recap": None,
}


def _is_at(stage: str, seen: Seen) -> bool:
    tool = STAGES[stage]
    return tool in seen.tools if tool is not None else not seen.tools


@pytest.mark.parametrize("stage", STAGES)
async def test_a_cancelled_turn_leaves_no_sandbox(sandboxes: Sandboxes, stage: str) -> None:
    reached = asyncio.Event()

    async def stuck() -> Never:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    def play(seen: Seen) -> JsonObject:
        return stuck() if _is_at(stage, seen) else brain(seen)  # type: ignore[return-value]

    room = Room(sandboxes, play=play)
    async with asyncio.timeout(BOUND_S):
        turn = asyncio.create_task(room.begin("referral_status_check"))
        await reached.wait()
        assert room.names()[-1] != "sandbox_stopped"
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
    assert room.names()[-1] == "sandbox_stopped"


async def test_a_failed_turn_leaves_no_sandbox(sandboxes: Sandboxes) -> None:
    def play(seen: Seen) -> JsonObject:
        raise ConnectionError("the model is gone")

    room = Room(sandboxes, play=play)
    with pytest.raises(ConnectionError):
        await room.begin("referral_status_check")
    assert room.names()[-1] == "sandbox_stopped"


async def test_five_rounds_of_approvals_are_allowed(room: Room) -> None:
    async with room.desk.open(room.turn()) as run:
        assert run.max_approval_rounds == MAX_APPROVAL_ROUNDS == 5


async def test_all_runs_of_a_turn_share_its_trace_and_the_scenario_is_their_group(room: Room) -> None:
    room.input_text = "referral_status_check"
    turn = room.turn()
    async with room.desk.open(turn) as run:
        assert run.run_config is not None
        assert run.run_config.trace_id == turn.trace_id
        assert run.run_config.group_id == "referral_status_check"
