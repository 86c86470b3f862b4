"""A person decides about handoffs: what asks, what a grant is worth, what a reject does."""

import json
from typing import Any

import pytest

from app.builtin_agents.healthcare_support.handoff import Handoff
from app.domain.json_types import JsonObject
from app.sandbox import Sandboxes
from demo.healthcare_brain import brain
from tests.builtin_agents.rooms import Room
from tests.upstream.brain import Seen

pytestmark = pytest.mark.anyio

KNEE = "messy_ambiguous_knee_case"


def _route(reason: str) -> JsonObject:
    arguments = {"queue": "intake", "priority": "high", "reason": reason, "summary": "A knee."}
    return {"name": "route_to_human_queue", "arguments": arguments}


class Insistent:
    """The brain, but with these steps of handoff calls between the packet and the resolution."""

    def __init__(self, *steps: list[str]) -> None:
        self._steps = [[_route(reason) for reason in reasons] for reasons in steps]
        self.told: tuple[str, ...] = ()

    def __call__(self, seen: Seen) -> JsonObject:
        if "benefits_review" not in seen.tools or len(seen.new_outputs) < 2:
            return brain(seen)
        if self._steps:
            return {"tool_calls": self._steps.pop(0)}
        self.told = seen.new_outputs[2:]
        return brain(seen)


def test_the_same_payload_always_gets_the_same_id() -> None:
    payload: dict[str, Any] = {"queue": "q", "priority": "high", "reason": "r", "summary": "s"}
    handoff = Handoff.of(**payload)
    assert handoff.handoff_id == "HUMAN-2cebf29c34f7"
    assert Handoff.of(**payload) == handoff
    assert Handoff.of(**{**payload, "summary": "t"}).handoff_id != handoff.handoff_id


async def test_only_the_ambiguous_case_asks_for_a_person(room: Room) -> None:
    state = await room.begin(KNEE)
    assert isinstance(state, dict)
    assert room.saved is not None
    assert room.saved["handoffs"] == []


async def test_an_approved_handoff_stands_in_resolution_and_recap(room: Room) -> None:
    ended = await room.resolve(KNEE, (True,))
    handoff_id = ended.payload["resolution"]["handoff_id"]
    assert ended.payload["memory_recap"]["handoff_id"] == handoff_id
    outputs = [json.loads(i["output"]) for i in ended.history if i.get("type") == "function_call_output"]
    assert [output["handoff_id"] for output in outputs if output.get("status") == "queued"] == [handoff_id]


async def test_a_reject_reaches_the_model_and_nobody_takes_over(room: Room) -> None:
    ended = await room.resolve(KNEE, (False,))
    resolution = ended.payload["resolution"]
    assert "Not this one." in resolution["internal_summary"]
    assert resolution["route_to_human"] is False
    assert resolution["handoff_id"] is None


async def test_what_the_model_says_of_a_handoff_counts_only_if_it_happened(sandboxes: Sandboxes) -> None:
    def boasting(seen: Seen) -> JsonObject:
        reply = brain(seen)
        if "benefits_review" in seen.tools and "text" in reply:
            resolution = json.loads(reply["text"])
            return {"text": json.dumps({**resolution, "route_to_human": True, "handoff_id": "HUMAN-0"})}
        return reply

    ended = await Room(sandboxes, play=boasting).resolve("referral_status_check")
    assert ended.payload["resolution"]["handoff_id"] is None
    assert ended.payload["resolution"]["route_to_human"] is False


async def test_one_approval_unlocks_the_later_handoffs_of_its_turn(sandboxes: Sandboxes) -> None:
    play = Insistent(["first"], ["second"])
    await Room(sandboxes, play=play).resolve(KNEE, (True,))
    assert [json.loads(text)["reason"] for text in play.told] == ["first", "second"]


async def test_a_reject_revokes_what_an_approval_of_the_same_step_granted(sandboxes: Sandboxes) -> None:
    play = Insistent(["first", "second"], ["third"])
    await Room(sandboxes, play=play).resolve(KNEE, (True, False), (True,))
    assert json.loads(play.told[0])["reason"] == "first"
    assert play.told[1] == "Not this one."
    assert json.loads(play.told[2])["reason"] == "third"


async def test_after_a_reject_the_next_handoff_asks_again(sandboxes: Sandboxes) -> None:
    play = Insistent(["first"], ["second"])
    await Room(sandboxes, play=play).resolve(KNEE, (False,), (False,))
    assert play.told == ("Not this one.", "Not this one.")


async def test_the_next_turn_begins_without_grant_and_without_handoffs(sandboxes: Sandboxes) -> None:
    first = await Room(sandboxes).resolve(KNEE, (True,))
    second = Room(sandboxes, history=first.history, turn_id="turn_2")
    state = await second.begin(KNEE)
    assert isinstance(state, dict)
    assert second.saved is not None
    assert (second.saved["handoff_granted"], second.saved["handoffs"]) == (False, [])
