"""Whose a row is: the caller's by name, narrowed to one of its users if the caller says so."""

from sqlalchemy import ColumnElement, Table, and_

from app.domain.caller import Caller
from app.store.cursors import AnyRow


def owned_by(table: Table, caller: Caller) -> ColumnElement[bool]:
    """A caller without a user sees everything of its name."""
    same_name = table.c.caller_name == caller.name
    return same_name if caller.user is None else and_(same_name, table.c.caller_user == caller.user)


def owner_columns(caller: Caller) -> dict[str, str]:
    return {"caller_name": caller.name, "caller_user": caller.user or ""}


def owner_of(row: AnyRow) -> Caller:
    return Caller(row.caller_name, row.caller_user or None)
