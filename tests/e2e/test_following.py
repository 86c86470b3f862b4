"""The conversation's stream, for a second tab: the turn under way, then every later one, each log whole."""

import pytest

from tests.service.client import TurnwireClient
from tests.service.sse import EventStream
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio


async def until_ends(stream: EventStream, count: int) -> None:
    await stream.until("turn.completed", count)


async def log_ids(client: TurnwireClient, turn_id: str) -> list[str]:
    return [f"{turn_id}:{frame.seq}" for frame in await client.log(turn_id)]


async def test_the_turn_under_way_is_shown_from_its_start_then_the_next(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "one two", "hold": {"text:1": scenario.gate("text")}})
    first = await client.start("hello")
    await scenario.held("text")
    async with client.follow(first["conversation_id"]) as stream:
        assert (await anext(stream)).id == f"{first['id']}:1"
        await scenario.release("text")
        await until_ends(stream, 1)
        second = await client.run("again", conversation=first["conversation_id"])
        await until_ends(stream, 2)
    expected = await log_ids(client, first["id"]) + await log_ids(client, second["id"])
    assert [frame.id for frame in stream.frames] == expected


async def test_what_has_ended_before_is_not_shown_again(client: TurnwireClient, scenario: Scenario) -> None:
    old = await client.run("hello")
    async with client.follow(old["conversation_id"]) as stream:
        new = await client.run("again", conversation=old["conversation_id"])
        await until_ends(stream, 1)
    assert {frame.data["turn_id"] for frame in stream.frames} == {new["id"]}


async def test_a_tab_that_comes_back_goes_on_after_its_last_event(
    client: TurnwireClient, scenario: Scenario
) -> None:
    first = await client.run("hello")
    second = await client.run("again", conversation=first["conversation_id"])
    async with client.follow(first["conversation_id"], last_event_id=f"{first['id']}:2") as stream:
        await until_ends(stream, 2)
    expected = (await log_ids(client, first["id"]))[2:] + await log_ids(client, second["id"])
    assert [frame.id for frame in stream.frames] == expected


async def test_queued_turns_are_shown_one_after_the_other(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "one two", "hold": {"text:1": scenario.gate("text")}})
    first = await client.start("hello")
    await scenario.held("text")
    conversation = first["conversation_id"]
    second = await client.start("second", conversation=conversation, on_conflict="enqueue")
    async with client.follow(conversation) as stream:
        await stream.until("message.delta")
        await scenario.release("text")
        await until_ends(stream, 2)
    turn_ids = [frame.data["turn_id"] for frame in stream.frames]
    assert turn_ids == sorted(turn_ids, key=[first["id"], second["id"]].index)


@pytest.mark.parametrize("last", ["nonsense", "turn_unknown:1", ":1", "5"])
async def test_an_unknown_place_is_refused(client: TurnwireClient, last: str) -> None:
    turn = await client.run("hello")
    path = f"/v1/conversations/{turn['conversation_id']}/events"
    response = await client.http.get(path, headers={"last-event-id": last})
    assert (response.status_code, response.json()["code"]) == (400, "invalid_event_id")


async def test_an_unknown_conversation_is_404(client: TurnwireClient) -> None:
    assert (await client.http.get("/v1/conversations/nobody/events")).status_code == 404
