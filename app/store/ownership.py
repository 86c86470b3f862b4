"""Whose a row is: the caller's by name, narrowed to one of its users if the caller says so."""

from sqlalchemy import ColumnElement, Table, and_, bindparam

from app.domain.caller import Caller
from app.store.cursors import AnyRow


def owned_by(table: Table, *, narrowed: bool) -> ColumnElement[bool]:
    """For a statement that is given the `owner_columns` of a caller; `narrowed`: of one that has a user.

    A caller without a user sees everything of its name.
    """
    same_name = table.c.caller_name == bindparam("caller_name")
    return and_(same_name, table.c.caller_user == bindparam("caller_user")) if narrowed else same_name


def owner_columns(caller: Caller) -> dict[str, str]:
    return {"caller_name": caller.name, "caller_user": caller.user or ""}


def owner_of(row: AnyRow) -> Caller:
    return Caller(row.caller_name, row.caller_user or None)
