"""The test's side of the upstream's control server: write scripts, wait for what happens, read what came.

Each test takes a `Scenario` of its own: a model name that nobody else uses, so that scripts never mix.
"""

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from tests.bounds import BOUND_S

JsonObject = dict[str, Any]
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Received:
    """A request that reached the upstream; times are of the machine's monotonic clock."""

    path: str
    headers: dict[str, str]
    body: JsonObject
    problems: list[str]
    received_at: float
    closed_at: float | None
    ended_at: float | None

    @property
    def history(self) -> list[JsonObject]:
        """The messages (Chat Completions) or input items (Responses) that the model was sent."""
        history: list[JsonObject] = self.body["messages"] if "messages" in self.body else self.body["input"]
        return history


class UpstreamControl:
    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.base_url = f"{origin}/v1"
        self._http = httpx.AsyncClient(base_url=origin, timeout=2 * BOUND_S, trust_env=False, verify=False)

    async def aclose(self) -> None:
        await self._http.aclose()

    def scenario(self, name: str = "test") -> "Scenario":
        return Scenario(self, f"{name}-{os.getpid()}-{next(_numbers)}")

    async def script(self, model: str, replies: Sequence[JsonObject], **more: Any) -> None:
        await self._post("script", {"model": model, "replies": list(replies), **more})

    async def replay(self, model: str, case: str, folder: str | None = None) -> None:
        await self._post("script", {"model": model, "case": case, "folder": folder})

    async def release(self, gate: str) -> None:
        await self._post(f"release/{quote(gate, safe='')}", {})

    async def held(self, gate: str, timeout_s: float = BOUND_S) -> None:
        """Return once a reply or a tool waits at the gate."""
        await self.wait(f"held:{gate}", timeout_s=timeout_s)

    async def gone(self, gate: str, timeout_s: float = BOUND_S) -> None:
        """Return once someone who waited at the gate has left it unserved."""
        await self.wait(f"gone:{gate}", timeout_s=timeout_s)

    async def wait(self, event: str, *, model: str | None = None, timeout_s: float = BOUND_S) -> float:
        """Return the monotonic time at which it was seen; raises TimeoutError."""
        query = {"event": event, "timeout": str(timeout_s)} | ({"model": model} if model else {})
        response = await self._http.get("/_control/wait", params=query)
        if response.status_code == 408:
            raise TimeoutError(f"the upstream saw no {event} of {model} within {timeout_s} s")
        response.raise_for_status()
        return float(response.json()["at"])

    async def requests(self, model: str | None = None) -> list[Received]:
        response = await self._http.get("/_control/requests", params={"model": model} if model else {})
        fields = Received.__slots__
        return [Received(**{name: entry[name] for name in fields}) for entry in response.json()]

    async def connections(self) -> dict[str, Any]:
        counts: dict[str, Any] = (await self._http.get("/_control/connections")).json()
        return counts

    async def _post(self, route: str, body: JsonObject) -> None:
        response = await self._http.post(f"/_control/{route}", json=body)
        assert response.status_code == 200, response.text


class Scenario:
    """The scripts, gates and requests of one test. Send `model` with each turn."""

    def __init__(self, control: UpstreamControl, model: str) -> None:
        self.control = control
        self.model = model

    async def script(self, *replies: JsonObject, **more: Any) -> None:
        await self.control.script(self.model, replies, **more)

    async def replay(self, case: str, folder: str | None = None) -> None:
        await self.control.replay(self.model, case, folder)

    def gate(self, name: str) -> str:
        """A gate's name that no other test uses."""
        return f"{self.model}-{name}"

    async def held(self, name: str) -> None:
        await self.control.held(self.gate(name))

    async def gone(self, name: str) -> None:
        await self.control.gone(self.gate(name))

    async def release(self, name: str) -> None:
        await self.control.release(self.gate(name))

    async def requested(self, count: int = 1) -> None:
        await self.control.wait(f"request:{count}", model=self.model)

    async def closed(self, count: int = 1) -> Received:
        """Wait for the nth early close by the peer; returns the request it belongs to."""
        await self.control.wait(f"closed:{count}", model=self.model)
        closed = [r for r in await self.requests() if r.closed_at is not None]
        return closed[count - 1]

    async def requests(self) -> list[Received]:
        return await self.control.requests(self.model)

    async def last_request(self) -> Received:
        return (await self.requests())[-1]
