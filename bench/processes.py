"""What a process costs, read from `/proc`; and the service as the measurements start it."""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.figures import Bench
from tests.service.process import ServiceProcess

_SCHEDULED = 2
"""The kernel's number of a clock that counts the time in which a process ran."""
SETTINGS = {"TURNWIRE_MAX_TURNS": 5000, "TURNWIRE_MAX_LISTENERS": 2000, "TURNWIRE_LOG_LEVEL": "info"}


def cpu_s(pid: int) -> float:
    """CPU of all threads of a process so far, those that have ended too: its clock (`clock_getcpuclockid(3)`)
    counts nanoseconds, where `/proc` counts ticks."""
    return time.clock_gettime((~pid << 3) | _SCHEDULED)


def rss_bytes(pid: int) -> int:
    """Memory that is the process's own: what it shares with others does not count."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


@asynccontextmanager
async def service(bench: Bench, **settings: object) -> AsyncIterator[ServiceProcess]:
    """A service on the bench's upstream, with a folder of its own unless `folder` is given."""
    folder = settings.pop("folder", None) or tempfile.mkdtemp(dir=bench.folder)
    process = ServiceProcess(Path(str(folder)), bench.upstream, **{**SETTINGS, **settings})
    try:
        await asyncio.to_thread(process.__enter__)
        yield process
    finally:
        await asyncio.to_thread(process.kill)
