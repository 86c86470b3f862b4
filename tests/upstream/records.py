"""What reached the upstream, and when: every request, every early close, every gate. Times are monotonic."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Exchange:
    """One request and what became of its answer.

    `closed_at`: when the peer closed before the answer's end. `ended_at`: when the answer was sent whole.
    `problems`: what a strict provider has against the request's history.
    """

    number: int
    connection: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    problems: list[str] = field(default_factory=list)
    received_at: float = field(default_factory=time.monotonic)
    closed_at: float | None = None
    ended_at: float | None = None

    @property
    def model(self) -> str:
        return str(self.body.get("model"))

    @property
    def under_way(self) -> bool:
        return self.closed_at is None and self.ended_at is None


@dataclass(slots=True)
class Gate:
    """A place where replies and tools wait for the test: how many came, and how many left unserved."""

    open: bool = False
    arrivals: int = 0
    gone: int = 0


class Records:
    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.connections: dict[int, bool] = {}
        self.gates: dict[str, Gate] = {}
        self._changed = asyncio.Condition()

    def add(self, connection: int, path: str, headers: dict[str, str], body: dict[str, Any]) -> Exchange:
        exchange = Exchange(len(self.exchanges) + 1, connection, path, headers, body)
        self.exchanges.append(exchange)
        return exchange

    def of(self, model: str | None) -> list[Exchange]:
        return [e for e in self.exchanges if model is None or e.model == model]

    def gate(self, name: str) -> Gate:
        return self.gates.setdefault(name, Gate())

    async def changed(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, true: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `true()` holds; False if it does not within the time."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(true)
        except TimeoutError:
            return False
        return True

    async def pass_gate(self, name: str) -> None:
        """Wait at a gate until it is released. Cancelled while it waits: counted as gone."""
        gate = self.gate(name)
        gate.arrivals += 1
        await self.changed()
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: gate.open)
        except asyncio.CancelledError:
            gate.gone += 1
            raise

    async def release(self, name: str) -> None:
        self.gate(name).open = True
        await self.changed()

    async def reset(self) -> None:
        """Forget everything; whoever waits at a gate is let go."""
        for gate in self.gates.values():
            gate.open = True
        await self.changed()
        self.exchanges.clear()
        self.gates.clear()


def exchange_json(exchange: Exchange) -> dict[str, Any]:
    return asdict(exchange) | {"model": exchange.model}
