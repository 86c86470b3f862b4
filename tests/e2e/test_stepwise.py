"""Turns that pause after every step that called tools."""

import asyncio
from typing import Any

import pytest

from tests.e2e.checks import check_log
from tests.e2e.pauses import LAST, USER, call, calls
from tests.service.answers import answer, answered, following, resume
from tests.service.client import JsonObject, TurnwireClient
from tests.service.shapes import shapes
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
STEP = calls(call("open_lookup", q="moss"))


async def stepping(
    client: TurnwireClient, scenario: Scenario, *replies: JsonObject, **fields: Any
) -> JsonObject:
    await scenario.script(*(replies or (STEP, STEP, LAST)))
    turn = await client.run(USER[1], agent="guard", stepwise=True, **fields)
    assert (turn["status"], turn["pause"]["reason"]) == ("paused", "step"), turn
    return turn


async def test_a_turn_stops_after_each_step_that_called_tools(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    client = either_client
    turn = await stepping(client, scenario)
    assert (turn["pause"]["approvals"], turn["pause"]["tool_calls"]) == ([], [])
    frames = await client.log(turn["id"])
    assert [f.type for f in frames[-3:]] == ["tool_call.completed", "step.completed", "turn.paused"]
    assert len(await scenario.requests()) == 1
    async with following(client, turn["id"], resume(turn)) as stream:
        frames = await stream.rest()
    assert [stream.types[0], stream.types[-1]] == ["turn.resumed", "turn.paused"]
    assert (frames[0].data["reason"], frames[0].data["run"]) == ("step", 2)
    again = frames[-1].data["turn"]
    assert again["usage"]["requests"] == len(await scenario.requests()) == 2
    ended = await answered(client, turn["id"], resume(again))
    assert (ended["status"], ended["output_text"], ended["runs"]) == ("completed", "All done.", 3)
    log = await client.log(turn["id"])
    check_log(log, ended)
    assert [f.data["agent"] for f in log if f.type == "agent.started"] == ["guard"]
    assert [f.data["step"] for f in log if f.type == "step.started"] == [1, 2, 3]


async def test_a_step_without_tools_is_the_last_one(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script(LAST)
    turn = await client.run(USER[1], agent="guard", stepwise=True)
    assert (turn["status"], turn["runs"]) == ("completed", 1)


async def test_a_go_ahead_is_used_once(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await stepping(client, scenario)
    turns = await asyncio.gather(*(answered(client, turn["id"], resume(turn)) for _ in range(6)))
    assert {t["pause"]["id"] for t in turns} == {turns[0]["pause"]["id"]}
    assert len(await scenario.requests()) == 2
    unknown = await answer(client, turn["id"], {"pause_id": "pause_nobodys"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    ended = await answered(client, turn["id"], resume(turns[0]))
    assert ended["status"] == "completed"
    assert await answered(client, turn["id"], resume(turn)) == ended


@pytest.mark.parametrize("mode", ["keep", "after_step", "rollback"])
async def test_a_turn_between_steps_can_be_cancelled(
    client: TurnwireClient, scenario: Scenario, mode: str
) -> None:
    turn = await stepping(client, scenario)
    ended = (await client.cancel(turn["id"], mode)).json()
    assert (ended["status"], ended["usage"]) == ("cancelled", turn["usage"])
    kept = [USER, ("call", "open_lookup", '{"q":"moss"}'), ("output", "moss: found in the open")]
    found = shapes(await client.items(turn["conversation_id"]))
    assert found == ([] if mode == "rollback" else kept)


async def test_the_limit_of_steps_holds_over_the_pauses(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await stepping(client, scenario, max_steps=2)
    turn = await answered(client, turn["id"], resume(turn))
    assert turn["status"] == "paused"
    ended = await answered(client, turn["id"], resume(turn))
    assert (ended["status"], ended["error"]["code"]) == ("failed", "max_steps_exceeded")
    assert len(await scenario.requests()) == 2
