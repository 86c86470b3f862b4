"""A second turn in a conversation that has one under way: refused, queued, or put in its place."""

import asyncio
from typing import Any

import pytest

from tests.e2e.checks import check_log
from tests.service.client import JsonObject, TurnwireClient
from tests.service.shapes import sent, shapes
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
ONE_TWO = {"text": "one two"}


async def under_way(client: TurnwireClient, scenario: Scenario, said: str = "first") -> JsonObject:
    """A turn whose text waits at the gate `first`, after its first word."""
    await scenario.script(ONE_TWO | {"hold": {"text:1": scenario.gate("first")}})
    turn = await client.start(said)
    await scenario.held("first")
    return turn


async def queue(client: TurnwireClient, conversation: str, said: str, **fields: Any) -> JsonObject:
    return await client.start(said, conversation=conversation, on_conflict="enqueue", **fields)


async def test_a_second_turn_is_refused_and_told_which_one_runs(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await under_way(client, scenario)
    for accept in ("text/event-stream", "application/json", "text/plain"):
        response = await client.post("second", conversation=turn["conversation_id"], accept=accept)
        problem = response.json()
        assert (response.status_code, problem["code"]) == (409, "turn_in_progress")
        assert problem["turn_id"] == turn["id"]
    await scenario.release("first")
    await client.ended(turn["id"])
    kept = [("user", "first"), ("assistant", "one two")]
    assert shapes(await client.items(turn["conversation_id"])) == kept


async def test_of_many_at_once_one_runs(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script(ONE_TWO | {"hold": {"text:1": scenario.gate("first")}})
    posts = [client.post("hello", conversation=scenario.gate("chat"), background=True) for _ in range(10)]
    answers = await asyncio.gather(*posts)
    assert sorted(answer.status_code for answer in answers) == [202] + [409] * 9
    await scenario.held("first")
    await scenario.release("first")


async def test_queued_turns_run_in_order_of_admission(client: TurnwireClient, scenario: Scenario) -> None:
    first = await under_way(client, scenario)
    conversation = first["conversation_id"]
    second = await queue(client, conversation, "second")
    third = await queue(client, conversation, "third")
    assert [second["status"], third["status"]] == ["queued", "queued"]
    await scenario.release("first")
    logs = [await client.log(turn["id"]) for turn in (second, third)]
    assert [log[0].type for log in logs] == ["turn.queued", "turn.queued"]
    assert [log[0].data["position"] for log in logs] == [1, 2]
    assert [f.data["position"] for f in logs[1] if f.type == "turn.queued"] == [2, 1]
    said = [shape for shape in shapes(await client.items(conversation)) if shape[0] == "user"]
    assert said == [("user", "first"), ("user", "second"), ("user", "third")]
    last = await scenario.last_request()
    assert sent(last.history)[:3] == [("user", "first"), ("assistant", "one two"), ("user", "second")]


async def test_a_queued_turn_streams_while_it_waits(client: TurnwireClient, scenario: Scenario) -> None:
    first = await under_way(client, scenario)
    async with client.stream("second", conversation=first["conversation_id"], on_conflict="enqueue") as stream:
        assert (await anext(stream)).type == "turn.queued"
        await scenario.release("first")
        frames = await stream.rest()
    assert stream.types[:2] == ["turn.queued", "turn.started"]
    check_log(frames, frames[-1].data["turn"])


async def test_nobody_overtakes_the_queue(client: TurnwireClient, scenario: Scenario) -> None:
    first = await under_way(client, scenario)
    conversation = first["conversation_id"]
    await scenario.script({"text": "second", "hold": scenario.gate("second")})
    second = await queue(client, conversation, "second")
    third = await queue(client, conversation, "third")
    await scenario.release("first")
    await scenario.held("second")
    refused = await client.post("fourth", conversation=conversation)
    assert refused.json()["turn_id"] == second["id"]
    await scenario.release("second")
    await client.ended(third["id"])


async def test_a_full_queue_is_429(hasty_client: TurnwireClient, scenario: Scenario) -> None:
    call = {"name": "slow_async", "arguments": {"q": scenario.gate("tool")}}
    await scenario.script({"tool_calls": [call]})
    first = await hasty_client.start("first", agent="worker")
    await scenario.held("tool")
    second = await queue(hasty_client, first["conversation_id"], "second")
    response = await hasty_client.post("third", conversation=first["conversation_id"], on_conflict="enqueue")
    assert (response.status_code, response.json()["code"]) == (429, "queue_full")
    assert int(response.headers["retry-after"]) >= 1
    assert "1 turn" in response.json()["detail"]
    await scenario.release("tool")
    await hasty_client.ended(second["id"])
    assert len(await hasty_client.turns(first["conversation_id"])) == 2


async def test_more_turns_than_the_service_takes_are_429(
    hasty_client: TurnwireClient, scenario: Scenario
) -> None:
    calls = [{"name": "slow_async", "arguments": {"q": scenario.gate("tool")}}]
    await scenario.script(*[{"tool_calls": calls}] * 4)
    turns = [await hasty_client.start("hello", agent="worker") for _ in range(4)]
    response = await hasty_client.post("one more")
    assert (response.status_code, response.json()["code"]) == (429, "too_many_turns")
    assert int(response.headers["retry-after"]) >= 1
    await scenario.release("tool")
    for turn in turns:
        await hasty_client.ended(turn["id"])
    assert (await hasty_client.run("one more"))["status"] == "completed"


async def test_a_queued_turn_that_is_cancelled_leaves_nothing(
    client: TurnwireClient, scenario: Scenario
) -> None:
    first = await under_way(client, scenario)
    conversation = first["conversation_id"]
    second = await queue(client, conversation, "second")
    third = await queue(client, conversation, "third")
    response = await client.cancel(second["id"])
    assert (response.status_code, response.json()["status"]) == (200, "cancelled")
    assert [f.type for f in await client.log(second["id"])] == ["turn.queued", "turn.cancelled"]
    await scenario.release("first")
    assert (await client.ended(third["id"]))["status"] == "completed"
    said = [shape for shape in shapes(await client.items(conversation)) if shape[0] == "user"]
    assert said == [("user", "first"), ("user", "third")]


@pytest.mark.parametrize(
    ("policy", "mode", "kept"),
    [
        pytest.param("cancel", "keep", [("user", "first"), ("assistant", "one ")], id="cancel"),
        pytest.param("rollback", "rollback", [], id="rollback"),
    ],
)
async def test_a_turn_can_take_the_place_of_all_before_it(
    either_client: TurnwireClient, scenario: Scenario, policy: str, mode: str, kept: list[tuple[str, ...]]
) -> None:
    client = either_client
    first = await under_way(client, scenario)
    waiting = await queue(client, first["conversation_id"], "waiting")
    async with client.stream("now", conversation=first["conversation_id"], on_conflict=policy) as stream:
        assert (await anext(stream)).type == "turn.queued"
        await scenario.closed()
        frames = await stream.rest()
    assert frames[-1].type == "turn.completed"
    stopped = [await client.turn(turn["id"]) for turn in (first, waiting)]
    assert [(t["status"], t["cancel"]["by"]) for t in stopped] == [("cancelled", "conflict")] * 2
    assert stopped[0]["cancel"]["mode"] == mode
    request = await scenario.last_request()
    assert request.problems == []
    assert sent(request.history) == [*kept, ("user", "now")]


async def test_taking_the_place_of_nothing_is_a_plain_start(client: TurnwireClient) -> None:
    async with client.stream("hello", on_conflict="cancel") as stream:
        assert (await anext(stream)).type == "turn.started"
        await stream.rest()


async def test_cancelling_the_active_turn_can_take_the_queue_with_it(
    client: TurnwireClient, scenario: Scenario
) -> None:
    first = await under_way(client, scenario)
    waiting = [await queue(client, first["conversation_id"], said) for said in ("second", "third")]
    path = f"/v1/conversations/{first['conversation_id']}/turns/active"
    response = await client.http.delete(path, params={"queued": "cancel"})
    assert response.status_code == 200
    assert {(await client.turn(turn["id"]))["status"] for turn in waiting} == {"cancelled"}


async def test_cancelling_the_active_turn_lets_the_queue_go_on(
    client: TurnwireClient, scenario: Scenario
) -> None:
    first = await under_way(client, scenario)
    second = await queue(client, first["conversation_id"], "second")
    await client.http.delete(f"/v1/conversations/{first['conversation_id']}/turns/active")
    assert (await client.ended(second["id"]))["status"] == "completed"
