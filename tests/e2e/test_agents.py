"""Plain SDK agents run as they are: tools, handoffs, agents as tools, structured output."""

import json

import pytest

from tests.e2e.checks import check_log, the_next_turn_is_valid
from tests.service.client import JsonObject, TurnwireClient
from tests.service.shapes import shapes
from tests.service.sse import Frame
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
MIB = 1 << 20


async def frames_of(client: TurnwireClient, agent: str) -> list[Frame]:
    async with client.stream("kelp?", agent=agent) as stream:
        frames = await stream.rest()
    check_log(frames, frames[-1].data["turn"])
    return frames


def of_type(frames: list[Frame], kind: str) -> list[JsonObject]:
    return [frame.data for frame in frames if frame.type == kind]


def call(name: str, **arguments: object) -> JsonObject:
    return {"name": name, "arguments": arguments, "chunks": 2}


async def test_a_tool_call_is_told_from_its_first_letter_to_its_result(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"tool_calls": [call("lookup", q="kelp") | {"id": "call_mine"}]}, {"text": "Green."})
    frames = await frames_of(either_client, "worker")
    told = [f.type for f in frames if f.type.startswith("tool_call")]
    assert told[0] == "tool_call.started"
    assert told[-2:] == ["tool_call.requested", "tool_call.completed"]
    (started,), (requested,), (completed,) = (
        of_type(frames, f"tool_call.{verb}") for verb in ("started", "requested", "completed")
    )
    assert started["call_id"] == requested["call_id"] == completed["call_id"] == "call_mine"
    assert "".join(data["delta"] for data in of_type(frames, "tool_call.delta")) == '{"q":"kelp"}'
    assert (requested["executor"], requested["arguments"]) == ("server", {"q": "kelp"})
    assert (completed["status"], completed["output"], completed["output_truncated"]) == (
        "success",
        "kelp: found",
        False,
    )
    assert completed["duration_ms"] >= 0
    types = [frame.type for frame in frames]
    assert types.index("tool_call.completed") < types.index("step.completed")
    assert types.count("step.completed") == 2
    assert [data["step"] for data in of_type(frames, "step.started")] == [1, 2]


async def test_a_fast_tool_does_not_wait_for_a_slow_one(client: TurnwireClient, scenario: Scenario) -> None:
    calls = [call("slow_async", q=scenario.gate("tool")), call("lookup", q="kelp")]
    await scenario.script({"tool_calls": calls})
    async with client.stream("kelp?", agent="worker") as stream:
        await stream.until("tool_call.completed")
        assert stream.frames[-1].data["tool"] == "lookup"
        await scenario.release("tool")
        frames = await stream.rest()
    assert [data["tool"] for data in of_type(frames, "tool_call.completed")] == ["lookup", "slow_async"]


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("as_dict", '{"a":{"c":true,"d":null},"b":1}'),
        ("as_model", '{"depth":4,"name":"reef"}'),
        ("as_dataclass", '{"high":5,"low":1}'),
    ],
)
async def test_what_a_tool_returns_reaches_the_model_as_sorted_json(
    client: TurnwireClient, scenario: Scenario, tool: str, said: str
) -> None:
    await scenario.script({"tool_calls": [call(tool)]})
    turn = await client.run("hello", agent="worker")
    stored = shapes(await client.items(turn["conversation_id"]))[2][1]
    assert json.dumps(json.loads(stored), separators=(",", ":")) == said
    history = (await scenario.last_request()).history
    assert stored in [entry.get("content") for entry in history]


async def test_a_tool_that_raises_is_an_error_that_the_model_is_told(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script(
        {"tool_calls": [call("breaks", q="kelp"), call("lookup", q="moss")]}, {"text": "Sorry."}
    )
    frames = await frames_of(either_client, "worker")
    completed = {data["tool"]: data for data in of_type(frames, "tool_call.completed")}
    assert (completed["breaks"]["status"], completed["lookup"]["status"]) == ("error", "success")
    assert "no kelp here" in completed["breaks"]["error"]
    assert frames[-1].data["turn"]["output_text"] == "Sorry."
    assert "no kelp here" in str((await scenario.last_request()).history)


async def test_a_tool_whose_failure_is_the_runs_fails_the_turn(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"tool_calls": [call("breaks_hard", q="kelp")]})
    frames = await frames_of(client, "worker")
    turn = frames[-1].data["turn"]
    assert (turn["status"], turn["error"]["code"]) == ("failed", "tool_failed")
    assert of_type(frames, "tool_call.completed")[0]["status"] == "error"
    kept = shapes(await client.items(turn["conversation_id"]))
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], kept)


async def test_a_tool_may_have_a_limit_of_its_own(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"tool_calls": [call("limited", q=scenario.gate("tool"))]}, {"text": "Too slow."})
    frames = await frames_of(client, "worker")
    assert frames[-1].data["turn"]["output_text"] == "Too slow."
    assert of_type(frames, "tool_call.completed")[0]["status"] == "error"


async def test_a_tool_that_nobody_has_ends_one_way_or_the_other(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"tool_calls": [call("teleport", to="moon")]}, {"text": "No such tool."})
    frames = await frames_of(either_client, "worker")
    turn = frames[-1].data["turn"]
    assert turn["status"] in ("completed", "failed")
    assert of_type(frames, "tool_call.completed")[0]["status"] == "error"
    kept = shapes(await either_client.items(turn["conversation_id"]))
    await the_next_turn_is_valid(either_client, scenario, turn["conversation_id"], kept)


async def test_a_call_id_that_comes_twice_is_made_unique(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    step = {"tool_calls": [call("lookup", q="kelp") | {"id": "call_same"}]}
    await scenario.script(step, step, {"text": "Green."})
    frames = await frames_of(either_client, "worker")
    ids = [data["call_id"] for data in of_type(frames, "tool_call.requested")]
    assert ids[0] == "call_same"
    assert len(set(ids)) == 2
    assert (await scenario.last_request()).problems == []


async def test_arguments_that_are_no_object_never_reach_the_tool(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"tool_calls": [{"name": "lookup", "arguments": '{"q": '}]}, {"text": "Sorry."})
    frames = await frames_of(either_client, "worker")
    (requested,) = of_type(frames, "tool_call.requested")
    assert (requested["arguments"], requested["arguments_text"]) == (None, '{"q": ')
    assert of_type(frames, "tool_call.completed")[0]["status"] == "error"
    assert frames[-1].data["turn"]["status"] == "completed"
    assert (await scenario.last_request()).problems == []


async def test_a_big_output_is_cut_in_events_and_whole_in_history(
    client: TurnwireClient, scenario: Scenario
) -> None:
    size = MIB + 1000
    await scenario.script({"tool_calls": [call("big", size=size)]})
    frames = await frames_of(client, "worker")
    (completed,) = of_type(frames, "tool_call.completed")
    assert completed["output_truncated"] is True
    assert len(completed["output"]) <= MIB
    items = await client.items(frames[-1].data["turn"]["conversation_id"])
    assert len(items[2]["output"]) == size


@pytest.mark.parametrize("tool", ["reports", "reports_by_context"])
async def test_a_tool_reports_its_progress(client: TurnwireClient, scenario: Scenario, tool: str) -> None:
    await scenario.script({"tool_calls": [call(tool, q="kelp")]})
    frames = await frames_of(client, "worker")
    (event,) = of_type(frames, "workflow.event")
    assert (event["name"], event["data"]) == ("looking", {"q": "kelp"})


async def test_a_handoff_is_no_tool_call(either_client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"tool_calls": [call("transfer_to_expert")]}, {"text": "I know."})
    frames = await frames_of(either_client, "desk")
    turn = frames[-1].data["turn"]
    assert [(d["from"], d["to"]) for d in of_type(frames, "agent.handed_off")] == [("desk", "expert")]
    assert not [frame.type for frame in frames if frame.type.startswith("tool_call")]
    assert [data["agent"] for data in of_type(frames, "agent.started")] == ["desk", "expert"]
    assert (turn["agent"], turn["last_agent"], turn["output_text"]) == ("desk", "expert", "I know.")
    kept = shapes(await either_client.items(turn["conversation_id"]))
    await the_next_turn_is_valid(either_client, scenario, turn["conversation_id"], kept)


async def test_the_agent_that_spoke_last_can_be_asked_again(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"tool_calls": [call("transfer_to_expert")]}, {"text": "I know."})
    turn = await client.run("kelp?", agent="desk")
    again = await client.run("and moss?", conversation=turn["conversation_id"], agent="@last")
    assert again["agent"] == "expert"
    assert (await scenario.last_request()).history[0]["content"] == "I am the expert."


async def test_an_agent_as_a_tool_is_shown_and_told_apart(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script(
        {"tool_calls": [call("ask_helper", input="kelp?") | {"id": "call_outer"}]},
        {"text": "Hm.", "tool_calls": [call("lookup", q="kelp")]},
        {"text": "Sea weed."},
        {"text": "It is sea weed."},
    )
    frames = await frames_of(either_client, "boss")
    nested = [frame.data for frame in frames if "parent_call_id" in frame.data]
    assert {data["parent_call_id"] for data in nested} == {"call_outer"}
    assert {data["agent"] for data in nested} == {"helper"}
    deltas = [data["delta"] for data in nested if data["type"] == "message.delta"]
    assert "".join(deltas) == "Hm.Sea weed."
    assert [data["tool"] for data in nested if data["type"] == "tool_call.completed"] == ["lookup"]
    turn = frames[-1].data["turn"]
    assert (turn["output_text"], turn["last_agent"]) == ("It is sea weed.", "boss")
    assert (turn["usage"]["requests"], turn["usage"]["total_tokens"]) == (4, 72)
    assert turn["usage"]["context_tokens"] == 18
    assert [shape[0] for shape in shapes(await either_client.items(turn["conversation_id"]))] == [
        "user",
        "call",
        "output",
        "assistant",
    ]


async def test_structured_output_is_the_turns_output(either_client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": '{"answer":"green"}'})
    turn = await either_client.run("kelp?", agent="shaped")
    assert (turn["status"], turn["output"], turn["output_text"]) == (
        "completed",
        {"answer": "green"},
        '{"answer":"green"}',
    )


async def test_output_that_does_not_fit_is_invalid(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "Green, I think."})
    turn = await client.run("kelp?", agent="shaped")
    assert (turn["status"], turn["error"]["code"], turn["output"]) == ("failed", "output_invalid", None)
    kept = shapes(await client.items(turn["conversation_id"]))
    await the_next_turn_is_valid(client, scenario, turn["conversation_id"], kept)


async def test_a_refusal_is_told_as_one(either_client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"refusal": "I would rather not."})
    frames = await frames_of(either_client, "plain")
    assert "".join(data["delta"] for data in of_type(frames, "refusal.delta")) == "I would rather not."
    assert of_type(frames, "message.completed")[0]["refusal"] == "I would rather not."
    turn = frames[-1].data["turn"]
    kept = shapes(await either_client.items(turn["conversation_id"]))
    await the_next_turn_is_valid(either_client, scenario, turn["conversation_id"], kept)


async def test_reasoning_is_told_and_not_mixed_with_text(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"reasoning": "Think of weed.", "text": "Green."})
    frames = await frames_of(either_client, "plain")
    assert "".join(data["delta"] for data in of_type(frames, "reasoning.delta")) == "Think of weed."
    assert of_type(frames, "reasoning.completed")[0]["text"] == "Think of weed."
    assert frames[-1].data["turn"]["output_text"] == "Green."


async def test_agents_are_listed_with_what_they_can_do(client: TurnwireClient) -> None:
    listed = (await client.http.get("/v1/agents")).json()["data"]
    agents = {agent["name"]: agent for agent in listed}
    assert listed[0]["name"] == "plain"
    assert {"assistant", "worker", "desk"} <= set(agents)
    assert "lookup" in [tool["name"] for tool in agents["worker"]["tools"]]
    assert agents["desk"]["handoffs"] == ["expert"]
    assert (agents["keeper"]["may_pause"], agents["plain"]["may_pause"]) == (True, False)
    assert (await client.http.get("/v1/agents/worker")).json() == agents["worker"]
    assert (await client.http.get("/v1/agents/nobody")).json()["code"] == "agent_not_found"
