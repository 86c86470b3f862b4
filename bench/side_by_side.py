"""Many turns at once: how soon the first event comes, what is added to a delta, and whether all get on."""

import asyncio
from collections.abc import AsyncIterator

from bench.figures import Bench, Line, ms, percentile, spread
from bench.processes import service
from bench.reading import Client, Reading, leave

GAP_S = 0.05
COUNTS = (1, 100, 500)


async def latency(bench: Bench) -> AsyncIterator[Line]:
    """1, 100 and 500 turns side by side, 20 deltas a second each, beside the same streams without a service."""
    deltas = bench.pick(100, 40)
    async with service(bench) as process:
        client, direct = Client(process.base_url), Client(bench.upstream)
        await client.turn("words 20")
        for count in COUNTS:
            ours = await _turns(client, count, deltas)
            theirs = await _direct(direct, count, deltas)
            first = [reading.first_event_at - reading.sent_at for reading in ours]
            yield Line(f"time to first event, {count} turns", spread(first), None, "from the POST")
            added = [late for reading in ours for late in reading.latencies]
            bare = [late for reading in theirs for late in reading.latencies]
            ratio = percentile(added, 50) / percentile(bare, 50)
            yield Line(
                f"a delta's way, {count} turns",
                f"{spread(added)}, max {ms(max(added))}",
                ratio,
                f"without a service ({spread(bare)})",
            )
            medians = [percentile(reading.latencies, 50) for reading in ours]
            worst = max(medians) / percentile(medians, 50)
            yield Line(f"the slowest turn of {count}", ms(max(medians)), worst, "the median turn's delta")


async def fairness(bench: Bench) -> AsyncIterator[Line]:
    """Twenty paced turns alone, and while another turn floods."""
    deltas = bench.pick(100, 40)
    async with service(bench) as process:
        client = Client(process.base_url)
        await client.turn("words 20")
        alone = await _turns(client, 20, deltas)
        flood = [await client.start("burst 20000", keep_deltas=False) for _ in range(2)]
        beside = await _turns(client, 20, deltas)
        for reader in flood:
            leave(reader)
    before = percentile([late for reading in alone for late in reading.latencies], 99)
    during = percentile([late for reading in beside for late in reading.latencies], 99)
    yield Line("a delta's way beside a flood, p99", ms(during), during / before, f"without it ({ms(before)})")


async def _turns(client: Client, count: int, deltas: int) -> list[Reading]:
    return await asyncio.gather(*(client.turn(f"paced {deltas} {GAP_S}") for _ in range(count)))


async def _direct(direct: Client, count: int, deltas: int) -> list[Reading]:
    """The same streams, read from the upstream itself."""

    async def read() -> Reading:
        body = {"input": f"paced {deltas} {GAP_S}"}
        reader = await direct.open("POST", "/v1/responses", body)
        await asyncio.wait_for(reader.finished.wait(), 120)
        leave(reader)
        return reader.reading

    return await asyncio.gather(*(read() for _ in range(count)))
