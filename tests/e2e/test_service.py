"""Health, metrics, logs, documents."""

import pytest

from tests.bounds import until
from tests.service.client import TurnwireClient
from tests.service.process import ServiceProcess
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio


async def test_it_says_that_it_is_alive_and_ready(client: TurnwireClient) -> None:
    alive = await client.http.get("/healthz")
    ready = await client.http.get("/readyz")
    deep = await client.http.get("/readyz", params={"deep": 1})
    assert [r.status_code for r in (alive, ready, deep)] == [200, 200, 200]


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/metrics", "/"])
async def test_its_documents_are_there(client: TurnwireClient, path: str) -> None:
    response = await client.http.get(path)
    head = await client.http.head(path)
    assert response.status_code == head.status_code == 200
    assert response.content
    assert head.content == b""


async def test_an_ended_turn_writes_one_line_to_the_log(
    client: TurnwireClient, service: ServiceProcess, scenario: Scenario
) -> None:
    turn = await client.run("hello")
    (entry,) = service.wait_logged("turn.ended", turn_id=turn["id"])
    assert entry["conversation_id"] == turn["conversation_id"]
    assert (entry["caller"], entry["agent"], entry["status"]) == ("anonymous", "plain", "completed")
    assert (entry["model"], entry["code"]) == (scenario.model, None)
    assert entry["usage"]["total_tokens"] == 18
    assert entry["request_id"]


async def test_what_was_said_is_not_in_the_log(client: TurnwireClient, service: ServiceProcess) -> None:
    turn = await client.run("a secret about kelp")
    service.wait_logged("turn.ended", turn_id=turn["id"])
    assert not [line for line in service.log if "a secret about kelp" in line]
    assert turn["status"] == "completed"


async def test_metrics_count_turns(client: TurnwireClient) -> None:
    await client.run("hello")
    text = (await client.http.get("/metrics")).text
    assert [line for line in text.splitlines() if "turns" in line and 'status="completed"' in line]


async def test_files_and_threads_return_to_where_they_were(
    client: TurnwireClient, service: ServiceProcess, scenario: Scenario
) -> None:
    for _ in range(20):
        await client.run("hello")
    files = service.open_files()
    for _ in range(30):
        async with client.stream("hello") as stream:
            await anext(stream)
        await client.ended(stream.turn_id)
    await until(lambda: service.open_files() <= files + 10)
