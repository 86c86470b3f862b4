"""Clients that drop, stall, flood and never finish: what they get, and that nothing of them stays behind."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from tests.bounds import BOUND_S
from tests.service.client import JsonObject, TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.raw import RawConnection, raw_connection
from tests.upstream.client import Scenario

pytestmark = pytest.mark.anyio
STREAM = {"accept": "text/event-stream"}
FIRST_BYTES = 2000
CONNECTS = 1000
LISTENERS = 200
AT_ONCE = 50
DEAF = 150
HELD_AT_MOST = 2_000_000
"""For each that reads nothing: half of what there is to read, and a good part of it is the turn's own."""
MUCH = 4_000_000
"""More than all buffers between the service and a client hold."""
KEPT_AT_MOST = 1_200_000
"""For each that read nothing, once it is gone: the store's caches have filled, and free memory is in pieces."""
SETTLED_WITHIN_S, ASK_AGAIN_S = 15, 0.1
ROUNDS = 4
STARTED = 'turnwire_turns_started_total{agent="plain"}'
SPARE_FILES, SPARE_THREADS, SPARE_BYTES = 10, 4, 24 * 1024 * 1024
"""What may remain: connections kept for the next request, caches that fill."""


@pytest.fixture(scope="module")
def pestered_service(
    tmp_path_factory: pytest.TempPathFactory, upstream_origin: str
) -> Iterator[ServiceProcess]:
    """A service of its own: its memory, tasks, threads and files are counted."""
    folder = tmp_path_factory.mktemp("pestered-service")
    limits = {"TURNWIRE_LISTENER_STALL_S": 1, "TURNWIRE_HEARTBEAT_S": 1}
    with ServiceProcess(folder, upstream_origin, **limits) as service:
        yield service
        service.check_log()


@pytest.fixture
async def client(pestered_service: ServiceProcess, scenario: Scenario) -> AsyncIterator[TurnwireClient]:
    client = TurnwireClient(pestered_service.base_url, model=scenario.model)
    yield client
    await client.aclose()


async def leaves_nothing_behind(
    service: ServiceProcess,
    client: TurnwireClient,
    doing: Callable[[], Awaitable[object]],
    *,
    within_s: float = SETTLED_WITHIN_S,
) -> None:
    """Memory, tasks, threads and files return to where they were, in a moment's time.

    Memory alone may grow in some rounds, not in each: the store's caches fill, and the allocator keeps what was
    freed, or gives it back just before it is looked at and takes it again. What leaks, leaks each time.
    """
    for _ in range(ROUNDS):
        await asyncio.gather(*(client.run("hello") for _ in range(AT_ONCE)))  # what is made once does not count
        before = await footprint(service, client)
        await doing()
        left = await left_of(before, service, client, within_s)
        if set(left) != {"memory"}:
            break
    assert not left


async def left_of(
    before: dict[str, float], service: ServiceProcess, client: TurnwireClient, within_s: float
) -> dict[str, float]:
    """What does not return to where it was, and by how much."""
    left = over(before, await footprint(service, client))
    deadline = asyncio.get_running_loop().time() + within_s
    while left and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(ASK_AGAIN_S)
        left = over(before, await footprint(service, client))
    return left


async def footprint(service: ServiceProcess, client: TurnwireClient) -> dict[str, float]:
    figures = await client.figures()
    return {
        "files": service.open_files(),
        "threads": service.threads(),
        "memory": figures["process_resident_memory_bytes"],
        "tasks": figures["turnwire_tasks"],
        "listeners": figures["turnwire_listeners"],
        "turns": figures["turnwire_turns_running"],
    }


def over(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    """What has grown by more than it may."""
    spare = {"files": SPARE_FILES, "threads": SPARE_THREADS, "memory": SPARE_BYTES}
    return {name: now[name] - before[name] for name in now if now[name] > before[name] + spare.get(name, 0)}


async def at_once(count: int, doing: Callable[[int], Awaitable[None]]) -> None:
    """Do it for 0, 1, … `count` - 1, some side by side."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with gate, asyncio.timeout(BOUND_S):
            await doing(number)

    await asyncio.gather(*(one(number) for number in range(count)))


async def test_what_a_client_leaves_behind_is_seen(
    pestered_service: ServiceProcess, client: TurnwireClient, scenario: Scenario
) -> None:
    """The check of the tests below is not blind: an agent's tool keeps what it was given. The first test, while
    nothing was freed whose return could hide it."""

    async def leak(size: int = 2 * SPARE_BYTES) -> None:
        await scenario.script(
            {"tool_calls": [{"name": "hoards", "arguments": {"size": size}}]}, {"text": "Mine."}
        )
        await client.run("hello", agent="worker")

    with pytest.raises(AssertionError, match="memory"):
        await leaves_nothing_behind(pestered_service, client, leak, within_s=0.5)
    await leak(0)


async def test_a_drop_at_every_byte_of_the_beginning_leaves_nothing(
    pestered_service: ServiceProcess, client: TurnwireClient
) -> None:
    turn = await client.run("hello", metadata={"filling": "x" * 500})
    path = f"/v1/turns/{turn['id']}/events"

    async def drop_after(count: int) -> None:
        async with raw_connection(pestered_service.address) as connection:
            await connection.send("GET", path, headers=STREAM)
            await connection.reader.readexactly(count)
            connection.reset()

    await leaves_nothing_behind(pestered_service, client, lambda: at_once(FIRST_BYTES, drop_after))
    assert (await client.log(turn["id"]))[-1].type == "turn.completed"


async def test_a_thousand_clients_that_connect_and_leave_leave_nothing(
    pestered_service: ServiceProcess, client: TurnwireClient
) -> None:
    async def come_and_go(number: int) -> None:
        async with raw_connection(pestered_service.address) as connection:
            if number % 3 == 1:
                await connection.send("GET", "/healthz")
            elif number % 3 == 2:
                await connection.send_raw(b"POST /v1/turns HTTP/1.1\r\nHost: 127.0")
            if number % 2:
                connection.reset()

    await leaves_nothing_behind(pestered_service, client, lambda: at_once(CONNECTS, come_and_go))


async def test_clients_that_start_turns_and_leave_at_once_leave_whole_turns(
    pestered_service: ServiceProcess, client: TurnwireClient, scenario: Scenario
) -> None:
    body = client.body("hello")

    async def start_and_leave(number: int) -> None:
        async with raw_connection(pestered_service.address) as connection:
            await connection.send("POST", "/v1/turns", body=body, headers=STREAM)
            await connection.head()
            connection.reset()

    await leaves_nothing_behind(pestered_service, client, lambda: at_once(100, start_and_leave))
    page = (await client.http.get("/v1/turns", params={"limit": 100})).json()["data"]
    assert {turn["status"] for turn in page} == {"completed"}


async def test_two_hundred_listeners_of_one_turn_get_the_same_bytes(
    pestered_service: ServiceProcess, client: TurnwireClient, scenario: Scenario
) -> None:
    rounds = itertools.count()

    async def listen(turn: JsonObject) -> bytes:
        async with raw_connection(pestered_service.address) as connection:
            path = f"/v1/turns/{turn['id']}/events"
            await connection.send("GET", path, headers=STREAM | {"connection": "close"})
            await connection.head()
            return await connection.rest()

    async def all_listen() -> None:
        gates = [f"{place}-{next(rounds)}" for place in ("text", "end")]
        held = {"text:1": scenario.gate(gates[0]), "end": scenario.gate(gates[1])}
        await scenario.script({"text": "one two three four five six", "hold": held})
        turn = await client.start("hello")
        async with asyncio.timeout(BOUND_S):
            readers = [asyncio.create_task(listen(turn)) for _ in range(LISTENERS)]
            while (await client.figures())["turnwire_listeners"] < LISTENERS:
                pass
            for gate in gates:
                await scenario.release(gate)
            texts = [frames_of(await reader) for reader in readers]
        assert set(texts) == {b"".join(frame.raw for frame in await client.log(turn["id"]))}

    await leaves_nothing_behind(pestered_service, client, all_listen)


def frames_of(chunked: bytes) -> bytes:
    """The body of a chunked answer, without heartbeats."""
    body = b""
    while chunked:
        size, _, rest = chunked.partition(b"\r\n")
        body += rest[: int(size, 16)]
        chunked = rest[int(size, 16) + 2 :]
    return body.replace(b": ping\n", b"")


async def test_readers_that_stop_cost_bounded_memory_are_cut_and_come_back(
    pestered_service: ServiceProcess, client: TurnwireClient, scenario: Scenario
) -> None:
    talkative = {"text": "x" * MUCH, "chunks": 400, "delay_s": 0.0005}
    await scenario.script(*[talkative] * 3)
    for _ in range(2):
        await client.run("hello")  # what such a turn takes by itself does not count
    before = (await client.figures())["process_resident_memory_bytes"]
    turn = await client.start("hello")
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(DEAF):
            await deaf_listener(stack, pestered_service, turn)
        ended = await client.ended(turn["id"])
        grown = (await client.figures())["process_resident_memory_bytes"] - before
        async with asyncio.timeout(BOUND_S):
            while (await client.figures())["turnwire_listeners"] > 0:
                pass
    assert (ended["status"], len(ended["output_text"])) == ("completed", MUCH)
    assert grown < DEAF * HELD_AT_MOST
    async with asyncio.timeout(BOUND_S):
        while (await client.figures())["process_resident_memory_bytes"] - before > DEAF * KEPT_AT_MOST:
            await client.run("hello")
    async with client.events(turn["id"], after=2) as stream:
        assert (await stream.rest())[-1].type == "turn.completed"
    assert (await client.figures())["turnwire_listener_stalls_total"] >= 1


async def deaf_listener(
    stack: contextlib.AsyncExitStack, service: ServiceProcess, turn: JsonObject
) -> RawConnection:
    connection = await stack.enter_async_context(raw_connection(service.address, small=True))
    await connection.send("GET", f"/v1/turns/{turn['id']}/events", headers=STREAM)
    connection.stop_reading()
    return connection


async def test_a_listener_that_shuts_its_side_is_let_go(
    pestered_service: ServiceProcess, client: TurnwireClient, scenario: Scenario
) -> None:
    """A socket of which one half is gone: it never sends again, and may never read."""
    await scenario.script({"text": "one two", "hold": {"text:1": scenario.gate("text")}})
    turn = await client.start("hello")
    async with raw_connection(pestered_service.address, small=True) as connection, asyncio.timeout(BOUND_S):
        await connection.send("GET", f"/v1/turns/{turn['id']}/events", headers=STREAM)
        await connection.head()
        connection.shut()
        while (await client.figures())["turnwire_listeners"] > 0:
            pass
    await scenario.release("text")
    assert (await client.ended(turn["id"]))["output_text"] == "one two"


async def test_a_post_that_never_finishes_its_body_starts_nothing(
    pestered_service: ServiceProcess, client: TurnwireClient
) -> None:
    whole = json.dumps(client.body("never sent")).encode()
    head = b"POST /v1/turns HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n"

    async def begin_and_leave() -> None:
        before = await client.figures()
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(20):
                connection = await stack.enter_async_context(raw_connection(pestered_service.address))
                await connection.send_raw(head % len(whole) + whole[:-1])
            assert (await client.http.get("/healthz")).status_code == 200
        after = await client.figures()
        assert after[STARTED] == before[STARTED]

    await leaves_nothing_behind(pestered_service, client, begin_and_leave)


@pytest.mark.parametrize("path", ["/v1/turns", "/v1/agents", "/healthz"])
async def test_options_says_what_a_path_can(client: TurnwireClient, path: str) -> None:
    response = await client.http.options(path)
    assert response.status_code in (200, 204, 405)
    assert "GET" in response.headers["allow"]
