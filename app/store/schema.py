"""Brings the database to this version's tables, or refuses one that a newer version wrote."""

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from app.store.database import Database


class DatabaseTooNew(Exception):
    """The database was written by a newer version, whose tables this one does not know."""


def migrate(database: Database) -> None:
    """Run what is missing, in one transaction that also keeps a second starting process out."""
    config = Config()
    config.set_main_option("script_location", "app.store:migrations")
    with database.connect(cache_mib=8) as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            current = MigrationContext.configure(connection).get_current_revision()
            _check_known(ScriptDirectory.from_config(config), current)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
        except BaseException:
            connection.exec_driver_sql("ROLLBACK")
            raise
        connection.exec_driver_sql("COMMIT")


def _check_known(versions: ScriptDirectory, current: str | None) -> None:
    if current is not None and current not in {script.revision for script in versions.walk_revisions()}:
        raise DatabaseTooNew(
            f"the database is of version {current!r}, written by a newer Turnwire, and this one knows up to "
            f"{versions.get_current_head()!r}: run that version, or restore the backup made before it ran"
        )
