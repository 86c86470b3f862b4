"""An hour of everything at once, and nothing left behind: `python -m bench.soak [--minutes 60]`.

Callers run turns of every kind: some read to the end, some drop, some cancel in each mode; the upstream cuts,
stalls, errs and talks nonsense. Held to: every log has one end, every conversation goes on with a history that
a strict provider accepts, and memory, files, tasks and threads are where they were after the first quarter.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from bench.processes import open_files, threads
from tests.service.client import TurnwireClient
from tests.service.process import ServiceProcess
from tests.service.sse import TERMINAL
from tests.upstream.client import Scenario, UpstreamControl
from tests.upstream.process import upstream_process

JsonObject = dict[str, Any]
CALLERS = 8
TURNS_EACH = 6
"""Of one conversation, before its history is checked."""
SETTLED_WITHIN_S = 20
SPARE = {"files": 12, "threads": 12, "tasks": 2, "memory": 64 * 1024 * 1024}
SETTINGS = {"TURNWIRE_UPSTREAM_IDLE_S": 0.4, "TURNWIRE_UPSTREAM_RETRIES": 1, "TURNWIRE_HEARTBEAT_S": 1}
_TEXT = "There is a good deal to be said about kelp and it takes a while to say it all."
_LOOKUP = {"name": "lookup", "arguments": {"q": "kelp"}, "chunks": 3}


def replies() -> list[JsonObject]:
    """What the upstream does in one turn: mostly well, sometimes not."""
    words = {"text": _TEXT, "delay_s": random.uniform(0, 0.01)}
    faults: list[JsonObject] = [
        {"status": 500, "body": {"error": {"message": "down"}}},
        {"status": 429, "body": {"error": {"message": "slow down"}}, "headers": {"retry-after": "0"}},
        {"status": 200, "body": "<html>no</html>"},
        words | {"frames": 4, "end": "reset"},
        words | {"frames": 6},
        words | {"frames": 3, "end": "hang"},
        {"text": "", "usage": None},
    ]
    if random.random() < 0.25:
        return [random.choice(faults), words]
    if random.random() < 0.4:
        return [words | {"tool_calls": [_LOOKUP, _LOOKUP]}, words]
    return [words]


class Caller:
    """One caller with one conversation at a time."""

    def __init__(self, base_url: str, upstream: UpstreamControl) -> None:
        self._base_url = base_url
        self._upstream = upstream
        self.seen: Counter[str] = Counter()

    async def converse(self) -> None:
        """Some turns of one conversation, then the check of all that they left."""
        scenario = self._upstream.scenario("soak")
        client = TurnwireClient(self._base_url, model=scenario.model)
        ways: list[Callable[[TurnwireClient, Scenario, str], Awaitable[None]]] = [
            self._read,
            self._drop,
            self._cancel,
        ]
        try:
            conversation = scenario.gate("chat")
            for _ in range(TURNS_EACH):
                await scenario.script(*replies())
                await random.choice(ways)(client, scenario, conversation)
            await self._check(client, scenario, conversation)
        finally:
            await client.aclose()

    async def _read(self, client: TurnwireClient, scenario: Scenario, conversation: str) -> None:
        async with client.stream(
            "kelp?", conversation=conversation, agent="worker", on_conflict="enqueue"
        ) as stream:
            await stream.rest()

    async def _drop(self, client: TurnwireClient, scenario: Scenario, conversation: str) -> None:
        policy = random.choice(["continue", "cancel"])
        async with client.stream(
            "kelp?", conversation=conversation, agent="worker", on_conflict="enqueue", on_disconnect=policy
        ) as stream:
            for _ in range(random.randint(1, 8)):
                await anext(stream, None)
        self.seen["dropped"] += 1

    async def _cancel(self, client: TurnwireClient, scenario: Scenario, conversation: str) -> None:
        turn = await client.start("kelp?", conversation=conversation, agent="worker", on_conflict="enqueue")
        async with client.events(turn["id"]) as stream:
            for _ in range(random.randint(1, 8)):
                await anext(stream, None)
            response = await client.cancel(turn["id"], random.choice(["keep", "rollback", "after_step"]))
            assert response.status_code in (200, 202), response.text
            await stream.rest()

    async def _check(self, client: TurnwireClient, scenario: Scenario, conversation: str) -> None:
        for turn in await client.turns(conversation):
            log = await client.log(turn["id"])
            assert [f.type for f in log if f.type in TERMINAL] == [log[-1].type], turn["id"]
            assert [f.seq for f in log] == list(range(1, len(log) + 1)), turn["id"]
            self.seen[log[-1].type] += 1
        await self._goes_on(client, conversation)

    async def _goes_on(self, client: TurnwireClient, conversation: str) -> None:
        """A model of its own answers the last turn, so that what the others left over does not."""
        scenario = self._upstream.scenario("after")
        client.model = scenario.model
        turn = await client.run("And now?", conversation=conversation, agent="plain", on_conflict="enqueue")
        request = await scenario.last_request()
        assert turn["status"] == "completed", turn["error"]
        assert request.problems == [], request.problems


async def soak(seconds: float, folder: Path, origin: str) -> Counter[str]:
    """Go on for so long. Raises AssertionError if anything is wrong or left behind; returns what was seen."""
    upstream = UpstreamControl(origin)
    seen: Counter[str] = Counter()
    with ServiceProcess(folder, origin, **SETTINGS) as service:
        await _converse_until(time.monotonic() + seconds / 4, service, upstream, seen)
        before = await footprint(service)
        await _converse_until(time.monotonic() + seconds * 3 / 4, service, upstream, seen)
        await _settled(service, before)
        service.check_log()
    await upstream.aclose()
    return seen


async def _converse_until(
    end: float, service: ServiceProcess, upstream: UpstreamControl, seen: Counter[str]
) -> None:
    async def one() -> None:
        caller = Caller(service.base_url, upstream)
        while time.monotonic() < end:
            await caller.converse()
        seen.update(caller.seen)

    await asyncio.gather(*(one() for _ in range(CALLERS)))


async def footprint(service: ServiceProcess) -> dict[str, float]:
    client = TurnwireClient(service.base_url)
    try:
        figures = await client.figures()
    finally:
        await client.aclose()
    return {
        "files": open_files(service.pid),
        "threads": threads(service.pid),
        "tasks": figures["turnwire_tasks"],
        "memory": figures["process_resident_memory_bytes"],
        "turns": figures["turnwire_turns_running"],
        "listeners": figures["turnwire_listeners"],
    }


async def _settled(service: ServiceProcess, before: dict[str, float]) -> None:
    """Wait until nothing is above what it was, bounded."""
    before = before | {"turns": 0, "listeners": 0}
    deadline = time.monotonic() + SETTLED_WITHIN_S
    left = {"anything": 1.0}
    while left and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
        now = await footprint(service)
        left = {name: now[name] - before[name] for name in now if now[name] > before[name] + SPARE.get(name, 0)}
    assert not left, f"left behind: {left}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    random.seed(options.seed)
    with tempfile.TemporaryDirectory() as folder, upstream_process() as origin:
        try:
            seen = asyncio.run(soak(options.minutes * 60, Path(folder), origin))
        except (AssertionError, httpx.HTTPError):
            sys.stderr.write(f"the soak failed (seed {options.seed})\n")
            raise
        print(f"{dict(seen)}: nothing left behind (seed {options.seed})")


if __name__ == "__main__":
    main()
