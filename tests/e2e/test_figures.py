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


async def test_posts_that_come_back_and_second_tabs_that_do(client: TurnwireClient, scenario: Scenario) -> None:
    key = {"idempotency-key": scenario.gate("key")}
    async with client.stream("hello", headers=key) as stream:
        frames = await stream.rest()
    turn = frames[0].data["turn_id"]
    async with moved(client, listener_resumes_total=2):
        async with client.stream("hello", headers=key | {"last-event-id": "1"}) as stream:
            assert len(await stream.rest()) == len(frames) - 1
        conversation = (await client.turn(turn))["conversation_id"]
        async with client.follow(conversation, last_event_id=f"{turn}:1") as stream:
            assert (await anext(stream)).data["seq"] == 2


async def test_threads_that_run_tools(client: TurnwireClient, scenario: Scenario) -> None:
    call = {"name": "slow_sync", "arguments": {"q": scenario.gate("tool")}}
    await scenario.script({"tool_calls": [call]}, {"text": "Done."})
    async with moved(client, tool_threads_running=0, tool_threads_abandoned=0):
        turn = await client.start("hello", agent="worker")
        await scenario.held("tool")
        assert (await client.figures())["turnwire_tool_threads_running"] >= 1
        await scenario.release("tool")
        await client.ended(turn["id"])


@pytest.mark.parametrize("status", [500, 401, 429])
async def test_upstream_errors_by_code(hasty_client: TurnwireClient, scenario: Scenario, status: int) -> None:
    code = {500: "upstream_error", 401: "upstream_auth", 429: "rate_limited"}[status]
    async with moved(hasty_client, **{f'upstream_errors_total{{code="{code}"}}': 1}):
        await scenario.script({"status": status, "body": {"error": {"message": "no"}}})
        turn = await hasty_client.run("hello")
    assert turn["error"]["code"] == code


FAILING = {"status": 500, "headers": {"retry-after": "0"}, "body": {"error": {"message": "no"}}}
SILENT = {"text": "", "usage": {"input_tokens": 5, "output_tokens": 0}}
ERRORS = 'upstream_errors_total{{code="{}"}}'.format


async def test_upstream_errors_that_a_retry_mended(client: TurnwireClient, scenario: Scenario) -> None:
    async with moved(client, **{ERRORS("upstream_error"): 1, ERRORS("rate_limited"): 1}):
        await scenario.script(FAILING, FAILING | {"status": 429}, {"text": "At last."})
        turn = await client.run("hello")
    assert (turn["status"], turn["output_text"]) == ("completed", "At last.")


async def test_upstream_errors_that_no_retry_mended(client: TurnwireClient, scenario: Scenario) -> None:
    async with moved(client, **{ERRORS("upstream_error"): 4}):
        await scenario.script(*[FAILING] * 4)
        turn = await client.run("hello")
    assert turn["error"]["code"] == "upstream_error"
    assert len(await scenario.requests()) == 4


@pytest.mark.parametrize("silent", [1, 2])
async def test_answers_without_content_are_upstream_errors(
    client: TurnwireClient, scenario: Scenario, silent: int
) -> None:
    async with moved(client, **{ERRORS("empty_completion"): silent}):
        await scenario.script(*[SILENT] * silent, {"text": "At last."})
        turn = await client.run("hello")
    assert turn["status"] == {1: "completed", 2: "failed"}[silent]


async def test_upstream_errors_of_nested_agents(hasty_client: TurnwireClient, scenario: Scenario) -> None:
    call = {"name": "ask_helper", "arguments": {"input": "?"}}
    async with moved(hasty_client, **{ERRORS("upstream_error"): 1}):
        await scenario.script({"tool_calls": [call]}, FAILING, {"text": "Without help."})
        turn = await hasty_client.run("hello", agent="boss")
    assert turn["output_text"] == "Without help."


async def test_what_ends_a_turn_is_no_upstream_error_if_it_is_ours(
    hasty_client: TurnwireClient, scenario: Scenario
) -> None:
    before = await hasty_client.figures()
    await scenario.script({"tool_calls": [{"name": "breaks_hard", "arguments": {"q": "kelp"}}]})
    turn = await hasty_client.run("hello", agent="worker")
    after = await hasty_client.figures()
    assert turn["status"] == "failed"
    assert errors_in(after) == errors_in(before)


def errors_in(figures: dict[str, float]) -> dict[str, float]:
    return {n: v for n, v in figures.items() if n.startswith("turnwire_upstream_errors_total")}
