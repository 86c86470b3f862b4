"""Pages by key: a cursor names the last row that was read, so that rows that come or go shift nothing."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Row

from app.domain.conversation import Page
from app.errors import BadRequest

T = TypeVar("T")
AnyRow = Row[*tuple[Any, ...]]
_LARGEST = 2**63 - 1


def encode(kind: str, *values: int) -> str:
    """`kind` names the list, so that a cursor of another one is refused."""
    return urlsafe_b64encode(":".join((kind, *map(str, values))).encode()).decode().rstrip("=")


def decode(kind: str, cursor: str, count: int) -> tuple[int, ...]:
    """The numbers in a cursor. Raises BadRequest if it is not one of this list."""
    try:
        name, *texts = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().split(":")
        values = tuple(int(text) for text in texts)
    except ValueError:
        name, values = "", ()
    if name != kind or len(values) != count or any(abs(value) > _LARGEST for value in values):
        raise BadRequest(
            f"cursor: {cursor[:80]!r} is no cursor of this list; take it from the `next` of a page"
        )
    return values


def page_of(
    rows: Sequence[AnyRow],
    limit: int,
    read: Callable[[AnyRow], T],
    cursor: Callable[[AnyRow], str],
) -> Page[T]:
    """A page from up to `limit + 1` rows: the one too many says that there is a next page."""
    shown = rows[:limit]
    return Page([read(row) for row in shown], cursor(shown[-1]) if len(rows) > limit else None)
