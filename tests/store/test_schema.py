import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Thread, Timer

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Text, inspect

from app.store import DatabaseTooNew, UnsupportedDatabase, open_store
from app.store.database import Database, path_of
from app.store.schema import migrate
from app.store.tables import metadata
from tests.bounds import BOUND_S


def test_migrations_lead_to_the_tables_of_this_version(database: Path) -> None:
    file = Database(database)
    migrate(file)

    with file.connect(cache_mib=1) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": False})
        assert compare_metadata(context, metadata) == []
        for table in metadata.sorted_tables:
            stored = {c["name"]: type(c["type"]) for c in inspect(connection).get_columns(table.name)}
            assert all(issubclass(stored[c.name], Text) for c in table.c if isinstance(c.type, Text))


def test_migrating_twice_changes_nothing(database: Path) -> None:
    migrate(Database(database))
    migrate(Database(database))

    assert _version(database) == "0004"


def test_two_processes_that_start_together_migrate_once(database: Path) -> None:
    threads = [Thread(target=migrate, args=(Database(database),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)

    assert _version(database) == "0004"


def test_a_new_database_is_opened_while_another_holds_its_lock(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = Timer(0.1, other.execute, ["ROLLBACK"])
        release.start()
        migrate(Database(database))
        release.join(BOUND_S)
    assert _version(database) == "0004"


def test_database_of_a_newer_version_is_refused_and_left_alone(database: Path) -> None:
    migrate(Database(database))
    with closing(sqlite3.connect(database)) as raw, raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(DatabaseTooNew, match="newer Turnwire"):
        migrate(Database(database))
    assert _version(database) == "9999"


@pytest.mark.anyio
async def test_store_does_not_open_on_a_newer_database(database: Path) -> None:
    migrate(Database(database))
    with closing(sqlite3.connect(database)) as raw, raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(DatabaseTooNew):
        async with open_store(database, owner="me"):
            pass


@pytest.mark.parametrize(
    ("name", "path"),
    [("/data/x.db", "/data/x.db"), ("sqlite:////data/x.db", "/data/x.db"), ("sqlite:///x.db", "x.db")],
)
def test_database_is_named_by_a_path_or_a_url(name: str, path: str) -> None:
    assert path_of(name) == Path(path)


@pytest.mark.parametrize("name", ["postgresql://user:secret@host/db", "sqlite:///", "mysql:///x"])
def test_other_databases_are_refused_without_showing_the_url(name: str) -> None:
    with pytest.raises(UnsupportedDatabase) as refusal:
        path_of(name)
    assert "secret" not in str(refusal.value)


def _version(database: Path) -> str:
    with closing(sqlite3.connect(database)) as raw:
        return str(raw.execute("SELECT version_num FROM alembic_version").fetchone()[0])
