"""The API over turns in memory: as an ASGI app, and on a socket under the real server."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from app.main import create_app
from app.observability.metrics import Metrics
from app.server import Server, config, listen
from app.services import Services
from app.settings import Settings
from app.turns.service import TurnService


async def _nothing() -> None:
    return None


def app_of(
    turns: TurnService,
    drain: Callable[[], Awaitable[None]] = _nothing,
    metrics: Metrics | None = None,
    **settings: Any,
) -> FastAPI:
    """The app over `turns`; `settings` are fields of `Settings`."""

    @asynccontextmanager
    async def opener(_: Settings) -> AsyncIterator[Services]:
        yield Services(turns, metrics or Metrics(), drain)

    return create_app(Settings(**settings), opener)


class _Server(Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.serving.set()


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    """Serve the app on loopback; gives its base URL."""
    listening = listen("127.0.0.1", 0, 30)
    async with app.router.lifespan_context(app) as state:
        server = _Server(config(app))
        server.state = dict(state or {})
        running = asyncio.create_task(server.serve([listening]))
        await server.serving.wait()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running
