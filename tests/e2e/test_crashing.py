"""Crashes: what a killed service leaves, and what it is after it has started again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.checks import check_log, the_next_turn_is_valid
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.shapes import shapes
from tests.soak import soak
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
LOOKUP = {"name": "lookup", "arguments": {"q": "kelp"}}
CALL, FOUND = ("call", "lookup", '{"q":"kelp"}'), ("output", "kelp: found")


@pytest.fixture(scope="module")
def own_service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("crashed"), upstream_origin) as service:
        yield service


async def crashed_turns(service: ServiceProcess, *turns: JsonObject) -> list[JsonObject]:
    """Kill the service, start it again: the turns as they are then, their logs checked."""
    service.restart()
    client = TurnwireClient(service.base_url)
    ended = []
    for turn in turns:
        frames = await client.log(turn["id"])
        ended.append(await client.turn(turn["id"]))
        check_log(frames, ended[-1])
    await client.aclose()
    return ended


async def test_a_crash_ends_every_running_turn_as_interrupted_and_history_stays_valid(
    own_service: ServiceProcess, scenario: Scenario
) -> None:
    client = TurnwireClient(own_service.base_url, model=scenario.model)
    slow = {"name": "slow_async", "arguments": {"q": scenario.gate("tool")}}
    await scenario.script({"text": "never", "hold": scenario.gate("headers")})
    before_text = await client.start("hello")
    await scenario.held("headers")
    await scenario.script({"text": "one two three", "hold": {"text:2": scenario.gate("text")}})
    within_text = await client.start("hello")
    await scenario.held("text")
    await scenario.script({"text": "Let me look.", "tool_calls": [LOOKUP, slow]})
    within_tool = await client.start("hello", agent="worker")
    await scenario.held("tool")
    async with client.events(within_tool["id"]) as stream:
        await stream.until("tool_call.completed")
    async with client.events(within_text["id"]) as stream:
        await stream.until_text("one two ")
    await client.aclose()
    turns = await crashed_turns(own_service, before_text, within_text, within_tool)
    assert {turn["status"] for turn in turns} == {"failed"}
    assert {(t["error"]["code"], t["error"]["retryable"]) for t in turns} == {("interrupted", True)}
    client = TurnwireClient(own_service.base_url, model=scenario.model)
    kept = [shapes(await client.items(turn["conversation_id"])) for turn in turns]
    hello = ("user", "hello")
    assert kept[0] == []
    assert kept[1] == [hello, ("assistant", "one two ")]
    assert [shape[0] for shape in kept[2]] == ["user", "assistant", "call", "call", "output", "output"]
    assert kept[2][4] == FOUND
    for turn, items in zip(turns, kept, strict=True):
        await the_next_turn_is_valid(client, scenario, turn["conversation_id"], items)
    await client.aclose()


async def test_a_crash_between_steps_keeps_the_step(own_service: ServiceProcess, scenario: Scenario) -> None:
    client = TurnwireClient(own_service.base_url, model=scenario.model)
    await scenario.script({"tool_calls": [LOOKUP]}, {"text": "never", "hold": scenario.gate("second")})
    turn = await client.start("hello", agent="worker")
    await scenario.held("second")
    async with client.events(turn["id"]) as stream:
        await stream.until("step.completed")
    await client.aclose()
    (ended,) = await crashed_turns(own_service, turn)
    client = TurnwireClient(own_service.base_url, model=scenario.model)
    kept = shapes(await client.items(turn["conversation_id"]))
    await client.aclose()
    assert kept == [("user", "hello"), CALL, FOUND]
    assert ended["usage"]["total_tokens"] == 18


async def test_a_cancel_that_was_asked_for_holds_over_a_crash(
    own_service: ServiceProcess, scenario: Scenario
) -> None:
    client = TurnwireClient(own_service.base_url, model=scenario.model)
    await scenario.script({"text": "one two", "hold": {"text:1": scenario.gate("text")}})
    turn = await client.start("hello")
    await scenario.held("text")
    assert (await client.cancel(turn["id"], "rollback")).json()["status"] == "cancelled"
    await client.aclose()
    (ended,) = await crashed_turns(own_service, turn)
    assert ended["status"] == "cancelled"


async def test_ten_crashes_lose_nothing_that_was_sent(tmp_path: Path, upstream_origin: str) -> None:
    assert await soak(10, tmp_path / "data", upstream_origin) > 0
