"""What one listener more costs, in CPU and memory; what a running turn costs in memory; what replay costs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.cancelling import turns_held
from bench.figures import Bench, Line, ms, percentile
from bench.processes import cpu_s, rss_bytes, service
from bench.reading import Client, Reader, Reading, leave

DELTAS, GAP_S = 250, 0.02


async def listener(bench: Bench) -> AsyncIterator[Line]:
    """CPU of a delta for one listener more of its turn."""
    more = bench.pick(50, 20)
    async with service(bench) as process:
        client = Client(process.base_url)
        await client.turn("words 20")
        one = await _cpu_of_a_turn(client, process.pid, 0)
        many = await _cpu_of_a_turn(client, process.pid, more)
    each = (many - one) / more / DELTAS
    yield Line(
        "one listener more, CPU of a delta",
        f"{each * 1e6:.1f} µs",
        each / (one / DELTAS),
        f"the delta with its first listener ({one / DELTAS * 1e6:.0f} µs)",
    )


async def _cpu_of_a_turn(client: Client, pid: int, more: int) -> float:
    before = cpu_s(pid)
    first = await client.start(f"paced {DELTAS} {GAP_S}", keep_deltas=False)
    await first.begun.wait()
    others = [await client.listen(first.reading.turn_id, keep_deltas=False) for _ in range(more)]
    await asyncio.gather(first.done, *(other.done for other in others))
    return cpu_s(pid) - before


async def memory(bench: Bench) -> AsyncIterator[Line]:
    """Memory of a running turn with its listener, and of one listener more, among 300."""
    count = bench.pick(300, 100)
    async with service(bench) as process:
        client = Client(process.base_url)
        for _ in range(20):
            await client.turn("words 20")
        idle = rss_bytes(process.pid)
        # Those that are held before pay for what the first ones make for good.
        async with turns_held(client, count) as readers, _more_listeners(client, readers[0], count):
            before = rss_bytes(process.pid)
            async with turns_held(client, count):
                turn = (rss_bytes(process.pid) - before) / count
                before = rss_bytes(process.pid)
                async with _more_listeners(client, readers[0], count):
                    listener = (rss_bytes(process.pid) - before) / count
    yield Line(
        "memory of a running turn and its listener", _kib(turn), turn / idle, f"the idle service ({_mib(idle)})"
    )
    yield Line("memory of one listener more", _kib(listener), listener / turn, "a running turn")


@asynccontextmanager
async def _more_listeners(client: Client, first: Reader, count: int) -> AsyncIterator[None]:
    """So many listeners more on a turn, each of which has its first delta."""
    others = [await client.listen(first.reading.turn_id) for _ in range(count)]
    for other in others:
        await other.has_delta.wait()
    yield
    for other in others:
        leave(other)


async def replay(bench: Bench) -> AsyncIterator[Line]:
    """Replay of a log of 5,000 events, beside as many bytes from a bare server."""
    rounds = bench.pick(20, 5)
    async with service(bench) as process:
        client, upstream = Client(process.base_url), Client(bench.upstream)
        first = await client.turn(f"paced {bench.pick(5000, 1000)} 0.008")  # slow enough to be an event each
        await asyncio.sleep(2)  # its rows are packed once it has ended
        before = cpu_s(process.pid)
        readings = [await _replayed(client, first.turn_id) for _ in range(rounds)]
        spent = (cpu_s(process.pid) - before) / rounds
        plain = [(await upstream.request("GET", f"/bytes/{readings[0].size}"))[2] for _ in range(rounds)]
    took = [reading.ended_at - reading.sent_at for reading in readings]
    yield Line(
        f"replay of {readings[0].events} events, {readings[0].size / 1024:.0f} KiB",
        f"{ms(percentile(took, 50))}, CPU {ms(spent)}",
        percentile(took, 50) / percentile(plain, 50),
        f"as many bytes from a bare server ({ms(percentile(plain, 50))})",
    )


async def _replayed(client: Client, turn_id: str) -> Reading:
    reader = await client.listen(turn_id, keep_deltas=False)
    return await reader.done


async def wire(bench: Bench) -> AsyncIterator[Line]:
    """Bytes on the wire for 200 characters in 50 deltas, beside the upstream's own bytes."""
    async with service(bench) as process:
        client, upstream = Client(process.base_url), Client(bench.upstream)
        reading = await client.turn("paced 12 0.05")
        reader = await upstream.open("POST", "/v1/responses", {"input": "paced 12 0.05"})
        await reader.finished.wait()
        leave(reader)
    characters = sum(len(text) for text, _ in reading.deltas)
    yield Line(
        f"bytes on the wire for {characters} characters in {len(reading.deltas)} deltas",
        f"{reading.size} bytes",
        reading.size / reader.reading.size,
        f"the upstream's own ({reader.reading.size} bytes)",
    )


def _kib(size: float) -> str:
    return f"{size / 1024:.0f} KiB"


def _mib(size: float) -> str:
    return f"{size / 1024 / 1024:.0f} MiB"
