"""Approvals of tools that the provider runs (hosted MCP): on the Responses wire alone."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.e2e.checks import check_log
from tests.e2e.pauses import USER
from tests.service.answers import answered, approvals, decisions
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.shapes import shapes
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
SERVER = {"server_label": "files"}
LISTED = {"id": "mcpl_1", "type": "mcp_list_tools", "tools": [], **SERVER}
REQUEST = {
    "id": "mcpr_1",
    "type": "mcp_approval_request",
    "name": "erase",
    "arguments": '{"path":"a"}',
    **SERVER,
}
CALL = {
    "id": "mcp_1",
    "type": "mcp_call",
    "name": "erase",
    "arguments": '{"path":"a"}',
    "output": "erased",
    "approval_request_id": "mcpr_1",
    **SERVER,
}


@pytest.fixture
async def client(responses_service: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(responses_service.base_url, model=scenario.model)
    yield client
    await client.aclose()


def reply(*items: JsonObject) -> JsonObject:
    """A stream of whole items, as the provider sends those that it makes itself."""
    usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    events: list[JsonObject] = [{"type": "response.created", "response": response}]
    for index, item in enumerate(items):
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    ended = response | {"status": "completed", "output": list(items), "usage": usage}
    events.append({"type": "response.completed", "response": ended})
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return {"raw": base64.b64encode(body.encode()).decode()}


def says(text: str) -> JsonObject:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}


async def paused(client: TurnwireClient, scenario: Scenario, *replies: JsonObject) -> JsonObject:
    await scenario.script(reply(LISTED, REQUEST), *replies)
    turn = await client.run(USER[1], agent="remote")
    assert turn["status"] == "paused", turn
    return turn


async def sent_items(scenario: Scenario) -> dict[str, JsonObject]:
    items: list[Any] = (await scenario.last_request()).body["input"]
    return {item.get("type", "message"): item for item in items}


async def test_an_approved_request_is_answered_to_the_provider(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await paused(client, scenario, reply(CALL, says("It is gone.")))
    (asked,) = approvals(turn)
    assert (asked["tool"], asked["agent"], asked["arguments"]) == ("erase", "remote", {"path": "a"})
    ended = await answered(client, turn["id"], decisions(turn))
    assert (ended["status"], ended["output_text"]) == ("completed", "It is gone.")
    assert ended["usage"]["requests"] == 2
    sent = await sent_items(scenario)
    response = sent["mcp_approval_response"]
    assert (response["approval_request_id"], response["approve"]) == (sent["mcp_approval_request"]["id"], True)
    frames = await client.log(turn["id"])
    check_log(frames, ended)
    (call,) = [f.data for f in frames if f.type == "tool_call.requested"]
    assert (call["tool"], call["executor"]) == ("erase", "provider")
    kinds = [shape[0] for shape in shapes(await client.items(turn["conversation_id"]))]
    assert kinds == [
        "user",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "assistant",
    ]


async def test_a_rejected_request_says_why(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await paused(client, scenario, reply(says("As you like.")))
    ended = await answered(client, turn["id"], decisions(turn, "reject", reason="Keep it."))
    assert ended["status"] == "completed"
    response = (await sent_items(scenario))["mcp_approval_response"]
    assert (response["approve"], response["reason"]) == (False, "Keep it.")


async def test_a_request_can_be_approved_for_the_rest_of_the_turn(
    client: TurnwireClient, scenario: Scenario
) -> None:
    again = REQUEST | {"id": "mcpr_2"}
    turn = await paused(client, scenario, reply(CALL, again), reply(says("Both are gone.")))
    ended = await answered(client, turn["id"], decisions(turn, always=True))
    assert (ended["status"], ended["runs"]) == ("completed", 2)
    frames = await client.log(turn["id"])
    asked = [f.data["approval_id"] for f in frames if f.type == "approval.requested"]
    decided = [f.data["approval_id"] for f in frames if f.type == "approval.decided"]
    assert len(asked) == 2
    assert asked == decided


async def test_a_request_that_nobody_answers_leaves_a_valid_history(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await paused(client, scenario, reply(says("Fine.")))
    await client.cancel(turn["id"])
    await client.run("And?", conversation=turn["conversation_id"], agent="remote")
    assert "mcp_approval_request" not in await sent_items(scenario)
