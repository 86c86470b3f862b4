"""Small pieces of a body are taken where they arrive, in order; everything else is the waiting task's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

import aiohttp
import pytest

from app.runtime.models.arrivals import SMALL_BYTES, Arrivals, Connection, Connector
from tests.runtime.models.loopback import Answer, Loopback

pytestmark = pytest.mark.anyio

BOUND_S = 5
PIECES = [f"<{n}>".encode() * 3 for n in range(40)]
LARGE = b"x" * (SMALL_BYTES + 1)


def in_pieces(pieces: list[bytes], **options: object) -> Answer:
    ends = [sum(map(len, pieces[: n + 1])) for n in range(len(pieces) - 1)]
    return Answer(b"".join(pieces), cuts=ends, **options)  # type: ignore[arg-type]


@asynccontextmanager
async def asked(
    *answers: Answer, connector: type[aiohttp.TCPConnector] = Connector
) -> AsyncIterator[aiohttp.ClientResponse]:
    async with Loopback(*answers) as server, aiohttp.ClientSession(connector=connector()) as client:
        response = await client.post(server.url, data=b"{}")
        try:
            yield response
        finally:
            response.close()


async def whole(response: aiohttp.ClientResponse, taken: list[bytes], woken: list[bytes]) -> None:
    def take(piece: bytes) -> bool:
        taken.append(piece)
        return True

    arrivals = Arrivals(response)
    async with asyncio.timeout(BOUND_S):
        while piece := await arrivals.untaken(take):
            woken.append(piece)
            taken.append(piece)


@pytest.mark.parametrize("chunked", [True, False])
async def test_small_pieces_wake_no_task(chunked: bool) -> None:
    tasks: list[object] = []

    def take(piece: bytes) -> bool:
        tasks.append(asyncio.current_task())
        taken.append(piece)
        return True

    taken: list[bytes] = []
    async with asked(in_pieces(PIECES, chunked=chunked)) as response, asyncio.timeout(BOUND_S):
        arrivals = Arrivals(response)
        first = await arrivals.untaken(take)
        rest = await arrivals.untaken(take) if first else b""
    assert first + b"".join(taken) == b"".join(PIECES)
    assert rest == b""
    assert len(tasks) > len(PIECES) / 2
    assert set(tasks) == {None}


async def test_what_is_taken_sees_the_context_of_who_waits() -> None:
    known: ContextVar[str] = ContextVar("known", default="")
    seen: set[str] = set()

    def take(piece: bytes) -> bool:
        seen.add(known.get())
        return True

    async with asked(in_pieces(PIECES)) as response, asyncio.timeout(BOUND_S):
        known.set("yes")
        while await Arrivals(response).untaken(take):
            pass
    assert seen == {"yes"}


async def test_large_pieces_are_the_tasks_and_all_come_in_order() -> None:
    pieces = [b"one", LARGE, b"two", b"three", LARGE * 300, b"four", LARGE]
    taken: list[bytes] = []
    woken: list[bytes] = []
    async with asked(in_pieces(pieces)) as response:
        await whole(response, taken, woken)
    assert b"".join(taken) == b"".join(pieces)
    assert sum(map(len, woken)) >= len(LARGE) * 302


async def test_who_wants_no_more_is_asked_no_more() -> None:
    taken: list[bytes] = []

    def take(piece: bytes) -> bool:
        taken.append(piece)
        return False

    async with asked(Answer(b"first", end="hang")) as response, asyncio.timeout(BOUND_S):
        await response.content.readany()
        waiting = asyncio.create_task(Arrivals(response).untaken(take))
        await asyncio.sleep(0)
        protocol = connection_of(response)
        protocol.data_received(b"6\r\nsecond\r\n")
        protocol.data_received(b"5\r\nthird\r\n")
        assert await waiting == b""
        assert taken == [b"second"]
        assert await response.content.readany() == b"third"


async def test_what_take_raises_is_the_tasks_and_the_connection_is_left_alone() -> None:
    def take(piece: bytes) -> bool:
        raise LookupError("no")

    async with asked(Answer(b"first", end="hang")) as response, asyncio.timeout(BOUND_S):
        await response.content.readany()
        waiting = asyncio.create_task(Arrivals(response).untaken(take))
        await asyncio.sleep(0)
        connection_of(response).data_received(b"6\r\nsecond\r\n")
        with pytest.raises(LookupError):
            await waiting
        assert connection_of(response).on_arrival is None


async def test_a_cancelled_wait_takes_nothing_any_more() -> None:
    taken: list[bytes] = []

    def take(piece: bytes) -> bool:
        taken.append(piece)
        return True

    async with asked(Answer(b"first", end="hang")) as response, asyncio.timeout(BOUND_S):
        await response.content.readany()
        waiting = asyncio.create_task(Arrivals(response).untaken(take))
        await asyncio.sleep(0)
        waiting.cancel()
        protocol = connection_of(response)
        protocol.data_received(b"6\r\nsecond\r\n")
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (taken, protocol.on_arrival) == ([], None)


async def test_a_cut_is_told_to_who_waits() -> None:
    async with asked(Answer(b"first", end="reset")) as response, asyncio.timeout(BOUND_S):
        with pytest.raises(aiohttp.ClientPayloadError):
            await whole(response, [], [])


async def test_a_body_that_ends_with_its_connection_ends() -> None:
    taken: list[bytes] = []
    async with asked(Answer(b"all there is", headers={"connection": "close"}, chunked=False)) as response:
        await whole(response, taken, [])
    assert b"".join(taken) == b"all there is"


async def test_connections_of_another_kind_are_read_as_ever() -> None:
    taken: list[bytes] = []
    woken: list[bytes] = []
    async with asked(in_pieces(PIECES), connector=aiohttp.TCPConnector) as response:
        assert not isinstance(connection_of(response), Connection)
        await whole(response, taken, woken)
    assert b"".join(woken) == b"".join(PIECES) == b"".join(taken)


def connection_of(response: aiohttp.ClientResponse) -> Connection:
    assert response.connection is not None
    protocol = response.connection.protocol
    assert protocol is not None
    return protocol  # type: ignore[return-value]
