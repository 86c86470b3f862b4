from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.event_log import EventLogs
from app.store import SqliteStore, open_store
from tests.event_log.live import LiveScene


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with open_store(tmp_path / "turnwire.sqlite3", owner="this process") as store:
        yield store


@pytest.fixture
def logs(store: SqliteStore) -> EventLogs:
    return EventLogs(store, window_bytes=1 << 20)


@pytest.fixture
def live(store: SqliteStore, logs: EventLogs) -> LiveScene:
    return LiveScene(store, logs)
