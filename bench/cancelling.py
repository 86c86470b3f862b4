"""How soon a DELETE closes the upstream's connection, and is answered."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.figures import Bench, Line, percentile, spread
from bench.processes import service
from bench.reading import Client, Reader, leave


async def cancel(bench: Bench) -> AsyncIterator[Line]:
    """A DELETE of a running turn, alone and among 300 held turns, beside a plain GET of the service."""
    rounds = bench.pick(100, 20)
    async with service(bench) as process:
        client, upstream = Client(process.base_url), Client(bench.upstream)
        await client.turn("words 20")
        for held in (0, 300):
            async with turns_held(client, held):
                answered, closed = await _deletes(client, upstream, rounds, f"among{held}")
                plain = [(await client.request("GET", "/v1/agents"))[2] for _ in range(rounds)]
            where = "alone" if not held else f"among {held} held turns"
            yield Line(
                f"DELETE to the answer, {where}",
                spread(answered),
                percentile(answered, 50) / percentile(plain, 50),
                f"a plain GET ({spread(plain)})",
            )
            yield Line(
                f"DELETE to the upstream closed, {where}",
                spread(closed),
                percentile(closed, 50) / percentile(plain, 50),
                "a plain GET",
            )


async def _deletes(client: Client, upstream: Client, rounds: int, name: str) -> tuple[list[float], list[float]]:
    """Seconds from each DELETE to its answer, and to the moment at which the upstream saw its peer leave."""
    answered: list[float] = []
    began: dict[str, float] = {}
    for number in range(rounds):
        tag = f"{name}n{number}"
        reader = await client.start(f"held {tag}")
        await reader.has_delta.wait()
        began[tag] = time.monotonic()
        status, _, took = await client.request("DELETE", f"/v1/turns/{reader.reading.turn_id}")
        assert status == 200, f"DELETE answered {status}"
        answered.append(took)
        await reader.done
    _, body, _ = await upstream.request("GET", "/closed")
    closed = json.loads(body)
    return answered, [closed[tag] - at for tag, at in began.items()]


@asynccontextmanager
async def turns_held(client: Client, count: int) -> AsyncIterator[list[Reader]]:
    """So many turns that have said one delta and wait, each with a listener; cancelled at the end."""
    readers = [await client.start(f"held held{number}") for number in range(count)]
    for reader in readers:
        await reader.has_delta.wait()
    try:
        yield readers
    finally:
        for reader in readers:
            await client.request("DELETE", f"/v1/turns/{reader.reading.turn_id}")
            leave(reader)
