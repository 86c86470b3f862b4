"""Each figure of `/metrics` moves with what it counts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.service.client import TurnwireClient
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def moved(client: TurnwireClient, **by: float) -> AsyncIterator[None]:
    """Each figure is that much higher after the block; names are given without `turnwire_`."""
    before = await client.figures()
    yield
    after = await client.figures()
    found = {name: after.get(f"turnwire_{name}", 0) - before.get(f"turnwire_{name}", 0) for name in by}
    assert found == by


async def test_turns_by_agent_and_status_with_their_times_and_tokens(
    client: TurnwireClient, scenario: Scenario
) -> None:
    figures = {
        'turns_started_total{agent="plain"}': 1,
        'turns_ended_total{agent="plain",status="completed"}': 1,
        'time_to_first_token_seconds_count{agent="plain"}': 1,
        'turn_duration_seconds_count{status="completed"}': 1,
        f'tokens_total{{kind="input",model="{scenario.model}"}}': 11,
        f'tokens_total{{kind="output",model="{scenario.model}"}}': 7,
    }
    async with moved(client, **figures):
        await client.run("hello")


async def test_cancels_by_mode_with_their_time(client: TurnwireClient, scenario: Scenario) -> None:
    figures = {
        'turns_ended_total{agent="plain",status="cancelled"}': 1,
        'cancel_seconds_count{mode="rollback"}': 1,
    }
    async with moved(client, **figures):
        await scenario.script({"text": "one two", "hold": {"text:1": scenario.gate("text")}})
        turn = await client.start("hello")
        await scenario.control.held(scenario.gate("text"))
        await client.cancel(turn["id"], "rollback")


async def test_what_runs_waits_and_listens_is_shown_while_it_does(
    client: TurnwireClient, scenario: Scenario
) -> None:
    chat = scenario.gate("chat")
    await scenario.script({"text": "one two", "hold": {"text:1": scenario.gate("text")}})
    async with moved(client, turns_running=0, turns_queued=0, listeners=0):
        async with client.stream("hello", conversation=chat) as stream:
            await stream.until_text("one ")
            queued = await client.start("again", conversation=chat, on_conflict="enqueue")
            now = await client.figures()
            await scenario.release("text")
            await stream.rest()
        await client.ended(queued["id"])
    assert now["turnwire_turns_running"] >= 1
    assert now["turnwire_turns_queued"] >= 1
    assert now["turnwire_listeners"] >= 1


async def test_listeners_that_come_back(client: TurnwireClient) -> None:
    turn = await client.run("hello")
    async with moved(client, listener_resumes_total=1), client.events(turn["id"], last_event_id="1") as stream:
        await stream.rest()


@pytest.mark.parametrize("status", [500, 401, 429])
async def test_upstream_errors_by_code(hasty_client: TurnwireClient, scenario: Scenario, status: int) -> None:
    code = {500: "upstream_error", 401: "upstream_auth", 429: "rate_limited"}[status]
    async with moved(hasty_client, **{f'upstream_errors_total{{code="{code}"}}': 1}):
        await scenario.script({"status": status, "body": {"error": {"message": "no"}}})
        turn = await hasty_client.run("hello")
    assert turn["error"]["code"] == code
