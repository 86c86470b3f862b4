"""Tools that the caller runs: the turn waits with their calls and goes on with their outputs."""

import asyncio
from typing import Any

import pytest

from tests.e2e.checks import check_log
from tests.e2e.pauses import CLIENTS, LAST, USER, call, calls
from tests.service.answers import answer, answered, decisions, following, outputs
from tests.service.client import JsonObject, TurnwireClient
from tests.service.shapes import shapes
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
ASK = calls(call("ask_page", q="fern"))
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def paused(client: TurnwireClient, scenario: Scenario, *replies: JsonObject, **fields: Any) -> JsonObject:
    await scenario.script(*(replies or (ASK, LAST)))
    turn = await client.run(USER[1], **{"agent": "guard"} | CLIENTS | fields)
    assert turn["status"] == "paused", turn
    return turn


async def test_the_model_is_told_of_the_callers_tools_and_the_call_is_the_clients(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    client = either_client
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    tools = [{"name": "ask_page", "description": "Asks the page.", "parameters": schema}]
    turn = await paused(client, scenario, tools=tools)
    (call_,) = turn["pause"]["tool_calls"]
    assert (call_["tool"], call_["arguments"]) == ("ask_page", {"q": "fern"})
    assert (turn["pause"]["reason"], turn["pause"]["approvals"]) == ("tool_output", [])
    sent = (await scenario.last_request()).body["tools"]
    functions = [tool.get("function", tool) for tool in sent]
    (own,) = [f for f in functions if f["name"] == "ask_page"]
    assert (own["description"], own["parameters"]) == ("Asks the page.", schema)
    async with following(client, turn["id"], outputs(turn, "green")) as stream:
        frames = await stream.rest()
    assert [f.type for f in frames[:3]] == ["turn.resumed", "tool_call.completed", "step.completed"]
    assert (frames[0].data["reason"], frames[1].data["output"]) == ("tool_output", "green")
    requested = [f.data for f in await client.log(turn["id"]) if f.type == "tool_call.requested"]
    assert [(r["tool"], r["executor"]) for r in requested] == [("ask_page", "client")]


async def test_an_output_can_be_an_image(either_client: TurnwireClient, scenario: Scenario) -> None:
    client = either_client
    turn = await paused(client, scenario)
    parts = [{"type": "input_text", "text": "A dot:"}, {"type": "input_image", "image_url": PIXEL}]
    ended = await answered(client, turn["id"], outputs(turn, parts))
    assert ended["status"] == "completed", ended["error"]
    request = await scenario.last_request()
    assert request.problems == []
    assert PIXEL in str(request.body)
    stored = (await client.items(turn["conversation_id"]))[2]
    assert [part["type"] for part in stored["output"]] == ["input_text", "input_image"]


async def test_an_output_that_says_how_it_went_is_read(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await paused(client, scenario, calls(call("ask_page"), call("read_page")), LAST)
    await answered(client, turn["id"], outputs(turn, {"rows": [1, 2]}, ValueError("no such page")))
    frames = await client.log(turn["id"])
    completed = {f.data["tool"]: f.data for f in frames if f.type == "tool_call.completed"}
    assert (completed["ask_page"]["status"], completed["ask_page"]["output"]) == ("success", '{"rows": [1, 2]}')
    assert (completed["read_page"]["status"], completed["read_page"]["error"]) == ("error", "no such page")


async def test_arguments_that_are_no_object_are_the_callers_to_make_something_of(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    client = either_client
    turn = await paused(client, scenario, calls({"name": "ask_page", "arguments": "oops"}), LAST)
    assert turn["pause"]["tool_calls"][0]["arguments"] is None
    ended = await answered(client, turn["id"], outputs(turn, "Please ask again."))
    assert ended["status"] == "completed"
    assert shapes(await client.items(turn["conversation_id"]))[2] == ("output", "Please ask again.")
    assert (await scenario.last_request()).problems == []


async def test_outputs_can_come_one_by_one_and_again(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await paused(client, scenario, calls(call("ask_page"), call("read_page")), LAST)
    first, second = outputs(turn, "one", "two")["outputs"]
    partly = await answered(client, turn["id"], {"outputs": [second]})
    assert [c["call_id"] for c in partly["pause"]["tool_calls"]] == [first["call_id"]]
    assert partly["pause"]["id"] != turn["pause"]["id"]

    async def code(*given: JsonObject) -> tuple[int, str | None]:
        response = await answer(client, turn["id"], {"outputs": list(given)})
        return response.status_code, response.json().get("code")

    assert await code({"call_id": "call_nobodys", "output": 1}) == (404, "not_found")
    assert await code(second | {"output": "other"}) == (409, "already_decided")
    assert await code(second | {"error": "other"}) == (409, "already_decided")
    assert await code(second) == (200, None)
    ended = await answered(client, turn["id"], {"outputs": [first]})
    assert ended["status"] == "completed"
    assert await answered(client, turn["id"], {"outputs": [second, first]}) == ended


async def test_of_two_tabs_at_the_same_moment_one_output_counts(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await paused(client, scenario)
    bodies = [outputs(turn, "left"), outputs(turn, "right")] * 3
    responses = await asyncio.gather(*(answer(client, turn["id"], body) for body in bodies))
    assert sorted(r.status_code for r in responses) == [200, 200, 200, 409, 409, 409]
    assert len(await scenario.requests()) == 2


async def test_tools_of_the_server_run_at_once_and_not_again(
    client: TurnwireClient, scenario: Scenario
) -> None:
    mixed = calls(call("open_lookup", q="moss"), call("ask_page"), call("guarded", q="kelp"))
    await scenario.script(mixed, LAST)
    async with client.stream(USER[1], agent="guard", tools=CLIENTS["tools"]) as stream:
        frames = await stream.rest()
    completed = [f.data["tool"] for f in frames if f.type == "tool_call.completed"]
    assert completed == ["open_lookup"]
    assert "step.completed" not in stream.types
    turn = await client.turn(stream.turn_id)
    assert turn["pause"]["reason"] == "approval"
    partly = await answered(client, turn["id"], decisions(turn))
    assert (partly["pause"]["reason"], partly["pause"]["approvals"]) == ("tool_output", [])
    ended = await answered(client, turn["id"], outputs(partly, "A page."))
    log = await client.log(turn["id"])
    check_log(log, ended)
    ran = [f.data["data"]["tool"] for f in log if f.type == "workflow.event"]
    assert ran == ["open_lookup", "guarded"]


async def test_a_nested_agents_tool_of_the_same_name_is_its_own(
    client: TurnwireClient, scenario: Scenario
) -> None:
    replies = [calls(call("ask_clerk", input="?")), calls(call("sometimes", q="secret"))]
    tools = [{"name": "sometimes"}]
    turn = await paused(client, scenario, *replies, {"text": "It has it."}, LAST, agent="chief", tools=tools)
    assert [a["agent"] for a in turn["pause"]["approvals"]] == ["clerk"]
    assert turn["pause"]["tool_calls"] == []
    ended = await answered(client, turn["id"], decisions(turn))
    assert ended["status"] == "completed"
    requested = [f.data for f in await client.log(turn["id"]) if f.type == "tool_call.requested"]
    assert [(r["tool"], r["executor"]) for r in requested] == [("ask_clerk", "server"), ("sometimes", "server")]


@pytest.mark.parametrize(
    ("agent", "name"),
    [("guard", "guarded"), ("porter", "guarded"), ("porter", "transfer_to_guard"), ("chief", "ask_clerk")],
)
async def test_a_tool_of_the_server_cannot_be_replaced(
    client: TurnwireClient, scenario: Scenario, agent: str, name: str
) -> None:
    response = await client.post(USER[1], agent=agent, tools=[{"name": "fine"}, {"name": name}])
    assert (response.status_code, response.json()["code"]) == (422, "invalid_request")
    assert response.json()["errors"][0]["loc"] == ["body", "tools", 1, "name"]
    assert await scenario.requests() == []


async def test_an_output_that_never_comes_is_cancelled(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await paused(client, scenario, ASK, {"text": "Fine."})
    await client.cancel(turn["id"])
    late = await answer(client, turn["id"], outputs(turn, "late"))
    assert (late.status_code, late.json()["code"]) == (409, "turn_not_paused")
    await client.run("And?", conversation=turn["conversation_id"], agent="plain")
    kept = shapes(await client.items(turn["conversation_id"]))
    assert kept[1:3] == [("call", "ask_page", '{"q":"fern"}'), ("output", "cancelled")]
    assert (await scenario.last_request()).problems == []
