"""Crashes without end: `python -m tests.soak --rounds 200`.

Each round starts turns of every kind, reads their streams, kills the service with SIGKILL at a random moment,
reads what is left in the sockets to the last byte, starts the service again on the same folder, and holds it to
this: the log is a superset of what was read, byte for byte; numbers without gap or repeat; one terminal event;
the conversation goes on with a history that a strict provider accepts.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.service.client import TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.sse import TERMINAL, EventStream
from tests.upstream.client import Scenario, UpstreamControl
from tests.upstream.process import upstream_process

JsonObject = dict[str, Any]
TURNS = 6
LONGEST_LIFE_S = 1.2
_LOOKUP = {"name": "lookup", "arguments": {"q": "kelp"}, "chunks": 4}
_TEXT = "There is a good deal to be said about kelp and it takes a while to say it all."


@dataclass
class Reading:
    """A turn as a client saw it until the crash."""

    scenario: Scenario
    agent: str
    stream: EventStream | None = None
    turn_id: str | None = None
    conversation: str = ""
    raw: list[bytes] = field(default_factory=list)


def script_of(agent: str) -> list[JsonObject]:
    words = {"text": _TEXT, "delay_s": random.uniform(0.001, 0.03)}
    if agent == "plain":
        return [words]
    if agent == "boss":
        ask = {"name": "ask_helper", "arguments": {"input": "kelp?"}}
        return [words | {"tool_calls": [ask]}, words, words]
    return [words | {"tool_calls": [_LOOKUP, _LOOKUP]}, words]


async def run_round(service: ServiceProcess, upstream: UpstreamControl) -> int:
    """One round on a running service, which is restarted. Returns how many events the clients had read."""
    readings = [
        Reading(upstream.scenario("soak"), agent) for agent in ("plain", "worker", "boss") * (TURNS // 3)
    ]
    for reading in readings:
        reading.conversation = reading.scenario.gate("chat")
        await reading.scenario.script(*script_of(reading.agent))
    reading_all = [asyncio.create_task(read_until_cut(service.base_url, reading)) for reading in readings]
    await asyncio.sleep(random.uniform(0.02, LONGEST_LIFE_S))
    await asyncio.to_thread(service.kill)
    await asyncio.gather(*reading_all)
    await asyncio.to_thread(service.start)
    await asyncio.to_thread(service.wait_ready)
    for reading in readings:
        await check(service.base_url, reading)
    return sum(len(reading.raw) for reading in readings)


async def read_until_cut(base_url: str, reading: Reading) -> None:
    client = TurnwireClient(base_url, model=reading.scenario.model)
    try:
        async with client.stream("kelp?", conversation=reading.conversation, agent=reading.agent) as stream:
            reading.stream, reading.turn_id = stream, stream.turn_id
            await stream.rest()
    except (httpx.TransportError, AssertionError):
        pass  # the crash; what was read before it counts
    finally:
        if reading.stream:
            reading.raw = [frame.raw for frame in reading.stream.frames]
        await client.aclose()


async def check(base_url: str, reading: Reading) -> None:
    client = TurnwireClient(base_url, model=reading.scenario.model)
    try:
        if reading.turn_id:
            log = await client.log(reading.turn_id)
            assert [frame.raw for frame in log][: len(reading.raw)] == reading.raw, "the log lost what was sent"
            assert [frame.seq for frame in log] == list(range(1, len(log) + 1)), "a gap or a repeat"
            assert [f.type for f in log if f.type in TERMINAL] == [log[-1].type], "not one terminal event"
        await reading.scenario.script({"text": "Still here."})
        turn = await client.run(
            "And now?", conversation=reading.conversation, agent="plain", on_conflict="enqueue"
        )
        last = await reading.scenario.last_request()
        assert turn["status"] == "completed", turn["error"]
        assert last.problems == [], last.problems
    finally:
        await client.aclose()


async def soak(rounds: int, folder: Path, origin: str) -> int:
    """Run so many rounds on one folder. Returns how many events were read and found again."""
    upstream = UpstreamControl(origin)
    try:
        with ServiceProcess(folder, origin) as service:
            return sum([await run_round(service, upstream) for _ in range(rounds)])
    finally:
        await upstream.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    random.seed(options.seed)
    with tempfile.TemporaryDirectory() as folder, upstream_process() as origin:
        events = asyncio.run(soak(options.rounds, Path(folder), origin))
    sys.stdout.write(f"{options.rounds} crashes, {events} events read, none lost (seed {options.seed})\n")


if __name__ == "__main__":
    main()
