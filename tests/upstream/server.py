"""The scripted upstream: a loopback server that speaks both wires and misbehaves on command."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from tests.strict_provider import problems, refusal_body
from tests.upstream.connection import Connection, ConnectionProtocol
from tests.upstream.control import Control
from tests.upstream.http import Request, head_bytes, json_answer, read_request, reset
from tests.upstream.plan import Finish, Head, Hold, Send, Step, Wait, Wire, planned, request_json
from tests.upstream.records import Exchange, Records
from tests.upstream.reply import Reply
from tests.upstream.script import Brain, Scripts

T = TypeVar("T")
WIRES: dict[str, Wire] = {
    "/v1/chat/completions": "chat_completions",
    "/v1/responses": "responses",
    "/v1/responses/compact": "responses",
}
MODELS = {"object": "list", "data": [{"id": "scripted", "object": "model", "created": 1, "owned_by": "tests"}]}
HANG_LIMIT_S = 120


class Upstream:
    """`async with Upstream() as upstream`: serves on `upstream.base_url` until the block ends."""

    def __init__(self, *, port: int = 0, brains: dict[str, Brain] | None = None) -> None:
        self.scripts = Scripts(brains)
        self.records = Records()
        self._control = Control(self.scripts, self.records)
        self._port = port
        self._server: asyncio.Server | None = None
        self._numbers = itertools.count(1)
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None, "the upstream is not started"
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ConnectionProtocol(self._serve), "127.0.0.1", self._port, backlog=1024
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, connection: Connection) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        number = next(self._numbers)
        self.records.connections[number] = True
        try:
            with suppress(ConnectionError):
                while request := await read_request(connection.reader):
                    if not await self._answer(number, request, connection):
                        break
        finally:
            self._connections.discard(task)
            self.records.connections[number] = False
            await self.records.changed()
            connection.writer.close()

    async def _answer(self, number: int, request: Request, connection: Connection) -> bool:
        """Answer one request; True if the connection can take another one."""
        if request.path in WIRES:
            return await self._answer_model_call(number, request, connection)
        answer: bytes | None
        if request.path.startswith("/_control/"):
            answer = await _unless_gone(connection, lambda: self._control.answer(request))
        elif request.path == "/v1/models":
            answer = json_answer(MODELS)
        else:
            answer = json_answer({"error": {"message": f"no route {request.path}", "type": "not_found"}}, 404)
        connection.writer.write(answer or b"")
        await connection.writer.drain()
        return answer is not None

    async def _answer_model_call(self, number: int, request: Request, connection: Connection) -> bool:
        body = request_json(request.body)
        exchange = self.records.add(number, request.path, request.headers, body)
        exchange.problems = problems(body)
        await self.records.changed()
        steps = planned(self._reply(exchange, request), WIRES[request.path], body)
        keep_alive = await _unless_gone(connection, lambda: _perform(steps, self.records, connection))
        if keep_alive is None:
            exchange.closed_at = connection.gone_at or time.monotonic()
        else:
            exchange.ended_at = time.monotonic()
        await self.records.changed()
        return keep_alive is True

    def _reply(self, exchange: Exchange, request: Request) -> Reply:
        if exchange.problems and self.scripts.strict(exchange.model):
            return Reply(status=400, body=refusal_body(exchange.problems))
        return self.scripts.next_reply(exchange.body, request.body.decode("utf-8", "replace"))


async def _unless_gone(connection: Connection, work: Callable[[], Awaitable[T]]) -> T | None:
    """The result of the work; None, and the work cancelled, if the peer closes the connection before."""
    working = asyncio.ensure_future(work())
    leaving = asyncio.ensure_future(connection.gone.wait())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    except ConnectionError:
        return None
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _perform(steps: list[Step], records: Records, connection: Connection) -> bool:
    """Do what was planned; True if the connection can take another request after it."""
    writer, chunked = connection.writer, True
    for step in steps:
        match step:
            case Head():
                chunked = step.length is None
                writer.write(head_bytes(step))
            case Send():
                writer.write(b"%x\r\n%b\r\n" % (len(step.data), step.data) if chunked else step.data)
            case Hold():
                await records.pass_gate(step.gate)
            case Wait():
                await asyncio.sleep(step.seconds)
            case Finish():
                return await _finish(step, chunked, writer)
        await writer.drain()
    return True


async def _finish(step: Finish, chunked: bool, writer: asyncio.StreamWriter) -> bool:
    if step.how == "reset":
        await writer.drain()
        reset(writer)
        return False
    if step.how == "hang":
        await asyncio.sleep(HANG_LIMIT_S)
        return False
    if chunked:
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    return True
