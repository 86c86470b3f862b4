"""What a delta costs on its way through the log: appended, committed to SQLite, shown to a listener.

    python bench/event_log.py [--turns 500] [--rate 20] [--seconds 5]

Each turn appends at its own pace and has one listener. Prints the time from append to the listener, and the CPU
of the whole process, for each delta.
"""

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from app.domain.caller import ANONYMOUS
from app.domain.events import MessageDelta, TurnCompleted, TurnStarted
from app.domain.ids import new_conversation_id, new_turn_id
from app.domain.ports import Admission, EventBatch, Settlement
from app.domain.turn import Turn, TurnRequest
from app.event_log import EventLogs, encoded
from app.event_log.live_log import LiveLog
from app.store import DataFolder, SqliteStore, open_store

WINDOW_BYTES = 4 * 1024 * 1024


@dataclass
class Load:
    turns: int
    rate: float
    seconds: float
    latencies_ms: list[float] = field(default_factory=list)


async def admitted(store: SqliteStore, logs: EventLogs) -> tuple[Turn, LiveLog]:
    turn_id = new_turn_id()
    log = logs.open(turn_id, next_seq=2)
    started = encoded(TurnStarted("c", "a", 1, "now"), turn_id=turn_id, seq=1)
    admission = Admission(
        turn_id=turn_id,
        caller=ANONYMOUS,
        conversation_id=new_conversation_id(),
        request=TurnRequest(input="hello"),
        agent="a",
        model=None,
        first_batch=lambda _turn, _position: EventBatch((started,)),
        queue_limit=0,
    )
    answer = await store.admit(admission)
    logs.bind(log, answer.turn.key, answer.turn.conversation_key)
    log.publish(answer.batch or EventBatch(()))
    return answer.turn, log


async def write(
    store: SqliteStore, logs: EventLogs, turn: Turn, log: LiveLog, load: Load, offset: float
) -> None:
    """Append at the load's rate; each delta holds the time at which it was appended."""
    loop = asyncio.get_running_loop()
    begin = loop.time() + offset
    for number in range(int(load.rate * load.seconds)):
        await asyncio.sleep(begin + number / load.rate - loop.time())
        log.append(MessageDelta("item_1", f"{time.perf_counter():.6f} and so on"))
    log.append(TurnCompleted({}))
    await log.flush()
    logs.close(turn.id)


async def listen(logs: EventLogs, turn: Turn, load: Load) -> None:
    async with aclosing(logs.tail(turn, 1)) as source:
        async for entries in source:
            at = time.perf_counter()
            for entry in entries:
                if entry.type == "message.delta":
                    text = entry.data.split(b'"delta":"')[1].split(b" ")[0]
                    load.latencies_ms.append((at - float(text)) * 1000)


async def settle(store: SqliteStore, turn: Turn, log: LiveLog) -> None:
    ended = Turn(**{name: getattr(turn, name) for name in Turn.__slots__} | {"status": "completed"})
    await store.settle(Settlement(ended, (), log.take(), rollback=False))


async def run(load: Load) -> float:
    with tempfile.TemporaryDirectory() as folder, DataFolder(Path(folder)) as data:
        async with open_store(data.database, owner="bench") as store:
            logs = EventLogs(store, window_bytes=WINDOW_BYTES)
            live = [await admitted(store, logs) for _ in range(load.turns)]
            before = cpu_s()
            async with asyncio.TaskGroup() as tasks:
                for number, (turn, log) in enumerate(live):
                    offset = number / load.turns / load.rate
                    tasks.create_task(write(store, logs, turn, log, load, offset))
                    tasks.create_task(listen(logs, turn, load))
            spent = cpu_s() - before
            for turn, log in live:
                await settle(store, turn, log)
    return spent


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--seconds", type=float, default=5)
    given = parser.parse_args()
    load = Load(given.turns, given.rate, given.seconds)
    spent = uvloop.run(run(load))
    cuts = statistics.quantiles(load.latencies_ms, n=100)
    count = len(load.latencies_ms)
    print(
        f"{load.turns} turns x {load.rate:g}/s: {count} deltas, "
        f"p50 {cuts[49]:.2f} ms, p95 {cuts[94]:.2f} ms, p99 {cuts[98]:.2f} ms, "
        f"{spent / count * 1e6:.0f} us of CPU a delta"
    )


if __name__ == "__main__":
    main()
