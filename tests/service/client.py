"""A client for tests: the service's routes by name, streams that keep every byte."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.bounds import BOUND_S
from tests.service.sse import EventStream, Frame

JsonObject = dict[str, Any]


class TurnwireClient:
    """`model` is sent with each turn, unless it is None or the call names another."""

    def __init__(
        self, base_url: str, *, model: str | None = None, key: str | None = None, user: str | None = None
    ) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        headers |= {"turnwire-user": user} if user else {}
        self.model = model
        self.http = httpx.AsyncClient(
            base_url=base_url, headers=headers, timeout=BOUND_S, trust_env=False, verify=False
        )

    async def aclose(self) -> None:
        await self.http.aclose()

    def body(self, said: Any, **fields: Any) -> JsonObject:
        return {"input": said} | ({"model": self.model} if self.model else {}) | fields

    # turns

    async def post(
        self,
        said: Any = "hello",
        *,
        conversation: str | None = None,
        accept: str = "application/json",
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> httpx.Response:
        """POST a turn; whatever the answer is."""
        sent = {"accept": accept} | (headers or {})
        return await self.http.post(_turns(conversation), json=self.body(said, **fields), headers=sent)

    async def run(self, said: Any = "hello", *, conversation: str | None = None, **fields: Any) -> JsonObject:
        """The turn as JSON once it has paused or ended."""
        response = await self.post(said, conversation=conversation, **fields)
        assert response.status_code == 200, response.text
        turn: JsonObject = response.json()
        return turn

    async def start(self, said: Any = "hello", *, conversation: str | None = None, **fields: Any) -> JsonObject:
        """The turn as JSON at once (202): it goes on in the background."""
        response = await self.post(said, conversation=conversation, background=True, **fields)
        assert response.status_code == 202, response.text
        turn: JsonObject = response.json()
        return turn

    @asynccontextmanager
    async def stream(
        self,
        said: Any = "hello",
        *,
        conversation: str | None = None,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> AsyncIterator[EventStream]:
        """The turn's events as they come. Leaving the block early is a disconnect."""
        sent = {"accept": "text/event-stream"} | (headers or {})
        body = self.body(said, **fields)
        async with self.http.stream("POST", _turns(conversation), json=body, headers=sent) as response:
            assert response.status_code == 200, await response.aread()
            yield EventStream(response)

    async def turn(self, turn_id: str) -> JsonObject:
        return await self._get(f"/v1/turns/{turn_id}")

    @asynccontextmanager
    async def events(
        self, turn_id: str, *, after: int | None = None, last_event_id: str | None = None
    ) -> AsyncIterator[EventStream]:
        """The turn's log: replayed, then followed."""
        headers = {"accept": "text/event-stream"}
        headers |= {"last-event-id": last_event_id} if last_event_id is not None else {}
        query = {} if after is None else {"after": str(after)}
        path = f"/v1/turns/{turn_id}/events"
        async with self.http.stream("GET", path, params=query, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            yield EventStream(response)

    async def log(self, turn_id: str) -> list[Frame]:
        """The whole log of a turn, once it has paused or ended."""
        async with self.events(turn_id) as stream:
            return await stream.rest()

    async def ended(self, turn_id: str) -> JsonObject:
        """Wait until the turn has paused or ended; its JSON then."""
        await self.log(turn_id)
        return await self.turn(turn_id)

    async def cancel(self, turn_id: str, mode: str | None = None) -> httpx.Response:
        return await self.http.delete(f"/v1/turns/{turn_id}", params={"mode": mode} if mode else {})

    # conversations

    async def items(self, conversation: str, *, all_of_them: bool = False) -> list[JsonObject]:
        """The items that the model sees; with `all_of_them` the superseded ones too, as they are stored."""
        page = await self._get(f"/v1/conversations/{conversation}/items?limit=100")
        assert page["next"] is None
        if all_of_them:
            stored: list[JsonObject] = page["data"]
            return stored
        return [entry["item"] for entry in page["data"] if not entry["superseded"]]

    async def turns(self, conversation: str) -> list[JsonObject]:
        page = await self._get(f"/v1/conversations/{conversation}/turns?limit=100")
        turns: list[JsonObject] = page["data"]
        return turns

    @asynccontextmanager
    async def follow(
        self, conversation: str, *, last_event_id: str | None = None
    ) -> AsyncIterator[EventStream]:
        headers = {"accept": "text/event-stream"}
        headers |= {"last-event-id": last_event_id} if last_event_id is not None else {}
        path = f"/v1/conversations/{conversation}/events"
        async with self.http.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            yield EventStream(response)

    # operators

    async def figures(self) -> dict[str, float]:
        """What `/metrics` shows now, by name and labels as they stand there."""
        response = await self.http.get("/metrics")
        assert response.status_code == 200, response.text
        lines = (line.rpartition(" ") for line in response.text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    async def _get(self, path: str) -> JsonObject:
        response = await self.http.get(path)
        assert response.status_code == 200, response.text
        value: JsonObject = response.json()
        return value


def _turns(conversation: str | None) -> str:
    return f"/v1/conversations/{conversation}/turns" if conversation else "/v1/turns"
