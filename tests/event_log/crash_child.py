"""A process to be killed: three turns append, bursty and paced, and each event goes to stdout as it is shown.

    python -m tests.event_log.crash_child FOLDER

A line is `TURN_KEY JSON`, written by one write of its own as soon as the log has published the event.
"""

import asyncio
import os
import sys
from contextlib import aclosing
from pathlib import Path

from app.domain.turn import Turn
from app.event_log import EventLogs
from app.event_log.live_log import LiveLog
from app.store import DataFolder, open_store
from tests.event_log.live import LiveScene, delta


async def write_for_ever(log: LiveLog, *, burst: int, pause_s: float) -> None:
    number = 0
    while True:
        for _ in range(burst):
            number += 1
            log.append(delta("some text", f"item_{number}"))
        await asyncio.sleep(pause_s)


async def show(logs: EventLogs, turn: Turn) -> None:
    async with aclosing(logs.tail(turn, 0)) as source:
        async for entries in source:
            for entry in entries:
                os.write(1, b"%d %s\n" % (turn.key, entry.data))


async def run(folder: Path) -> None:
    with DataFolder(folder) as data:
        async with open_store(data.database, owner="child") as store, asyncio.TaskGroup() as tasks:
            live = LiveScene(store, EventLogs(store, window_bytes=64 * 1024))
            for name, burst, pause_s in (("paced", 1, 0.002), ("bursts", 200, 0.02), ("steady", 3, 0)):
                turn, log = await live.begin(name)
                tasks.create_task(show(live.logs, turn))
                tasks.create_task(write_for_ever(log, burst=burst, pause_s=pause_s))


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
