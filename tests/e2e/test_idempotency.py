"""The same key, the same turn: whatever happened to the first answer."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.service.client import TurnwireClient
from tests.service.process import ServiceProcess
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio


@pytest.fixture
def key(scenario: Scenario) -> dict[str, str]:
    return {"idempotency-key": scenario.gate("key")}


async def test_the_same_request_again_is_the_same_turn_replayed(
    client: TurnwireClient, scenario: Scenario, key: dict[str, str]
) -> None:
    async with client.stream("hello", headers=key) as first:
        await first.rest()
    async with client.stream("hello", headers=key) as second:
        await second.rest()
    assert first.raw == second.raw
    assert first.turn_id == second.turn_id
    assert len(await scenario.requests()) == 1


async def test_a_client_that_posts_again_while_the_turn_runs_attaches(
    client: TurnwireClient, scenario: Scenario, key: dict[str, str]
) -> None:
    await scenario.script({"text": "one two three", "hold": {"text:2": scenario.gate("text")}})
    async with client.stream("hello", headers=key) as first:
        await first.until_text("one two ")
    last = {"last-event-id": first.frames[-1].id}
    async with client.stream("hello", headers=key | last) as second:
        await scenario.release("text")
        await second.rest()
    whole = [frame.raw for frame in await client.log(first.turn_id)]
    assert [f.raw for f in first.frames + second.frames] == whole
    assert len(await scenario.requests()) == 1


async def test_many_at_once_are_one_turn(
    client: TurnwireClient, scenario: Scenario, key: dict[str, str]
) -> None:
    answers = await asyncio.gather(*(client.post("hello", headers=key) for _ in range(10)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(await scenario.requests()) == 1


async def test_the_answer_may_be_of_another_kind(client: TurnwireClient, key: dict[str, str]) -> None:
    async with client.stream("hello", headers=key) as stream:
        await stream.rest()
    turn = (await client.post("hello", headers=key)).json()
    text = await client.post("hello", headers=key, accept="text/plain")
    assert turn["id"] == stream.turn_id == text.headers["x-turn-id"]
    assert text.text.strip() == turn["output_text"] == "All good."


async def test_the_key_stands_for_one_body(
    client: TurnwireClient, scenario: Scenario, key: dict[str, str]
) -> None:
    await client.post("hello", headers=key)
    body = await client.post("goodbye", headers=key)
    path = await client.post("hello", headers=key, conversation=scenario.gate("elsewhere"))
    for response in (body, path):
        assert (response.status_code, response.json()["code"]) == (422, "idempotency_key_reused")
    assert len(await scenario.requests()) == 1


async def test_the_order_of_the_bodys_fields_does_not_matter(
    client: TurnwireClient, key: dict[str, str]
) -> None:
    body = client.body("hello", metadata={"a": "1"})
    first = await client.http.post("/v1/turns", json=body, headers=key | {"accept": "application/json"})
    turned = dict(reversed(body.items()))
    second = await client.http.post("/v1/turns", json=turned, headers=key | {"accept": "application/json"})
    assert first.json()["id"] == second.json()["id"]


async def test_nothing_left_is_204(client: TurnwireClient, key: dict[str, str]) -> None:
    turn = (await client.post("hello", headers=key)).json()
    headers = key | {"last-event-id": str(turn["last_event_id"])}
    response = await client.post("hello", headers=headers, accept="text/event-stream")
    assert (response.status_code, response.content) == (204, b"")


async def test_a_refused_request_leaves_no_key(client: TurnwireClient, key: dict[str, str]) -> None:
    refused = await client.post("hello", headers=key, agent="nobody")
    taken = await client.post("hello", headers=key)
    assert (refused.status_code, taken.status_code) == (404, 200)


async def test_a_last_event_id_without_a_known_key_starts_nothing(
    client: TurnwireClient, scenario: Scenario, key: dict[str, str]
) -> None:
    unknown = await client.post("hello", headers=key | {"last-event-id": "3"})
    keyless = await client.post("hello", headers={"last-event-id": "3"})
    for response in (unknown, keyless):
        assert (response.status_code, response.json()["code"]) == (400, "invalid_event_id")
    assert await scenario.requests() == []


async def test_the_key_is_looked_up_before_a_conflict(
    client: TurnwireClient, scenario: Scenario, key: dict[str, str]
) -> None:
    await scenario.script({"text": "one two", "hold": {"text:1": scenario.gate("text")}})
    conversation = scenario.gate("chat")
    turn = await client.start("hello", conversation=conversation, headers=key)
    await scenario.held("text")
    again = await client.start("hello", conversation=conversation, headers=key)
    assert again["id"] == turn["id"]
    await scenario.release("text")


@pytest.fixture
def own_service(tmp_path_factory: pytest.TempPathFactory, upstream_origin: str) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("keys"), upstream_origin) as service:
        yield service


async def test_a_key_outlives_a_crash(
    own_service: ServiceProcess, scenario: Scenario, key: dict[str, str]
) -> None:
    client = TurnwireClient(own_service.base_url, model=scenario.model)
    async with client.stream("hello", headers=key) as first:
        await first.rest()
    await client.aclose()
    own_service.restart()
    client = TurnwireClient(own_service.base_url, model=scenario.model)
    async with client.stream("hello", headers=key) as second:
        await second.rest()
    reused = await client.post("goodbye", headers=key)
    await client.aclose()
    assert second.raw == first.raw
    assert reused.json()["code"] == "idempotency_key_reused"
