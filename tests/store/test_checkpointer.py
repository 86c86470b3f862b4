from pathlib import Path

import pytest

from app.store import open_store
from app.store.checkpointer import Checkpointer
from app.store.database import Database, driver
from app.store.schema import migrate
from tests.store.scene import Scene

MIB = 1024 * 1024


def grow(database: Database, mib: int) -> None:
    with database.connect(cache_mib=1) as connection:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS notes (text TEXT)")
        for _ in range(mib):
            connection.exec_driver_sql("INSERT INTO notes VALUES (?)", ("x" * MIB,))


def test_log_is_moved_into_the_database_and_cut_once_it_is_long(database: Path) -> None:
    file = Database(database)
    migrate(file)
    checkpointer = Checkpointer(file, truncate_bytes=3 * MIB)
    with file.connect(cache_mib=1) as connection:
        grow(file, 2)
        checkpointer.checkpoint(driver(connection))
        assert database.stat().st_size > 2 * MIB
        assert file.wal_path.stat().st_size > 2 * MIB
        grow(file, 4)
        checkpointer.checkpoint(driver(connection))
        assert file.wal_path.stat().st_size == 0


@pytest.mark.anyio
async def test_nothing_is_left_in_the_log_when_the_store_has_closed(database: Path) -> None:
    async with open_store(database, owner="me") as store:
        await Scene(store).ran("chat", "a")
    wal = Database(database).wal_path

    assert not wal.exists() or wal.stat().st_size == 0
