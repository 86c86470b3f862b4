"""Turns on npm's aimock, which answers by what the user says: see `aimock_fixtures.json`."""

from typing import Any

import pytest

from tests.e2e.checks import check_log
from tests.service.client import TurnwireClient
from tests.service.sse import Frame

pytestmark = pytest.mark.anyio


async def frames_of(client: TurnwireClient, said: str, **fields: Any) -> list[Frame]:
    async with client.stream(said, **fields) as stream:
        frames = await stream.rest()
    if frames[-1].type != "turn.paused":
        check_log(frames, await client.turn(stream.turn_id))
    return frames


async def turn_of(client: TurnwireClient, said: str, **fields: Any) -> dict[str, Any]:
    turn: dict[str, Any] = (await frames_of(client, said, **fields))[-1].data["turn"]
    return turn


async def test_text_comes_in_pieces_and_the_next_turn_goes_on(on_aimock: TurnwireClient) -> None:
    frames = await frames_of(on_aimock, "say hello")
    turn = frames[-1].data["turn"]
    assert turn["output_text"] == "Hello from a server that nobody here wrote."
    deltas = [frame.data["delta"] for frame in frames if frame.type == "message.delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == turn["output_text"]
    again = await turn_of(on_aimock, "and again", conversation=turn["conversation_id"])
    assert again["output_text"] == "Once more, hello."


async def test_reasoning_is_told_from_text(on_aimock: TurnwireClient) -> None:
    frames = await frames_of(on_aimock, "think first")
    assert "".join(f.data["delta"] for f in frames if f.type == "reasoning.delta") == "Let me think."
    assert frames[-1].data["turn"]["output_text"] == "Thought through."


@pytest.mark.parametrize(
    ("said", "tools", "answer"),
    [
        ("look up kelp", ["lookup"], "Kelp was found."),
        ("look up two", ["get_time", "lookup"], "Both found."),
    ],
)
async def test_tools_are_called_and_their_results_sent_back(
    on_aimock: TurnwireClient, said: str, tools: list[str], answer: str
) -> None:
    frames = await frames_of(on_aimock, said, agent="worker")
    results = [f.data for f in frames if f.type == "tool_call.completed"]
    assert sorted(r["tool"] for r in results) == tools
    assert {r["status"] for r in results} == {"success"}
    assert frames[-1].data["turn"]["output_text"] == answer


async def test_a_handoff_and_structured_output_pass(on_aimock: TurnwireClient) -> None:
    handed = await turn_of(on_aimock, "hand over", agent="desk")
    assert (handed["last_agent"], handed["output_text"]) == ("expert", "The expert speaks.")
    assert (await turn_of(on_aimock, "in json", agent="shaped"))["output"] == {"answer": "green"}


async def test_an_approval_waits_and_the_turn_goes_on_after_it(on_aimock: TurnwireClient) -> None:
    turn = await turn_of(on_aimock, "may I", agent="keeper")
    (approval,) = turn["pause"]["approvals"]
    decisions = {"decisions": [{"approval_id": approval["approval_id"], "decision": "approve"}]}
    answer = await on_aimock.http.post(
        f"/v1/turns/{turn['id']}/decisions", json=decisions, headers={"accept": "application/json"}
    )
    assert answer.json()["output_text"] == "You may."


async def test_a_refusal_is_the_turns_error(on_aimock: TurnwireClient) -> None:
    turn = await turn_of(on_aimock, "you may not")
    assert (turn["status"], turn["error"]["code"]) == ("failed", "upstream_rejected")
    assert "Bad request" in turn["error"]["message"]


async def test_a_stream_that_breaks_off_fails_and_the_conversation_goes_on(on_aimock: TurnwireClient) -> None:
    turn = await turn_of(on_aimock, "break off")
    assert (turn["status"], turn["error"]["code"]) == ("failed", "upstream_protocol")
    again = await turn_of(on_aimock, "and again", conversation=turn["conversation_id"])
    assert again["output_text"] == "Once more, hello."


async def test_a_cancel_keeps_what_was_shown(on_aimock: TurnwireClient) -> None:
    async with on_aimock.stream("a long story") as stream:
        await stream.until("message.delta")
        await on_aimock.cancel(stream.turn_id)
        frames = await stream.rest()
    assert frames[-1].type == "turn.cancelled"
    again = await turn_of(on_aimock, "and again", conversation=stream.conversation_id)
    assert again["output_text"] == "Once more, hello."
