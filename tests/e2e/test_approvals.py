"""What waits for a person: what is asked, how it can be answered, and how often."""

import asyncio
from typing import Any

import pytest

from app.api import schemas
from tests.e2e.checks import check_log
from tests.e2e.pauses import CALLED, FOUND, GUARDED, LAST, USER, call, calls, one
from tests.service.answers import answer, answered, approvals, decisions, following
from tests.service.client import JsonObject, TurnwireClient
from tests.service.shapes import shapes
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
TWO = calls(call("guarded", q="kelp"), call("guarded", q="moss"))


async def paused(client: TurnwireClient, scenario: Scenario, *replies: JsonObject, **fields: Any) -> JsonObject:
    await scenario.script(*(replies or (GUARDED, LAST)))
    turn = await client.run(USER[1], **{"agent": "guard"} | fields)
    assert turn["status"] == "paused", turn
    return turn


async def test_the_stream_ends_with_the_pause_and_says_who_asks_for_what(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    client = either_client
    await scenario.script({"text": "Let me ask."} | GUARDED, LAST)
    async with client.stream(USER[1], agent="guard") as stream:
        frames = await stream.rest()
    assert [t for t in stream.types if not t.startswith("message.")] == [
        "turn.started",
        "agent.started",
        "step.started",
        "tool_call.started",
        "tool_call.delta",
        "tool_call.requested",
        "approval.requested",
        "turn.paused",
    ]
    turn = await client.turn(stream.turn_id)
    assert frames[-1].data["turn"] == {name: turn[name] for name in turn if name != "input"}
    assert (turn["status"], turn["runs"], turn["output_text"]) == ("paused", 1, "Let me ask.")
    assert (turn["usage"]["requests"], turn["usage"]["total_tokens"]) == (1, 18)
    assert turn["ended_at"] is None
    (asked,) = approvals(turn)
    requested = frames[-2].data
    assert asked == {name: requested[name] for name in asked}
    assert (asked["tool"], asked["agent"], asked["arguments"]) == ("guarded", "guard", {"q": "kelp"})
    assert turn["pause"]["reason"] == "approval"
    assert turn["pause"]["tool_calls"] == []
    assert (await client.http.get(f"/v1/turns/{turn['id']}/events?after={frames[-1].seq}")).status_code == 204


async def test_an_answer_streams_what_follows_it(either_client: TurnwireClient, scenario: Scenario) -> None:
    turn = await paused(either_client, scenario)
    async with following(either_client, turn["id"], decisions(turn, reason="Fine.")) as stream:
        frames = await stream.rest()
    assert [f.type for f in frames] == [
        "approval.decided",
        "turn.resumed",
        "workflow.event",
        "tool_call.completed",
        "step.completed",
        "step.started",
        "message.started",
        *["message.delta"] * sum(f.type == "message.delta" for f in frames),
        "message.completed",
        "step.completed",
        "agent.ended",
        "turn.completed",
    ]
    assert frames[0].seq == turn["last_event_id"] + 1
    decided = {"approval_id": approvals(turn)[0]["approval_id"], "decision": "approve", "reason": "Fine."}
    assert decided.items() <= frames[0].data.items()
    assert (frames[1].data["reason"], frames[1].data["run"]) == ("approval", 2)
    assert frames[3].data["output"] == FOUND[1]
    ended = frames[-1].data["turn"]
    assert (ended["runs"], ended["usage"]["requests"], ended["pause"]) == (2, 2, None)


async def test_a_rejected_call_is_blocked_and_says_why(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await paused(client, scenario)
    await answered(client, turn["id"], decisions(turn, "reject", reason="Not today."))
    frames = await client.log(turn["id"])
    (completed,) = [f.data for f in frames if f.type == "tool_call.completed"]
    assert (completed["status"], completed["error"], completed["output"]) == (
        "blocked",
        "Not today.",
        "Not today.",
    )
    assert not [f for f in frames if f.type == "workflow.event"]


@pytest.mark.parametrize("accept", ["text/event-stream", "application/json", "text/plain", None])
async def test_an_answer_comes_in_every_form(
    client: TurnwireClient, scenario: Scenario, accept: str | None
) -> None:
    turn = await paused(client, scenario)
    body = decisions(turn) | ({"background": True} if accept is None else {})
    response = await answer(client, turn["id"], body, accept=accept or "application/json")
    assert response.status_code == (202 if accept is None else 200)
    assert response.headers["x-turn-id"] == turn["id"]
    assert response.headers["x-conversation-id"] == turn["conversation_id"]
    if accept == "text/plain":
        assert response.text == "All done."
    elif accept == "text/event-stream":
        assert response.text.count("event: turn.completed\n") == 1
    else:
        assert response.json()["status"] == ("running" if accept is None else "completed")
    ended = await client.ended(turn["id"])
    assert ended["status"] == "completed"


async def test_a_pause_as_text_is_a_last_line_in_brackets(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "Let me ask."} | GUARDED, LAST)
    response = await client.post(USER[1], agent="guard", accept="text/plain")
    lines = response.text.rstrip("\n").split("\n")
    assert lines[0] == "Let me ask."
    assert lines[-1].startswith("[")
    assert lines[-1].endswith("]")


async def test_answers_are_checked_in_the_order_of_the_contract(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await paused(client, scenario, TWO, LAST)
    first, second = decisions(turn)["decisions"]
    other = first | {"decision": "reject"}
    unknown = {"approval_id": "apr_nobody", "decision": "approve"}
    partly = await answered(client, turn["id"], {"decisions": [first]})
    assert partly["pause"]["approvals"] == approvals(turn)[1:]

    async def code(*given: JsonObject) -> tuple[int, str | None]:
        response = await answer(client, turn["id"], {"decisions": list(given)})
        return response.status_code, response.json().get("code")

    assert await code(other, unknown) == (404, "not_found")
    assert await code(other) == (409, "already_decided")
    assert await code(first) == (200, None)
    assert await code(second, second) == (422, "invalid_request")
    ended = await answered(client, turn["id"], {"decisions": [second]})
    assert ended["status"] == "completed"
    assert await code(unknown) == (404, "not_found")
    assert await code(other) == (409, "already_decided")
    again = await answered(client, turn["id"], {"decisions": [first, second]})
    assert again == ended
    assert len(await scenario.requests()) == 2


async def test_a_partial_answer_is_kept_and_ends_with_what_is_left(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await paused(client, scenario, TWO, LAST)
    first, second = decisions(turn)["decisions"]
    async with following(client, turn["id"], {"decisions": [second]}) as stream:
        frames = await stream.rest()
    assert stream.types == ["approval.decided", "turn.paused"]
    left = frames[-1].data["turn"]["pause"]
    assert [one["approval_id"] for one in left["approvals"]] == [first["approval_id"]]
    assert left["id"] != turn["pause"]["id"]
    assert frames[-1].data["turn"]["usage"] == turn["usage"]
    async with following(client, turn["id"], {"decisions": [second]}) as stream:
        again = await stream.rest()
    assert [f.data for f in again] == [f.data for f in frames]
    assert len(await scenario.requests()) == 1


async def test_of_two_clients_at_the_same_moment_the_tool_runs_once(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await paused(client, scenario)
    turns = await asyncio.gather(*(answered(client, turn["id"], decisions(turn)) for _ in range(8)))
    assert [t["status"] for t in turns] == ["completed"] * 8
    frames = await client.log(turn["id"])
    assert sum(f.type == "workflow.event" for f in frames) == 1
    assert sum(f.type == "approval.decided" for f in frames) == 1


async def test_of_two_minds_at_the_same_moment_one_holds(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await paused(client, scenario)
    bodies = [decisions(turn, "approve"), decisions(turn, "reject")] * 3
    responses = await asyncio.gather(*(answer(client, turn["id"], body) for body in bodies))
    assert sorted(r.status_code for r in responses) == [200, 200, 200, 409, 409, 409]
    frames = await client.log(turn["id"])
    assert sum(f.type == "approval.decided" for f in frames) == 1


async def test_an_idempotency_key_attaches_to_the_same_answer(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await paused(client, scenario)
    key = {"idempotency-key": scenario.gate("key")}
    first = await answer(client, turn["id"], decisions(turn), **key)
    again = await answer(client, turn["id"], decisions(turn), **key)
    other = await answer(client, turn["id"], decisions(turn, "reject"), **key)
    assert first.json() == again.json()
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("edited", "loc"),
    [({"times": "many"}, "times"), ({}, "arguments"), ({"times": 2, "why": 1}, "arguments")],
)
async def test_edited_arguments_must_fit_the_tool(
    client: TurnwireClient, scenario: Scenario, edited: JsonObject, loc: str
) -> None:
    turn = await paused(client, scenario, calls(call("counted", times=1)), LAST)
    response = await answer(client, turn["id"], decisions(turn, arguments=edited))
    assert (response.status_code, response.json()["code"]) == (422, "invalid_request")
    assert loc in response.json()["errors"][0]["loc"]
    assert response.json()["errors"][0]["loc"][:3] == ["body", "decisions", 0]
    assert (await client.turn(turn["id"]))["status"] == "paused"
    ended = await answered(client, turn["id"], decisions(turn, arguments={"times": 3}))
    assert shapes(await client.items(ended["conversation_id"]))[2] == ("output", "yes yes yes ")


async def test_a_refusal_of_edited_arguments_names_their_place_among_answers_given_before(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await paused(client, scenario, TWO, LAST)
    first, second = (one(index)(turn)["decisions"][0] for index in range(2))
    await answered(client, turn["id"], {"decisions": [first]})
    response = await answer(client, turn["id"], {"decisions": [first, second | {"arguments": {"x": 1}}]})
    assert response.status_code == 422
    assert response.json()["errors"][0]["loc"][:3] == ["body", "decisions", 1]


async def test_edited_arguments_can_mend_what_is_no_json(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await paused(client, scenario, calls({"name": "guarded", "arguments": "oops"}), LAST)
    assert approvals(turn)[0]["arguments"] is None
    await answered(client, turn["id"], decisions(turn, arguments={"q": "kelp"}))
    assert shapes(await client.items(turn["conversation_id"]))[2] == FOUND
    assert (await scenario.last_request()).problems == []


async def test_automatic_approval_is_refused_where_it_is_not_allowed(
    client: TurnwireClient, scenario: Scenario
) -> None:
    for accept in ("text/event-stream", "application/json"):
        response = await client.post(USER[1], agent="guard", approvals="auto", accept=accept)
        problem = response.json()
        assert (response.status_code, problem["code"]) == (403, "override_forbidden")
        assert problem["errors"][0]["loc"] == ["body", "approvals"]
    assert await scenario.requests() == []


async def test_what_waits_is_listed_for_its_caller_until_it_is_decided(
    client: TurnwireClient, scenario: Scenario
) -> None:
    mine = TurnwireClient(str(client.http.base_url), model=scenario.model, user=scenario.gate("me"))
    other = TurnwireClient(str(client.http.base_url), model=scenario.model, user=scenario.gate("you"))
    turn = await paused(mine, scenario, TWO, LAST)
    page = (await mine.http.get("/v1/approvals?status=pending")).json()
    assert page["has_more"] is False
    schemas.ApprovalPage.model_validate(page, strict=True)
    by_id = {one["approval_id"]: one for one in page["data"]}
    for asked in approvals(turn):
        listed = by_id[asked["approval_id"]]
        assert asked == {name: listed[name] for name in asked}
        assert listed["turn_id"] == turn["id"]
        assert listed["conversation_id"] == turn["conversation_id"]
        assert listed["user"] == scenario.gate("me")
        assert turn["started_at"] <= listed["created_at"] <= listed["expires_at"] == turn["pause"]["expires_at"]
    assert (await other.http.get("/v1/approvals")).json()["data"] == []
    everything = (await client.http.get("/v1/approvals?limit=100")).json()["data"]
    assert by_id.keys() <= {one["approval_id"] for one in everything}
    assert (await answer(other, turn["id"], decisions(turn))).status_code == 404
    await answered(mine, turn["id"], {"decisions": decisions(turn)["decisions"][:1]})
    left = (await mine.http.get("/v1/approvals")).json()["data"]
    assert [one["approval_id"] for one in left] == [approvals(turn)[1]["approval_id"]]
    await mine.cancel(turn["id"])
    assert (await mine.http.get("/v1/approvals")).json()["data"] == []
    await mine.aclose()
    await other.aclose()


async def test_steps_are_counted_over_all_runs(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await paused(client, scenario, GUARDED, calls(call("open_lookup", q="moss")), LAST, max_steps=2)
    ended = await answered(client, turn["id"], decisions(turn))
    assert (ended["status"], ended["error"]["code"]) == ("failed", "max_steps_exceeded")
    assert len(await scenario.requests()) == 2
    assert ended["usage"]["requests"] == 2
    check_log(await client.log(turn["id"]), ended)


async def test_a_workflow_bounds_its_pauses_for_approval(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await paused(client, scenario, GUARDED, GUARDED, LAST, agent="patient")
    ended = await answered(client, turn["id"], decisions(turn))
    assert (ended["status"], ended["error"]["code"]) == ("failed", "approval_rounds_exceeded")
    frames = await client.log(turn["id"])
    check_log(frames, ended)
    assert sum(f.type == "approval.requested" for f in frames) == 1
    kept = shapes(await client.items(turn["conversation_id"]))
    assert kept == [USER, CALLED, FOUND, CALLED, ("output", "cancelled")]


async def test_events_of_a_nested_agent_say_whose_they_are_over_the_pause(
    client: TurnwireClient, scenario: Scenario
) -> None:
    replies = [calls(call("ask_clerk", input="kelp?")), GUARDED, {"text": "The clerk has it."}, LAST]
    turn = await paused(client, scenario, *replies, agent="chief")
    (asked,) = approvals(turn)
    assert asked["agent"] == "clerk"
    ended = await answered(client, turn["id"], decisions(turn))
    frames = await client.log(turn["id"])
    check_log(frames, ended)
    (outer,) = [
        f.data["call_id"] for f in frames if f.type == "tool_call.requested" and f.data["tool"] == "ask_clerk"
    ]
    inner = [f for f in frames if f.data.get("call_id") == asked["call_id"]]
    assert {(f.data["parent_call_id"], f.data["agent"]) for f in inner} == {(outer, "clerk")}
    assert [f.type for f in inner if not f.type.endswith("delta")] == [
        "tool_call.started",
        "tool_call.requested",
        "approval.requested",
        "approval.decided",
        "tool_call.completed",
    ]


async def test_an_approved_tools_output_can_be_the_answer(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await paused(client, scenario, GUARDED, agent="brief")
    ended = await answered(client, turn["id"], decisions(turn))
    assert (ended["status"], ended["output_text"]) == ("completed", FOUND[1])
    kept = [USER, CALLED, FOUND, ("assistant", FOUND[1])]
    assert shapes(await client.items(turn["conversation_id"])) == kept
    check_log(await client.log(turn["id"]), ended)


async def test_a_conversation_goes_on_after_approved_and_rejected_calls(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    client = either_client
    turn = await paused(client, scenario, TWO, LAST)
    first, second = decisions(turn)["decisions"]
    await answered(client, turn["id"], {"decisions": [first, second | {"decision": "reject"}]})
    await scenario.script({"text": "Fine."})
    after = await client.run("And now?", conversation=turn["conversation_id"], agent="plain")
    assert after["status"] == "completed"
    assert (await scenario.last_request()).problems == []
