"""What the operator's policy forbids does not happen, and who asked for it is told."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.e2e.checks import check_log, the_next_turn_is_valid
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.shapes import shapes
from tests.service.sse import Frame
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
DELEGATE = {"name": "ask_helper", "arguments": {"input": "deny: not the helper"}}


@pytest.fixture(scope="module", params=["chat_completions", "responses"])
def policed_service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, upstream_origin: str
) -> Iterator[ServiceProcess]:
    settings = {
        "TURNWIRE_MODEL_API": request.param,
        "TURNWIRE_AGENTS": "tests.service.agents:AGENTS,tests.service.policies:AGENTS",
        "TURNWIRE_POLICY": "tests.service.policies:judge",
        "TURNWIRE_POLICY_TIMEOUT_S": 2,
    }
    with ServiceProcess(tmp_path_factory.mktemp("policed"), upstream_origin, **settings) as service:
        yield service
        service.check_log()


@pytest.fixture
async def client(policed_service: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(policed_service.base_url, model=scenario.model)
    yield client
    await client.aclose()


def lookup(q: str) -> JsonObject:
    return {"name": "lookup", "arguments": {"q": q}}


def ends(frames: list[Frame]) -> list[tuple[str, str, Any]]:
    """How the tool calls of a log ended: tool, status and what was wrong."""
    done = [f.data for f in frames if f.type == "tool_call.completed"]
    return [(data["tool"], data["status"], data["error"]) for data in done]


async def logged(client: TurnwireClient, turn: JsonObject) -> list[Frame]:
    """The log of an ended turn, checked."""
    frames = await client.log(turn["id"])
    check_log(frames, await client.turn(turn["id"]))
    return frames


async def test_a_denied_model_call_fails_the_turn_without_touching_the_network(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await client.run("deny: not today")
    frames = await logged(client, turn)
    assert (turn["status"], turn["error"]["code"]) == ("failed", "policy_denied")
    assert "not today" in turn["error"]["message"]
    assert (turn["error"]["retryable"], turn["usage"]) == (False, None)
    assert "step.started" not in [frame.type for frame in frames]
    assert await scenario.requests() == []
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], [])


async def test_a_denial_without_a_reason_says_so(client: TurnwireClient) -> None:
    for answer in ("deny", {"decision": "deny"}, {"decision": "deny", "reason": ""}):
        turn = await client.run(f"say: {json.dumps(answer)}")
        assert turn["error"]["code"] == "policy_denied"
        assert "no reason given" in turn["error"]["message"]


async def test_a_denied_tool_is_not_run_and_the_model_is_told_why(
    client: TurnwireClient, scenario: Scenario
) -> None:
    denied = "deny: classified"
    await scenario.script({"tool_calls": [lookup(denied), lookup("kelp")]}, {"text": "I see."})
    turn = await client.run("hello", agent="worker")
    frames = await logged(client, turn)
    assert turn["status"] == "completed"
    assert sorted(ends(frames)) == [("lookup", "blocked", "classified"), ("lookup", "success", None)]
    outputs = [
        text for kind, text, *_ in shapes(await client.items(turn["conversation_id"])) if kind == "output"
    ]
    assert "classified" in outputs[0]
    assert "found" not in outputs[0]
    assert outputs[1] == "kelp: found"
    assert "classified" in str((await scenario.last_request()).history)


async def test_a_denied_model_call_of_a_nested_agent_fails_the_whole_turn(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "Let me ask.", "tool_calls": [DELEGATE]})
    turn = await client.run("hello", agent="boss")
    frames = await logged(client, turn)
    assert (turn["status"], turn["error"]["code"]) == ("failed", "policy_denied")
    assert "not the helper" in turn["error"]["message"]
    assert ends(frames)[0][1] in ("error", "cancelled")
    assert len(await scenario.requests()) == 1
    assert turn["usage"]["requests"] == 1


async def test_tools_of_nested_agents_are_asked_about(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script(
        {"tool_calls": [{"name": "ask_helper", "arguments": {"input": "kelp?"}}]},
        {"tool_calls": [lookup("deny: nested too")]},
        {"text": "I may not."},
        {"text": "So be it."},
    )
    turn = await client.run("hello", agent="boss")
    frames = await logged(client, turn)
    nested = [f.data for f in frames if f.type == "tool_call.completed" and f.data["tool"] == "lookup"]
    assert [(d["status"], d["error"]) for d in nested] == [("blocked", "nested too")]
    assert nested[0]["parent_call_id"]
    assert turn["output_text"] == "So be it."


async def test_tools_of_an_mcp_server_are_asked_about(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"tool_calls": [{"name": "process_id"}]}, {"text": "Then not."})
    turn = await client.run("hello", agent="connected")
    assert ends(await logged(client, turn)) == [("process_id", "blocked", "no reason given")]
    assert "no reason given" in str((await scenario.last_request()).history)


async def test_tools_that_are_made_during_the_run_are_asked_about(
    client: TurnwireClient, scenario: Scenario
) -> None:
    calls = [{"name": "improvised", "arguments": {"q": q}} for q in ("deny: not this", "kelp")]
    await scenario.script({"tool_calls": calls}, {"text": "Then not."})
    turn = await client.run("hello", agent="improviser")
    assert sorted(ends(await logged(client, turn))) == [
        ("improvised", "blocked", "not this"),
        ("improvised", "success", None),
    ]
    assert "not this" in str((await scenario.last_request()).history)


async def test_a_denied_client_tool_is_never_put_to_the_caller(
    client: TurnwireClient, scenario: Scenario
) -> None:
    calls = [{"name": "pick", "arguments": {"q": "deny: no picking"}}]
    await scenario.script({"tool_calls": calls}, {"text": "Then not."})
    turn = await client.run("hello", tools=[{"name": "pick"}])
    frames = await logged(client, turn)
    assert turn["status"] == "completed"
    assert ends(frames) == [("pick", "blocked", "no picking")]


async def test_an_allowed_client_tool_waits_for_its_output(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"tool_calls": [{"name": "pick", "arguments": {"q": "kelp"}}]}, {"text": "Thanks."})
    paused = await client.run("hello", tools=[{"name": "pick"}])
    assert paused["pause"]["reason"] == "tool_output"
    outputs = [{"call_id": call["call_id"], "output": "picked"} for call in paused["pause"]["tool_calls"]]
    answer = await client.http.post(
        f"/v1/turns/{paused['id']}/tool_outputs",
        json={"outputs": outputs},
        headers={"accept": "application/json"},
    )
    assert answer.json()["output_text"] == "Thanks."
    assert ends(await logged(client, paused)) == [("pick", "success", None)]


@pytest.mark.parametrize("failure", ["raise: a secret detail", "say: 7", 'say: {"decision": "perhaps"}'])
async def test_a_policy_that_fails_allows_model_calls_with_a_warning(
    client: TurnwireClient, scenario: Scenario, failure: str
) -> None:
    turn = await client.run(failure)
    frames = await logged(client, turn)
    warnings = [f.data for f in frames if f.type == "warning"]
    assert turn["output_text"] == "All good."
    assert [w["code"] for w in warnings] == ["policy_failed"]
    assert "secret" not in warnings[0]["message"]


async def test_a_policy_that_fails_denies_tool_calls_with_a_warning(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"tool_calls": [lookup("raise: a secret detail")]}, {"text": "I see."})
    turn = await client.run("hello", agent="worker")
    frames = await logged(client, turn)
    assert [f.data["code"] for f in frames if f.type == "warning"] == ["policy_failed"]
    assert [end[1] for end in ends(frames)] == ["blocked"]
    assert "secret" not in "".join(frame.raw.decode() for frame in frames if frame.type == "warning")


async def test_a_policy_that_does_not_answer_has_failed(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await client.run(f"wait: {scenario.gate('policy')}")
    frames = await logged(client, turn)
    await scenario.gone("policy")
    assert turn["status"] == "completed"
    assert "within 2 s" in next(f.data["message"] for f in frames if f.type == "warning")


@pytest.mark.parametrize("mode", ["keep", "rollback", "after_step"])
async def test_a_cancel_while_the_policy_thinks_works_as_at_any_other_time(
    client: TurnwireClient, scenario: Scenario, mode: str
) -> None:
    turn = await client.start(f"wait: {scenario.gate('policy')}")
    await scenario.held("policy")
    cancelled = (await client.cancel(turn["id"], mode)).json()
    await scenario.gone("policy")
    assert cancelled["status"] == "cancelled"
    await logged(client, turn)
    assert await scenario.requests() == []
    assert len(await client.items(turn["conversation_id"])) == (0 if mode == "rollback" else 1)


async def test_a_policy_is_told_who_asks_what_of_whom(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await client.run("tell: me", agent="worker")
    told = json.loads(turn["error"]["message"].partition(": ")[2])
    assert told == {
        "type": "model_request",
        "caller": "anonymous",
        "user": None,
        "model": scenario.model,
        "agent": "worker",
        "message_count": 1,
        "tool_count": 15,
        "instructions": "Use your tools.",
        "last_user_text": "tell: me",
    }
    await scenario.script({"tool_calls": [lookup("tell: me")]}, {"text": "I see."})
    turn = await client.run("hello", agent="worker")
    assert json.loads(ends(await logged(client, turn))[0][2]) == {
        "type": "tool_call",
        "caller": "anonymous",
        "user": None,
        "tool": "lookup",
        "agent": "worker",
        "arguments": {"q": "tell: me"},
    }
