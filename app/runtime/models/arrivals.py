"""The body of an answer, its small pieces taken where they arrive.

`StreamReader.readany` wakes a task for each read. On a paced stream, where each read is one small frame, the
wake-up costs as much as all that is done with the frame: so the connection tells whoever waits for a body that
some of it has come, and what is small is taken then and there. What is large is for the task: the loop has
others to serve in between.
"""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage

SMALL_BYTES: Final = 4096

Take = Callable[[bytes], bool]
"""Takes a piece; False if none is wanted after it."""


class Connection(ResponseHandler):
    """A connection that says when it was given something, and when it was lost.

    It ends by what a server says unasked: aiohttp would keep it for the next request, and take what was said
    for the answer, one turn's for another's.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.on_arrival: Callable[[], None] | None = None
        self._is_answered = False
        self._is_free = False
        self.was_paused = False

    def set_response_params(self, **params: Any) -> None:
        """A request is about to be sent."""
        self._is_answered = self._is_free = self.was_paused = False
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if data and self._is_free:
            self.close()
            return
        super().data_received(data)
        if data and self.on_arrival is not None:
            self.on_arrival()

    def feed_data(self, data: tuple[RawResponseMessage, aiohttp.StreamReader], size: int = 0) -> None:
        """The head of an answer has come, and maybe all of it."""
        message, body = data
        if self._is_answered:
            self.close()
            return
        super().feed_data(data, size)
        if message.code >= HTTPStatus.OK:
            self._is_answered = True
            body.on_eof(self._freed)

    def _freed(self) -> None:
        self._is_free = True

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self.on_arrival is not None:
            self.on_arrival()

    def pause_reading(self) -> None:
        self.was_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Readers call it for each piece they hand out, paused or not: for nothing, where reading never was. A
        parser that was told to pause may stop later than it was told, and goes on by this alone."""
        if self.was_paused:
            super().resume_reading(resume_parser)


class Connector(aiohttp.TCPConnector):
    """Makes such connections. Where aiohttp makes others, bodies are read as they are read elsewhere."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = cast("partial[ResponseHandler]", partial(Connection, loop=self._loop))


class Arrivals:
    """The body of one answer, for one reader."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._content = response.content
        protocol = response.connection.protocol if response.connection is not None else None
        self._connection = protocol if isinstance(protocol, Connection) else None
        self._ended = False
        self._content.on_eof(self._end)

    async def untaken(self, take: Take) -> bytes:
        """What comes next, as `StreamReader.readany` gives it, but for the small pieces that come until then:
        those are given to `take`. Empty at the body's end, and once `take` wants no more.

        Raises what `take` raises, and what reading does.
        """
        if self._connection is None:
            return await self._content.readany()
        piece = self._content.read_nowait()
        if piece or self._ended:
            return piece
        self._check_connected()
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        arrived = partial(self._arrived, self._connection, take, waiting)
        self._connection.on_arrival = partial(copy_context().run, arrived)
        try:
            return await waiting
        finally:
            self._connection.on_arrival = None

    def _arrived(self, connection: Connection, take: Take, waiting: asyncio.Future[bytes]) -> None:
        """What `take` does may cancel the wait. Where the parser was told to pause, reading lets it go on, and
        may leave something to read."""
        try:
            while not waiting.done():
                piece = self._content.read_nowait()
                if len(piece) > SMALL_BYTES:
                    waiting.set_result(piece)
                elif piece and not take(piece):
                    _wake(waiting)
                elif piece and connection.was_paused:
                    continue
                elif self._ended:
                    _wake(waiting)
                else:
                    if not piece:
                        self._check_connected()
                    return
        except Exception as error:  # noqa: BLE001 - it is the waiting task's
            if not waiting.done():
                waiting.set_exception(error)

    def _check_connected(self) -> None:
        """Raises if nothing more can come. aiohttp tells nobody whose session was closed meanwhile."""
        if self._connection is not None and not self._connection.connected:
            raise aiohttp.ClientConnectionError("the connection was closed")

    def _end(self) -> None:
        self._ended = True


def _wake(waiting: asyncio.Future[bytes]) -> None:
    if not waiting.done():
        waiting.set_result(b"")
