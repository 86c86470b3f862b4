from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.store import SqliteStore, open_store
from tests.store.scene import Scene


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "turnwire.sqlite3"


@pytest.fixture
async def store(database: Path) -> AsyncIterator[SqliteStore]:
    async with open_store(database, owner="this process") as store:
        yield store


@pytest.fixture
def scene(store: SqliteStore) -> Scene:
    return Scene(store)
