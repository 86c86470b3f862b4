"""An httpx transport that runs an ASGI app in this process and hands its answer over while it is being made.

httpx's own `ASGITransport` holds a response back until its end, so that no stream can be tested through it.

    async with bridged_client(app) as client:
        async with client.stream("GET", "/…") as response: ...

Leaving a response early is a disconnect: the app receives `http.disconnect`, and is awaited (bounded).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]
QUEUED_PARTS = 16
LIMIT_S = 10


class AsgiBridge(httpx.AsyncBaseTransport):
    """`state` is what the app's lifespan yielded; each request gets a copy, as servers do."""

    def __init__(self, app: AsgiApp, *, state: dict[str, Any] | None = None) -> None:
        self._app = app
        self._state = state or {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        exchange = _Exchange(self._app, _scope(request, self._state), body)
        return await exchange.response()


class _Exchange(httpx.AsyncByteStream):
    """One request: the app runs in a task of its own and its parts pass through a bounded queue."""

    def __init__(self, app: AsgiApp, scope: dict[str, Any], body: bytes) -> None:
        self._body: bytes | None = body
        self._head: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUED_PARTS)
        self._left = asyncio.Event()
        self._whole = asyncio.Event()
        self._task = asyncio.create_task(self._run(app, scope))

    async def response(self) -> httpx.Response:
        waits: list[asyncio.Future[Any]] = [self._task, self._head]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not self._head.done():
            await self._task
            raise httpx.RemoteProtocolError("the app ended without a response")
        head = self._head.result()
        return httpx.Response(head["status"], headers=head.get("headers", []), stream=self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (part := await self._parts.get()) is not None:
            yield part
        if not self._whole.is_set():
            raise httpx.RemoteProtocolError("the app cut the response")

    async def aclose(self) -> None:
        self._left.set()
        while not self._parts.empty():
            self._parts.get_nowait()
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, app: AsgiApp, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception:
            # As a server would: an error after the response began cuts it, one before is the test's to see.
            if not self._head.done():
                raise
        finally:
            await self._put(None)

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await _first(self._left.wait(), self._whole.wait())
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._head.set_result(message)
            return
        if message.get("body"):
            await self._put(message["body"])
        if not message.get("more_body"):
            self._whole.set()

    async def _put(self, part: bytes | None) -> None:
        """Queue a part; whoever has left gets nothing more."""
        await _first(self._parts.put(part), self._left.wait())


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when the first of them is done; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _scope(request: httpx.Request, state: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.split(b"?")[0],
        "query_string": request.url.query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": ("127.0.0.1", 50000),
        "server": (request.url.host, request.url.port or 80),
        "state": dict(state),
    }


@asynccontextmanager
async def lifespan(app: AsgiApp) -> AsyncIterator[dict[str, Any]]:
    """Run the app's lifespan around the block; gives its state. Startup failures are raised."""
    state: dict[str, Any] = {}
    inbox: asyncio.Queue[Message] = asyncio.Queue(2)
    outbox: asyncio.Queue[Message] = asyncio.Queue(2)
    scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": state}
    task = asyncio.ensure_future(app(scope, inbox.get, outbox.put))
    await inbox.put({"type": "lifespan.startup"})
    await _expect(task, outbox, "lifespan.startup.complete")
    try:
        yield state
    finally:
        await inbox.put({"type": "lifespan.shutdown"})
        await _expect(task, outbox, "lifespan.shutdown.complete")
        await task


async def _expect(task: asyncio.Future[None], outbox: asyncio.Queue[Message], kind: str) -> None:
    answer = asyncio.ensure_future(outbox.get())
    waits: list[asyncio.Future[Any]] = [task, answer]
    async with asyncio.timeout(60):
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if not answer.done():
        answer.cancel()
        await task
        raise RuntimeError("the app's lifespan ended early")
    if answer.result()["type"] != kind:
        await asyncio.gather(task, return_exceptions=True)
        raise RuntimeError(answer.result().get("message") or f"no {kind}")


@asynccontextmanager
async def bridged_client(
    app: AsgiApp, base_url: str = "http://127.0.0.1:8000"
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app, its lifespan run around the block."""
    async with (
        lifespan(app) as state,
        httpx.AsyncClient(transport=AsgiBridge(app, state=state), base_url=base_url) as client,
    ):
        yield client
