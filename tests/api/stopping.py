"""A server with turns in memory, to be stopped by signals: prints its port, and when it drains.

Its drain goes on until a line comes in; then every turn gets its last frame.
"""

import asyncio
import sys

from app.server import Server, config, listen
from tests.api.fake_turns import FakeTurns
from tests.api.serving import app_of


async def main() -> None:
    turns = FakeTurns()

    async def drain() -> None:
        turns.draining = True
        sys.stdout.write("draining\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        for turn_id in turns.all:
            turns.fail(turn_id, "shutting_down", "The service stops.")

    app = app_of(turns, drain)
    listening = listen("127.0.0.1", 0, 30)
    listening.listen()
    server = Server(config(app))
    async with app.router.lifespan_context(app) as state:
        server.state, server.drain = dict(state or {}), drain
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        await server.serve([listening])


if __name__ == "__main__":
    asyncio.run(main())
