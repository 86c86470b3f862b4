"""Cancel, at every moment of a turn and in every mode: what stays, what the upstream sees, what comes next."""

import asyncio
import statistics
import time
from typing import Any

import pytest

from tests.bounds import BOUND_S
from tests.e2e.checks import check_log, the_next_turn_is_valid
from tests.e2e.moments import MOMENTS, USER, Moment
from tests.service.client import JsonObject, TurnwireClient
from tests.service.shapes import shapes
from tests.service.sse import EventStream, Frame
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
CLOSED_WITHIN_S = 0.1
"""The median of a few cancels, one by one: a busy machine may hold up any single one."""
CLOSED_SOON_S = 2
MODES = ["keep", "rollback", "after_step"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("moment", [pytest.param(m, id=m.name) for m in MOMENTS])
async def test_a_cancel(either_client: TurnwireClient, scenario: Scenario, moment: Moment, mode: str) -> None:
    client = either_client
    await scenario.script(*moment.replies(scenario))
    async with client.stream(USER[1], agent=moment.agent, metadata=moment.metadata(scenario)) as stream:
        await scenario.held("here")
        await read_what_was_shown(stream, moment)
        asked_at = time.monotonic()
        cancelling = asyncio.create_task(client.cancel(stream.turn_id, mode))
        if mode == "after_step":
            await until_cancel_is_asked_for(client, stream.turn_id)
            await scenario.release("here")
        elif moment.open_request:
            await the_upstream_was_left_soon_after(scenario, asked_at)
        elif moment.gone_from_gate:
            await scenario.gone("here")
        response = await cancelling
        frames = await stream.rest()
    turn = response.json()
    assert response.status_code == 200
    assert turn["status"] == (moment.after_step_status if mode == "after_step" else "cancelled")
    assert (turn["cancel"]["mode"], turn["cancel"]["by"]) == (mode, "caller")
    expected = {"keep": moment.keep, "rollback": lambda s: [], "after_step": moment.after_step}[mode]
    items = await client.items(stream.conversation_id)
    assert shapes(items) == expected(scenario)
    check_log(frames, turn)
    if mode != "rollback":
        assert kept_texts(items) == shown_texts(frames)
    await scenario.release("here")
    await the_next_turn_is_valid(client, scenario, stream.conversation_id, expected(scenario))


@pytest.mark.parametrize("moment", [pytest.param(m, id=m.name) for m in MOMENTS if m.open_request])
async def test_a_cancel_reaches_the_upstream_within_a_tenth_of_a_second(
    either_client: TurnwireClient, scenario: Scenario, moment: Moment
) -> None:
    delays = []
    for number in range(5):
        own = scenario.control.scenario()
        await own.script(*moment.replies(own))
        turn = await either_client.start(USER[1], agent=moment.agent, model=own.model)
        await own.held("here")
        asked_at = time.monotonic()
        await either_client.cancel(turn["id"], MODES[number % 2])
        received = await own.closed()
        assert received.closed_at is not None
        delays.append(received.closed_at - asked_at)
    assert statistics.median(delays) < CLOSED_WITHIN_S


async def read_what_was_shown(stream: EventStream, moment: Moment) -> None:
    """Read until the caller has seen all that comes before the moment."""
    if moment.shown:
        await until_top_text(stream, moment.shown)


async def until_top_text(stream: EventStream, text: str) -> None:
    while top_text(stream.frames) != text:
        await anext(stream)


async def until_cancel_is_asked_for(client: TurnwireClient, turn_id: str) -> None:
    async with asyncio.timeout(BOUND_S):
        while (await client.turn(turn_id))["cancel"] is None:
            pass


async def the_upstream_was_left_soon_after(scenario: Scenario, asked_at: float) -> None:
    received = await scenario.closed()
    assert received.closed_at is not None
    assert received.closed_at - asked_at < CLOSED_SOON_S


def top_text(frames: list[Frame]) -> str:
    top = [f for f in frames if f.type == "message.delta" and "parent_call_id" not in f.data]
    return "".join(f.data["delta"] for f in top)


def shown_texts(frames: list[Frame]) -> list[str]:
    top = [f for f in frames if f.type == "message.completed" and "parent_call_id" not in f.data]
    return [f.data["text"] for f in top]


def kept_texts(items: list[JsonObject]) -> list[str]:
    return [shape[1] for shape in shapes(items) if shape[0] == "assistant"]


# --- one cancel and another ---------------------------------------------------------------------


async def held_turn(client: TurnwireClient, scenario: Scenario, **fields: Any) -> JsonObject:
    await scenario.script({"text": "one two three", "hold": {"text:1": scenario.gate("text")}})
    turn = await client.start("hello", **fields)
    await scenario.held("text")
    return turn


async def test_a_cancel_of_an_ended_turn_changes_nothing(client: TurnwireClient) -> None:
    turn = await client.run("hello")
    for mode in (None, *MODES):
        response = await client.cancel(turn["id"], mode)
        assert response.status_code == 200
        assert response.json() == turn | {"input": "hello"}


async def test_two_cancels_are_one(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await held_turn(client, scenario)
    answers = await asyncio.gather(*(client.cancel(turn["id"]) for _ in range(5)))
    again = await client.cancel(turn["id"], "rollback")
    assert {answer.status_code for answer in answers} == {200}
    assert again.json() == answers[0].json()
    assert [f.type for f in await client.log(turn["id"])].count("turn.cancelled") == 1


async def test_after_step_can_be_turned_into_keep(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await held_turn(client, scenario)
    gentle = asyncio.create_task(client.cancel(turn["id"], "after_step"))
    await until_cancel_is_asked_for(client, turn["id"])
    firm = await client.cancel(turn["id"], "keep")
    assert (await gentle).json() == firm.json()
    assert firm.json()["cancel"]["mode"] == "keep"
    assert shapes(await client.items(turn["conversation_id"])) == [("user", "hello"), ("assistant", "one ")]


async def test_the_default_mode_is_keep(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await held_turn(client, scenario)
    assert (await client.cancel(turn["id"])).json()["cancel"]["mode"] == "keep"
    assert shapes(await client.items(turn["conversation_id"])) == [("user", "hello"), ("assistant", "one ")]


async def test_cut_text_is_kept_as_a_message_without_the_upstreams_id(
    either_client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await held_turn(either_client, scenario)
    await either_client.cancel(turn["id"])
    kept = (await either_client.items(turn["conversation_id"]))[-1]
    assert not str(kept.get("id", "")).startswith("msg_")


async def test_reasoning_before_cut_text_is_dropped(either_client: TurnwireClient, scenario: Scenario) -> None:
    reply = {"reasoning": "Think first.", "text": "one two three", "hold": {"text:1": scenario.gate("text")}}
    await scenario.script(reply)
    async with either_client.stream("hello") as stream:
        await stream.until_text("one ")
        await either_client.cancel(stream.turn_id)
        await stream.rest()
    items = await either_client.items(stream.conversation_id)
    assert shapes(items) == [("user", "hello"), ("assistant", "one ")]
    assert "reasoning.completed" in stream.types
    await the_next_turn_is_valid(either_client, scenario, stream.conversation_id, shapes(items))


async def test_an_unknown_mode_is_refused(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await held_turn(client, scenario)
    response = await client.cancel(turn["id"], "gently")
    assert (response.status_code, response.json()["code"]) == (422, "invalid_request")
    assert (await client.turn(turn["id"]))["cancel"] is None
    await client.cancel(turn["id"])


async def test_an_unknown_turn_is_404(client: TurnwireClient) -> None:
    assert (await client.cancel("turn_unknown")).status_code == 404


async def test_a_turn_is_cancelled_by_its_conversation(client: TurnwireClient, scenario: Scenario) -> None:
    turn = await held_turn(client, scenario)
    path = f"/v1/conversations/{turn['conversation_id']}/turns/active"
    response = await client.http.delete(path, params={"mode": "rollback"})
    nothing = await client.http.delete(path)
    assert (response.status_code, response.json()["id"]) == (200, turn["id"])
    assert response.json()["status"] == "cancelled"
    assert (nothing.status_code, nothing.json()["code"]) == (404, "no_active_turn")


async def test_a_conversation_is_free_the_moment_the_cancel_is_answered(
    client: TurnwireClient, scenario: Scenario
) -> None:
    turn = await held_turn(client, scenario)
    conversation = turn["conversation_id"]
    for _ in range(5):
        assert (await client.cancel(turn["id"])).status_code == 200
        await scenario.script({"text": "one two", "hold": {"text:1": scenario.gate("again")}})
        turn = await client.start("again", conversation=conversation)
    await client.cancel(turn["id"])


async def test_a_slow_cancel_is_answered_202_and_settles_later(
    hasty_client: TurnwireClient, scenario: Scenario
) -> None:
    call = {"name": "slow_async", "arguments": {"q": scenario.gate("tool")}}
    await scenario.script({"tool_calls": [call]})
    turn = await hasty_client.start("hello", agent="worker")
    await scenario.held("tool")
    response = await hasty_client.cancel(turn["id"], "after_step")
    assert (response.status_code, response.json()["status"]) == (202, "running")
    await scenario.release("tool")
    assert (await hasty_client.ended(turn["id"]))["status"] == "cancelled"


async def test_a_tool_that_swallows_its_cancel_does_not_hold_the_turn(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"tool_calls": [{"name": "stubborn", "arguments": {"q": scenario.gate("tool")}}]})
    turn = await client.start("hello", agent="worker")
    await scenario.held("tool")
    assert (await client.cancel(turn["id"])).json()["status"] == "cancelled"
    items = shapes(await client.items(turn["conversation_id"]))
    assert [shape[0] for shape in items] == ["user", "call", "output"]
    assert items[-1] == ("output", "cancelled")


async def test_lost_threads_slow_nobody_down(client: TurnwireClient, scenario: Scenario) -> None:
    lost = [f"tool-{number}" for number in range(12)]
    calls = [{"name": "slow_sync", "arguments": {"q": scenario.gate(name)}} for name in lost]
    await scenario.script(*[{"tool_calls": [call]} for call in calls])
    turns = [await client.start("hello", agent="worker") for _ in lost]
    for name in lost:
        await scenario.held(name)
    await asyncio.gather(*(client.cancel(turn["id"]) for turn in turns))
    await scenario.script({"tool_calls": [{"name": "lookup", "arguments": {"q": "kelp"}}]})
    began = time.monotonic()
    assert (await client.run("hello", agent="worker"))["status"] == "completed"
    assert time.monotonic() - began < 2
    for name in lost:
        await scenario.release(name)


@pytest.mark.parametrize("mode", ["keep", "rollback"])
async def test_a_cancel_does_not_wait_for_a_retry(
    client: TurnwireClient, scenario: Scenario, mode: str
) -> None:
    busy = {"status": 429, "headers": {"retry-after": "15"}, "body": {"error": {"message": "busy"}}}
    await scenario.script(busy)
    async with client.stream("hello") as stream:
        await stream.until("warning")
        began = time.monotonic()
        response = await client.cancel(stream.turn_id, mode)
        frames = await stream.rest()
    assert time.monotonic() - began < 2
    assert response.json()["status"] == "cancelled"
    check_log(frames, response.json())
    assert len(await scenario.requests()) == 1


async def test_usage_is_counted_for_a_cancelled_turn(client: TurnwireClient, scenario: Scenario) -> None:
    step = {"tool_calls": [{"name": "lookup", "arguments": {"q": "kelp"}}]}
    await scenario.script(step, {"text": "one two", "hold": {"text:1": scenario.gate("text")}})
    turn = await client.start("hello", agent="worker")
    await scenario.held("text")
    usage = (await client.cancel(turn["id"])).json()["usage"]
    assert (usage["requests"], usage["unreported_requests"]) == (2, 1)
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (11, 7, 18)
