"""Server CPU for each text delta, from the POST to the last frame, log durable, against the bare SDK loop."""

import asyncio
import sys
from collections.abc import AsyncIterator
from statistics import median

from bench.figures import Bench, Line, ms
from bench.processes import cpu_s, service
from bench.reading import Client, Reading

WIRES = ("responses", "chat_completions")
BURST_DELTAS = 3000
PACED_TURNS = 20
GAP_S = 0.02


async def burst(bench: Bench) -> AsyncIterator[Line]:
    """3,000 deltas a turn, one turn after the other, as fast as they come."""
    said, turns = f"burst {BURST_DELTAS}", bench.pick(10, 4)
    for wire in WIRES:
        async with service(bench, TURNWIRE_MODEL_API=wire) as process:
            client = Client(process.base_url)
            await client.turn(said)
            pairs = []
            for _ in range(bench.pick(3, 1)):
                before = cpu_s(process.pid)
                for _ in range(turns):
                    await client.turn(said, keep_deltas=False)
                ours = (cpu_s(process.pid) - before) / turns / BURST_DELTAS * 1e6
                pairs.append((ours, await bare(bench, wire, said, 3)))
        yield _line(f"CPU of a delta, burst, {wire}", pairs, target=0.2)


async def paced(bench: Bench) -> AsyncIterator[Line]:
    """20 turns side by side, 50 deltas a second each, 3,000 a turn."""
    deltas = bench.pick(3000, 300)
    said = f"paced {deltas} {GAP_S}"
    for wire in WIRES:
        async with service(bench, TURNWIRE_MODEL_API=wire) as process:
            client = Client(process.base_url)
            await client.turn("words 20")
            pairs, readings = [], []
            for _ in range(bench.pick(2, 1)):
                before = cpu_s(process.pid)
                readings = await _side_by_side(client, said)
                ours = (cpu_s(process.pid) - before) / PACED_TURNS / deltas * 1e6
                pairs.append((ours, await bare(bench, wire, said, PACED_TURNS)))
        yield _line(f"CPU of a delta, paced, {wire}", pairs, target=0.35)
        own = sum(len(reading.deltas) for reading in readings) / PACED_TURNS / deltas
        yield Line(f"deltas with an event of their own, paced, {wire}", f"{own:.1%}", None, "at least 98 %")
        first = max(reading.latencies[0] for reading in readings)
        yield Line(
            f"the slowest first delta, paced, {wire}", ms(first), None, "at most 50 ms behind the upstream's"
        )


async def _side_by_side(client: Client, said: str) -> list[Reading]:
    return await asyncio.gather(*(client.turn(said) for _ in range(PACED_TURNS)))


async def bare(bench: Bench, wire: str, said: str, turns: int) -> float:
    """Microseconds of CPU for each delta in the script."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.bare_loop", f"{bench.upstream}/v1", wire, said, str(turns)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, "the bare loop failed"
    return float(out.split()[0])


def _line(name: str, pairs: list[tuple[float, float]], target: float) -> Line:
    ours, theirs = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
    ratio = median(mine / bare for mine, bare in pairs)
    return Line(name, f"{ours:.0f} µs", ratio, f"the bare SDK loop's {theirs:.0f} µs", target)
