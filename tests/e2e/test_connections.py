"""Clients as the network makes them: gone without a word, not reading, of another age."""

import asyncio
import random

import pytest

from tests.bounds import BOUND_S
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.raw import raw_connection
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
STREAM = {"accept": "text/event-stream"}
LAST_CHUNK = b"\r\n0\r\n\r\n"
MUCH = 8_000_000
"""More than all buffers between the service and a client hold."""


async def test_a_clean_end_is_a_last_chunk_right_after_the_last_frame(
    client: TurnwireClient, service: ServiceProcess
) -> None:
    async with asyncio.timeout(BOUND_S), raw_connection(service.address) as connection:
        await connection.send("POST", "/v1/turns", body=client.body("hello"), headers=STREAM)
        head = (await connection.head()).lower()
        stream = await connection.until(LAST_CHUNK)
    assert b"transfer-encoding: chunked" in head
    assert stream.endswith(b"}\n\n" + LAST_CHUNK)
    assert stream.count(b"event: turn.completed\n") == 1


async def test_a_client_of_http_1_0_gets_the_same_stream(
    client: TurnwireClient, service: ServiceProcess
) -> None:
    turn = await client.run("hello")
    path = f"/v1/turns/{turn['id']}/events"
    async with asyncio.timeout(BOUND_S), raw_connection(service.address) as connection:
        await connection.send("GET", path, version="1.0")
        head = (await connection.head()).lower()
        stream = await connection.rest()
    assert b"transfer-encoding" not in head
    assert stream == b"".join(frame.raw for frame in await client.log(turn["id"]))


async def test_clients_that_reset_at_any_moment_leave_nothing_behind(
    client: TurnwireClient, service: ServiceProcess, scenario: Scenario
) -> None:
    await many_resets(client, service, scenario, 1)
    files, threads = service.open_files(), service.threads()
    await many_resets(client, service, scenario, 2)
    service.check_log()
    assert service.open_files() <= files + 5
    assert service.threads() <= threads + 20  # pools grow to their bounds, not with the clients


async def many_resets(client: TurnwireClient, service: ServiceProcess, scenario: Scenario, times: int) -> None:
    """Forty clients at once; returns when all their turns have ended. `times` counts the calls."""
    await scenario.script(*[{"text": "one two three four five", "delay_s": 0.01}] * 40)
    await asyncio.gather(*(reset_somewhere(service, client.body("hello")) for _ in range(40)))
    await scenario.control.wait(f"ended:{40 * times}", model=scenario.model)


async def reset_somewhere(service: ServiceProcess, body: JsonObject) -> None:
    async with asyncio.timeout(BOUND_S), raw_connection(service.address) as connection:
        await connection.send("POST", "/v1/turns", body=body, headers=STREAM)
        await connection.reader.read(random.randint(1, 2000))
        connection.reset()


async def test_a_listener_that_does_not_read_slows_nobody(
    client: TurnwireClient, service: ServiceProcess, scenario: Scenario
) -> None:
    await scenario.script({"text": "x" * MUCH, "chunks": 200})
    turn = await client.start("hello")
    async with raw_connection(service.address, small=True) as deaf:
        await deaf.send("GET", f"/v1/turns/{turn['id']}/events")
        deaf.stop_reading()
        async with asyncio.timeout(BOUND_S):
            ended = await client.ended(turn["id"])
    assert (ended["status"], len(ended["output_text"])) == ("completed", MUCH)


async def test_a_listener_that_does_not_read_is_cut_and_can_come_back(
    hasty_service: ServiceProcess, hasty_client: TurnwireClient, scenario: Scenario
) -> None:
    await scenario.script({"text": "x" * MUCH, "chunks": 200})
    turn = await hasty_client.run("hello")
    handles = hasty_service.open_files()
    async with asyncio.timeout(BOUND_S), raw_connection(hasty_service.address, small=True) as deaf:
        await deaf.send("GET", f"/v1/turns/{turn['id']}/events")
        await deaf.head()
        deaf.stop_reading()
        while hasty_service.open_files() > handles:
            await hasty_client.http.get("/healthz")
        deaf.read_on()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await deaf.until(LAST_CHUNK)
    async with hasty_client.events(turn["id"], after=turn["last_event_id"] - 1) as stream:
        assert (await anext(stream)).type == "turn.completed"


async def test_a_head_request_is_a_get_without_a_body(client: TurnwireClient, service: ServiceProcess) -> None:
    turn = await client.run("hello")
    for path in (f"/v1/turns/{turn['id']}", f"/v1/turns/{turn['id']}/events", "/healthz"):
        async with asyncio.timeout(BOUND_S), raw_connection(service.address) as connection:
            await connection.send("HEAD", path, headers={"connection": "close"})
            answer = await connection.rest()
        assert answer.startswith(b"HTTP/1.1 200"), path
        assert answer.endswith(b"\r\n\r\n"), path


async def test_two_requests_in_one_write_get_two_answers(
    client: TurnwireClient, service: ServiceProcess
) -> None:
    async with asyncio.timeout(BOUND_S), raw_connection(service.address) as connection:
        await connection.send("GET", "/healthz")
        await connection.send("GET", "/readyz", headers={"connection": "close"})
        answers = await connection.rest()
    assert answers.count(b"HTTP/1.1 200") == 2
