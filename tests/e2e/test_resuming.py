"""Coming back to a stream: from every place, during the turn, after it, after a restart."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.service.client import TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.sse import Frame
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def own_service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    """A service that these tests may restart."""
    with ServiceProcess(tmp_path_factory.mktemp("restarted"), upstream_origin) as service:
        yield service


def bytes_of(frames: list[Frame]) -> list[bytes]:
    return [frame.raw for frame in frames]


async def replayed(client: TurnwireClient, turn_id: str, after: int) -> list[bytes]:
    async with client.events(turn_id, after=after) as stream:
        return bytes_of(await stream.rest())


async def test_an_ended_turn_is_replayed_from_every_place(client: TurnwireClient) -> None:
    turn = await client.run("hello")
    whole = bytes_of(await client.log(turn["id"]))
    for after in range(len(whole)):
        assert await replayed(client, turn["id"], after) == whole[after:]


async def test_nothing_left_is_204(client: TurnwireClient) -> None:
    turn = await client.run("hello")
    path = f"/v1/turns/{turn['id']}/events"
    response = await client.http.get(path, params={"after": turn["last_event_id"]})
    assert (response.status_code, response.content) == (204, b"")


async def test_a_running_turn_is_followed_from_every_place(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "one two three four", "hold": {"text:2": scenario.gate("text")}})
    async with client.stream("hello") as stream:
        await stream.until_text("one two ")
        turn_id, so_far = stream.turn_id, len(stream.frames)
    listening = [asyncio.create_task(replayed(client, turn_id, n)) for n in range(so_far + 1)]
    await scenario.release("text")
    tails = await asyncio.gather(*listening)
    whole = bytes_of(await client.log(turn_id))
    assert tails == [whole[n:] for n in range(so_far + 1)]


async def test_a_client_that_drops_and_returns_misses_nothing(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "one two three four", "delay_s": 0.02})
    async with client.stream("hello") as stream:
        await stream.until("message.delta", 2)
    last = stream.frames[-1].id
    async with client.events(stream.turn_id, last_event_id=last) as back:
        await back.rest()
    assert bytes_of(stream.frames) + bytes_of(back.frames) == bytes_of(await client.log(stream.turn_id))


async def test_the_header_wins_over_the_query(client: TurnwireClient) -> None:
    turn = await client.run("hello")
    async with client.events(turn["id"], after=1, last_event_id="3") as stream:
        assert (await anext(stream)).seq == 4
        await stream.rest()


async def test_an_empty_header_is_none(client: TurnwireClient) -> None:
    turn = await client.run("hello")
    async with client.events(turn["id"], after=2, last_event_id="") as stream:
        assert (await anext(stream)).seq == 3
        await stream.rest()


@pytest.mark.parametrize("last", ["-1", "1.5", "nonsense", "999999", "٣"])
async def test_an_id_that_is_none_of_the_log_is_refused(client: TurnwireClient, last: str) -> None:
    turn = await client.run("hello")
    path = f"/v1/turns/{turn['id']}/events"
    response = await client.http.get(path, headers={b"last-event-id": last.encode()})
    assert (response.status_code, response.json()["code"]) == (400, "invalid_event_id")


async def test_an_id_beyond_a_running_turns_log_is_refused(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "late", "hold": scenario.gate("headers")})
    turn = await client.start("hello")
    await scenario.held("headers")
    response = await client.http.get(f"/v1/turns/{turn['id']}/events", params={"after": 500})
    assert response.json()["code"] == "invalid_event_id"
    await scenario.release("headers")
    await client.ended(turn["id"])


async def test_events_come_as_json_in_pages(client: TurnwireClient) -> None:
    turn = await client.run("hello")
    whole = [frame.data for frame in await client.log(turn["id"])]
    path, headers = f"/v1/turns/{turn['id']}/events", {"accept": "application/json"}
    first = await client.http.get(path, params={"limit": 3}, headers=headers)
    rest = await client.http.get(path, params={"after": 3}, headers=headers)
    assert first.json() == {"events": whole[:3], "has_more": True}
    assert rest.json() == {"events": whole[3:], "has_more": False}


@pytest.mark.parametrize("limit", ["0", "1001", "many"])
async def test_a_page_out_of_bounds_is_refused(client: TurnwireClient, limit: str) -> None:
    turn = await client.run("hello")
    path, headers = f"/v1/turns/{turn['id']}/events", {"accept": "application/json"}
    assert (await client.http.get(path, params={"limit": limit}, headers=headers)).status_code == 422


async def test_fifty_listeners_of_one_turn_each_get_all_of_it(
    client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "one two three four", "hold": {"text:1": scenario.gate("text")}})
    turn = await client.start("hello")
    await scenario.held("text")
    listening = [asyncio.create_task(replayed(client, turn["id"], 0)) for _ in range(50)]
    await scenario.release("text")
    logs = await asyncio.gather(*listening)
    assert all(log == logs[0] for log in logs)


async def test_when_one_listener_leaves_the_others_stay(client: TurnwireClient, scenario: Scenario) -> None:
    await scenario.script({"text": "one two three four", "hold": {"text:2": scenario.gate("text")}})
    turn = await client.start("hello")
    async with client.events(turn["id"]) as staying:
        async with client.events(turn["id"]) as leaving:
            await leaving.until_text("one two ")
        await scenario.release("text")
        await staying.rest()
    assert staying.text == "one two three four"
    assert staying.types[-1] == "turn.completed"


async def test_an_unknown_turn_is_404(client: TurnwireClient) -> None:
    response = await client.http.get("/v1/turns/turn_unknown/events")
    assert (response.status_code, response.json()["code"]) == (404, "not_found")


async def test_an_ended_turn_is_replayed_after_a_restart_byte_for_byte(
    own_service: ServiceProcess, scenario: Scenario
) -> None:
    client = TurnwireClient(own_service.base_url, model=scenario.model)
    turn = await client.run("hello")
    whole = bytes_of(await client.log(turn["id"]))
    await client.aclose()
    own_service.restart()
    client = TurnwireClient(own_service.base_url, model=scenario.model)
    for after in range(len(whole)):
        assert await replayed(client, turn["id"], after) == whole[after:]
    path = f"/v1/turns/{turn['id']}/events"
    assert (await client.http.get(path, params={"after": len(whole)})).status_code == 204
    assert (await client.http.get(path, params={"after": "-1"})).status_code == 400
    assert await client.turn(turn["id"]) == turn | {"input": "hello"}
    await client.aclose()
