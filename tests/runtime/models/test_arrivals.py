"""Small pieces of a body are taken where they arrive, in order; everything else is the waiting task's."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import aiohttp
import pytest

from app.runtime.models.arrivals import SMALL_BYTES, Arrivals, Connection, Connector, Take
from tests.bounds import BOUND_S, until
from tests.runtime.models.loopback import Answer, Loopback

pytestmark = pytest.mark.anyio

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


@asynccontextmanager
async def half_read() -> AsyncIterator[aiohttp.ClientResponse]:
    """Of its body, the one piece that the server sends was read."""
    async with asked(Answer(b"first", end="hang")) as response, asyncio.timeout(BOUND_S):
        await response.content.readany()
        yield response


async def begun(response: aiohttp.ClientResponse, take: Take) -> asyncio.Task[bytes]:
    """A wait for the next piece, which has begun."""
    waiting = asyncio.create_task(Arrivals(response).untaken(take))
    await until(lambda: connection_of(response).on_arrival is not None)
    return waiting


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

    async with half_read() as response:
        waiting = await begun(response, take)
        protocol = connection_of(response)
        protocol.data_received(b"6\r\nsecond\r\n")
        protocol.data_received(b"5\r\nthird\r\n")
        assert await waiting == b""
        assert taken == [b"second"]
        assert await response.content.readany() == b"third"


async def test_what_take_raises_is_the_tasks_and_the_connection_is_left_alone() -> None:
    def take(piece: bytes) -> bool:
        raise LookupError("no")

    async with half_read() as response:
        waiting = await begun(response, take)
        connection_of(response).data_received(b"6\r\nsecond\r\n")
        with pytest.raises(LookupError):
            await waiting
        assert connection_of(response).on_arrival is None


async def test_a_cancelled_wait_takes_nothing_any_more() -> None:
    taken: list[bytes] = []

    def take(piece: bytes) -> bool:
        taken.append(piece)
        return True

    async with half_read() as response:
        waiting = await begun(response, take)
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


async def test_who_is_cancelled_by_what_it_takes_is_cancelled_and_the_connection_is_left_alone() -> None:
    async with half_read() as response:
        waiting: asyncio.Task[bytes]

        def take(piece: bytes) -> bool:
            waiting.cancel()
            return False

        waiting = await begun(response, take)
        connection_of(response).data_received(b"6\r\nsecond\r\n")
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert connection_of(response).is_connected()


@pytest.mark.parametrize("count", range(16_382, 16_388))
async def test_a_flood_of_tiny_chunks_loses_nothing_once_reading_was_paused(count: int) -> None:
    """The parser that was told to pause behind the last of them stops when the next one comes."""
    taken: list[bytes] = []
    woken: list[bytes] = []
    async with asked(Answer(b"first", end="hang")) as response:
        reading = asyncio.create_task(whole(response, taken, woken))
        protocol = connection_of(response)
        await until(lambda: protocol.on_arrival is not None)
        protocol.data_received(b"1\r\nx\r\n" * count)
        await asyncio.sleep(0.01)
        protocol.data_received(b"4\r\nlast\r\n5\r\nindee\r\n0\r\n\r\n")
        await reading
    assert b"".join(taken) == b"first" + b"x" * count + b"lastindee"


async def test_a_body_whose_session_is_closed_is_cut() -> None:
    async with Loopback(Answer(b"first", end="hang")) as server, asyncio.timeout(BOUND_S):
        client = aiohttp.ClientSession(connector=Connector())
        response = await client.post(server.url, data=b"{}")
        await response.content.readany()
        waiting = await begun(response, lambda piece: True)
        await client.close()
        with pytest.raises(aiohttp.ClientError):
            await waiting
        response.close()


HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
UNASKED = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong"
RIGHT = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nright"


@dataclass
class Raw:
    """A server that says these pieces of bytes to each request, apart on the network."""

    answers: list[list[bytes]]
    connections: int = 0
    said: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
            while await reader.readuntil(b"\r\n\r\n"):
                self.said.clear()
                for piece in self.answers.pop(0):
                    writer.write(piece)
                    await asyncio.sleep(0.01)
                self.said.set()


async def read_from(server: Raw, times: int) -> list[bytes]:
    """What as many requests get, one after the other."""
    listening = await asyncio.start_server(server.connected, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    read = []
    async with listening, asyncio.timeout(BOUND_S):
        async with aiohttp.ClientSession(connector=Connector()) as client:
            for _ in range(times):
                async with client.get(url) as response:
                    read.append(await response.content.read())
                await server.said.wait()
        await asyncio.gather(*server.tasks)
    return read


@pytest.mark.parametrize(
    "pieces",
    [
        [RIGHT, UNASKED],
        [RIGHT, UNASKED[:9]],
        [RIGHT, b"\r\n"],
        [RIGHT[:-1], RIGHT[-1:] + UNASKED],
        [RIGHT + UNASKED],
    ],
)
async def test_what_a_server_says_unasked_answers_nobody(pieces: list[bytes]) -> None:
    assert await read_from(Raw([pieces, [RIGHT]]), 2) == [b"right", b"right"]


async def test_what_is_said_before_an_answer_ends_no_connection() -> None:
    server = Raw([[HINTS, HINTS, RIGHT[:-2], RIGHT[-2:]]] * 3)
    assert await read_from(server, 3) == [b"right"] * 3
    assert server.connections == 1


def connection_of(response: aiohttp.ClientResponse) -> Connection:
    assert response.connection is not None
    protocol = response.connection.protocol
    assert protocol is not None
    return protocol  # type: ignore[return-value]
