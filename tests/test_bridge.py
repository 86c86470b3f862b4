"""The bridge lets a test see an answer while it is being made."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx
import pytest

from tests.bounds import BOUND_S
from tests.bridge import AsgiBridge, bridged_client

pytestmark = pytest.mark.anyio
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def _begin(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"yes")]})


async def test_a_part_is_seen_before_the_next_one_is_made() -> None:
    seen = asyncio.Event()

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await _begin(send)
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await seen.wait()
        await send({"type": "http.response.body", "body": b"two"})

    async with (
        asyncio.timeout(BOUND_S),
        httpx.AsyncClient(transport=AsgiBridge(app), base_url="http://app") as client,
        client.stream("GET", "/") as response,
    ):
        parts = response.aiter_raw()
        assert await anext(parts) == b"one"
        seen.set()
        assert await anext(parts) == b"two"
        assert [part async for part in parts] == []


async def test_leaving_early_is_a_disconnect_that_the_app_sees() -> None:
    messages: list[str] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        await _begin(send)
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        messages.append((await receive())["type"])

    async with (
        asyncio.timeout(BOUND_S),
        httpx.AsyncClient(transport=AsgiBridge(app), base_url="http://app") as client,
        client.stream("POST", "/", content=b"body") as response,
    ):
        assert await anext(response.aiter_raw()) == b"one"
    assert messages == ["http.disconnect"]


async def test_an_app_that_raises_within_its_answer_cuts_it() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await _begin(send)
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        raise RuntimeError("cut")

    async with (
        asyncio.timeout(BOUND_S),
        httpx.AsyncClient(transport=AsgiBridge(app), base_url="http://app") as client,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/")


async def test_more_parts_than_the_queue_holds_all_arrive() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await _begin(send)
        for index in range(100):
            await send({"type": "http.response.body", "body": b"%02d" % index, "more_body": index < 99})

    async with (
        asyncio.timeout(BOUND_S),
        httpx.AsyncClient(transport=AsgiBridge(app), base_url="http://app") as client,
    ):
        response = await client.get("/")
    assert response.content == b"".join(b"%02d" % index for index in range(100))


async def test_requests_see_what_the_lifespan_yielded() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            scope["state"]["name"] = b"built"
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await _begin(send)
        await send({"type": "http.response.body", "body": scope["state"]["name"]})

    async with asyncio.timeout(BOUND_S), bridged_client(app) as client:
        assert (await client.get("/")).content == b"built"


async def test_a_lifespan_that_fails_says_why() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(RuntimeError, match="no database"):
        async with asyncio.timeout(BOUND_S), bridged_client(app):
            pass
