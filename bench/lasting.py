"""What must not grow: handles over many turns; and how long a start takes."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator

from bench.figures import Bench, Line
from bench.processes import open_files, rss_bytes, service, threads
from bench.reading import Client

AT_ONCE = 20


async def handles(bench: Bench) -> AsyncIterator[Line]:
    """File handles, threads and memory after 1,000 turns, beside those after the first hundred."""
    async with service(bench) as process:
        client = Client(process.base_url)
        await _turns(client, 100)
        before = open_files(process.pid), threads(process.pid), rss_bytes(process.pid)
        count = bench.pick(1000, 200)
        await _turns(client, count)
        after = open_files(process.pid), threads(process.pid), rss_bytes(process.pid)
    for name, old, new in zip(("file handles", "threads", "memory"), before, after, strict=True):
        shown = f"{new / 1024 / 1024:.1f} MiB" if name == "memory" else str(new)
        yield Line(f"{name} after {count} turns", shown, new / old, "before them")


async def _turns(client: Client, count: int) -> None:
    for _ in range(count // AT_ONCE):
        await asyncio.gather(*(client.turn("words 20", keep_deltas=False) for _ in range(AT_ONCE)))
    await asyncio.sleep(1)  # listeners' connections close after their last frame


async def start(bench: Bench) -> AsyncIterator[Line]:
    """From the start of the process to ready, beside an import of the SDK and nothing else."""
    rounds = bench.pick(3, 1)
    ready, bare = [], []
    for _ in range(rounds):
        began = time.monotonic()
        async with service(bench):
            ready.append(time.monotonic() - began)
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import agents")
        await process.wait()
        bare.append(time.monotonic() - began)
    yield Line(
        "start to ready", f"{min(ready):.1f} s", min(ready) / min(bare), f"`import agents` ({min(bare):.1f} s)"
    )
