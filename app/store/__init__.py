"""All SQL: tables, migrations, one writer."""

from app.store.data_folder import DataFolder, FolderInUse
from app.store.database import UnsupportedDatabase
from app.store.schema import DatabaseTooNew
from app.store.store import SqliteStore, open_store

__all__ = ["DataFolder", "DatabaseTooNew", "FolderInUse", "SqliteStore", "UnsupportedDatabase", "open_store"]
