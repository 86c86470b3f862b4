"""What a turn costs as its history grows, and as the database does."""

import asyncio
import sqlite3
import statistics
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from app.store.data_folder import DataFolder
from bench.figures import Bench, Line, ms, spread
from bench.processes import cpu_s, service
from bench.reading import Client

ROUNDS = 20


async def history(bench: Bench) -> AsyncIterator[Line]:
    """A turn on 10, 1,000 and 10,000 items, beside reading them from SQLite and writing them as JSON."""
    async with service(bench) as process:
        client = Client(process.base_url)
        await client.turn("words 20")
        rounds = bench.pick(ROUNDS, 3)
        for count in (10, 1000, bench.pick(10_000, 5000)):
            name = f"items{count}"
            await _fill(client, name, count)
            before, began = cpu_s(process.pid), time.monotonic()
            for _ in range(rounds):
                await client.turn("words 4", conversation=name)
            spent, took = cpu_s(process.pid) - before, time.monotonic() - began
            needed = _needed(Path(process.folder), name, rounds)
            yield Line(
                f"a turn on {count} items",
                f"CPU {ms(spent / rounds)}, {ms(took / rounds)} in all",
                spent / rounds / needed,
                f"reading and writing them ({ms(needed)})",
            )
            alone = await _waits(client, asyncio.sleep(0.2))
            beside = [await _waits(client, client.turn("words 4", conversation=name)) for _ in range(rounds)]
            longest = statistics.median(max(waits) for waits in beside)
            yield Line(f"the longest GET beside a turn on {count} items", ms(longest), against=_plain(alone))


async def _waits(client: Client, work: Coroutine[Any, Any, Any]) -> list[float]:
    """How long plain requests take, one after the other, for as long as the work does."""
    task = asyncio.create_task(work)
    waits = []
    while not task.done():
        waits.append((await client.request("GET", "/healthz"))[2])
    await task
    return waits


def _plain(waits: list[float]) -> str:
    return f"alone: {spread(waits)}"


async def _fill(client: Client, conversation: str, count: int) -> None:
    words = "Something was said here, as people do, at some length and to no end. "
    items = [
        {"role": "user", "content": words}
        if number % 2 == 0
        else {"role": "assistant", "content": [{"type": "output_text", "text": words}]}
        for number in range(count)
    ]
    status, body, _ = await client.request("POST", "/v1/conversations", {"id": conversation, "items": items})
    assert status == 201, body


def _needed(folder: Path, conversation: str, rounds: int) -> float:
    """CPU seconds to read a conversation's items from the database and to write them as one JSON text."""
    began = time.process_time()
    for _ in range(rounds):
        with closing(sqlite3.connect(_database(folder))) as database:
            query = (
                "SELECT item FROM items WHERE conversation_key = (SELECT key FROM conversations WHERE id = ?)"
            )
            rows: list[Any] = [orjson.loads(item) for (item,) in database.execute(query, (conversation,))]
        orjson.dumps(rows)
    return (time.process_time() - began) / rounds


def _database(folder: Path) -> Path:
    return DataFolder(folder).database


async def database(bench: Bench) -> AsyncIterator[Line]:
    """A turn on a database of 100 conversations, and of 100,000."""
    rounds = bench.pick(100, 20)
    costs: list[float] = []
    sizes = (100, bench.pick(100_000, 10_000))
    for count in sizes:
        folder = bench.folder / f"database-of-{count}"
        async with service(bench, folder=folder) as process:
            await Client(process.base_url).turn("words 20")
        await asyncio.to_thread(_multiply, folder, count)
        async with service(bench, folder=folder) as process:
            client = Client(process.base_url)
            await _some_turns(client, 20)
            before = cpu_s(process.pid)
            await _some_turns(client, rounds)
            costs.append((cpu_s(process.pid) - before) / rounds)
    small, large = costs
    ratio = large / small
    yield Line(
        f"a turn among {sizes[1]} conversations", f"CPU {ms(large)}", ratio, f"among {sizes[0]} ({ms(small)})"
    )


async def _some_turns(client: Client, count: int) -> None:
    for number in range(count):
        await client.turn("words 4", conversation=f"own{number % 10}")
        await client.request("GET", f"/v1/conversations/own{number % 10}/items")


def _multiply(folder: Path, count: int) -> None:
    """Copy the one conversation that the database holds, with all that belongs to it, so many times."""
    with closing(sqlite3.connect(_database(folder))) as database, database:
        for table in ("conversations", "turns", "items", "events"):
            cursor = database.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor]
            marks = ", ".join("?" for _ in names)
            database.executemany(f"INSERT INTO {table} VALUES ({marks})", _copies(rows, count))


def _copies(rows: list[dict[str, Any]], count: int) -> Iterator[list[Any]]:
    """Keys are numbers, and those of a copy point at the copy; ids are its own."""
    for number in range(1, count):
        for row in rows:
            yield [_copied(name, value, number) for name, value in row.items()]


def _copied(name: str, value: Any, number: int) -> Any:
    if value is None:
        return None
    if name == "key" or name.endswith("_key"):
        return int(value) + number * 1000
    return f"{value}-{number}" if name == "id" else value
