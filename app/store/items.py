"""History: the items of a conversation, and which of them the model sees.

History is a tree of turns: each knows its parent, the conversation knows its head. An item is superseded if
its turn is not on the way from the head to the start, or if a turn on that way compacted it; items without a
turn (what a conversation was created with) are always on it. The flag is kept beside each item and is
computed anew only when the head jumps.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, select, text, update

from app.domain.conversation import Compaction, NewItem, Page, PageRequest, StoredItem
from app.domain.ids import ItemId, TurnId
from app.domain.turn import now
from app.store import cursors
from app.store.cursors import AnyRow
from app.store.database import driver
from app.store.json_text import decode
from app.store.tables import compacted, instant, items, turns

_CHAIN = """
WITH RECURSIVE chain(key) AS (
    SELECT :head WHERE :head IS NOT NULL
    UNION
    SELECT turns.parent_key FROM turns JOIN chain ON turns.key = chain.key WHERE turns.parent_key IS NOT NULL
)
"""
_ON_CHAIN = """
(turn_key IS NULL OR turn_key IN (SELECT key FROM chain))
AND NOT EXISTS (
    SELECT 1 FROM compacted WHERE item_key = items.key AND compacted.turn_key IN (SELECT key FROM chain)
)
"""
_MARK = text(
    f"{_CHAIN} UPDATE items SET superseded = NOT ({_ON_CHAIN}) "  # noqa: S608 - constants
    f"WHERE conversation_key = :conversation AND superseded = ({_ON_CHAIN})"
)
_COPY = text(
    f"{_CHAIN} INSERT INTO items (id, conversation_key, item, origin, superseded, created_at) "  # noqa: S608
    f"SELECT id, :copy, item, origin, 0, created_at FROM items "
    f"WHERE conversation_key = :conversation AND {_ON_CHAIN} ORDER BY coalesce(stands_at, key), key"
)
_UNFOLDED = text(
    f"{_CHAIN} SELECT key FROM items WHERE conversation_key = :conversation AND stands_at IS NULL "  # noqa: S608
    "AND (turn_key IS NULL OR turn_key IN (SELECT key FROM chain))"
)
_IDS_AT_ONCE = 500

_ADD = insert(items)
_OWN = and_(items.c.turn_key == bindparam("of_turn"), items.c.stands_at.is_(None))
"""What a turn has said; its summary is none of it."""
_OF_TURN = select(items).where(_OWN).order_by(items.c.key)
_REMOVE_FROM = delete(items).where(_OWN, items.c.key >= bindparam("first_gone"))

_PLACE = func.coalesce(items.c.stands_at, items.c.key)
_STORED = (
    select(items, turns.c.id.label("turn_id"))
    .select_from(items.outerjoin(turns))
    .where(items.c.conversation_key == bindparam("of_conversation"))
)
_VISIBLE = (
    "SELECT items.id, turns.id, items.created_at, items.item, items.origin, items.stands_at IS NOT NULL "
    "FROM items LEFT JOIN turns ON turns.key = items.turn_key "
    "WHERE items.conversation_key = ? AND items.superseded = 0 "
    "ORDER BY coalesce(items.stands_at, items.key), items.key"
)
"""For the driver: each turn reads its whole conversation, and types would cost twice as much as all else."""


def add(
    connection: Connection,
    conversation_key: int,
    turn_key: int | None,
    new: Iterable[NewItem],
    stands_at: int | None = None,
) -> None:
    at = now()
    rows = [
        {
            "id": n.id,
            "conversation_key": conversation_key,
            "turn_key": turn_key,
            "item": n.item,
            "origin": n.origin,
            "superseded": False,
            "stands_at": stands_at,
            "created_at": at,
        }
        for n in new
    ]
    if rows:
        connection.execute(_ADD, rows)


def of_turn(connection: Connection, turn_key: int) -> list[NewItem]:
    return [new for _, new in _with_keys(connection, turn_key)]


def replace_of_turn(
    connection: Connection, conversation_key: int, turn_key: int, new: Sequence[NewItem]
) -> None:
    """Let the turn have exactly these items; those at the beginning that are the same stay as they are."""
    old = _with_keys(connection, turn_key)
    same = sum(1 for _ in takewhile(lambda pair: pair[0][1] == pair[1], zip(old, new, strict=False)))
    gone = [key for key, _ in old[same:]]
    if gone:
        connection.execute(_REMOVE_FROM, {"of_turn": turn_key, "first_gone": gone[0]})
    add(connection, conversation_key, turn_key, new[same:])


def _with_keys(connection: Connection, turn_key: int) -> list[tuple[int, NewItem]]:
    rows = connection.execute(_OF_TURN, {"of_turn": turn_key})
    return [(row.key, NewItem(ItemId(row.id), row.item, row.origin)) for row in rows]


def page(connection: Connection, conversation_key: int, request: PageRequest) -> Page[StoredItem]:
    """All items, superseded ones too."""
    query = _STORED
    descending = request.order == "desc"
    if request.cursor is not None:
        (key,) = cursors.decode("items", request.cursor, 1)
        query = query.where(items.c.key < key if descending else items.c.key > key)
    query = query.order_by(items.c.key.desc() if descending else items.c.key).limit(request.limit + 1)
    rows = connection.execute(query, {"of_conversation": conversation_key}).all()
    return cursors.page_of(rows, request.limit, _item, _cursor)


def visible(connection: Connection, conversation_key: int) -> list[StoredItem]:
    """What the model sees, in order."""
    return [
        StoredItem(ItemId(item_id), turn_id, instant(at), False, decode(item), origin, bool(is_summary))
        for item_id, turn_id, at, item, origin, is_summary in driver(connection).execute(
            _VISIBLE, (conversation_key,)
        )
    ]


def unfolded(connection: Connection, conversation_key: int, head: int | None) -> list[StoredItem]:
    """What the model would see if nothing had been compacted, in order."""
    keys = connection.scalars(_UNFOLDED, {"head": head, "conversation": conversation_key}).all()
    rows = connection.execute(_STORED, {"of_conversation": conversation_key})
    found = {row.key: _item(row) for row in rows}
    return [found[key] for key in sorted(keys)]


def compact(connection: Connection, conversation_key: int, turn_key: int, compaction: Compaction) -> None:
    """Put a turn's summary in the place of items before it."""
    found: list[tuple[int, int]] = []
    for start in range(0, len(compaction.compacted), _IDS_AT_ONCE):
        ids = compaction.compacted[start : start + _IDS_AT_ONCE]
        here = and_(items.c.conversation_key == conversation_key, items.c.id.in_(ids))
        found += [(key, at) for key, at in connection.execute(select(items.c.key, _PLACE).where(here))]
        connection.execute(update(items).where(here).values(superseded=True))
    if found:
        rows = [{"item_key": key, "turn_key": turn_key} for key, _ in found]
        connection.execute(insert(compacted), rows)
        first = min(at for _, at in found)
        add(connection, conversation_key, turn_key, compaction.summary, stands_at=first)


def undo_compaction(connection: Connection, turn_key: int) -> bool:
    """Forget what a turn has compacted; True if there was anything. The flags must be computed anew then."""
    undone = connection.execute(delete(compacted).where(compacted.c.turn_key == turn_key)).rowcount
    connection.execute(delete(items).where(items.c.turn_key == turn_key, items.c.stands_at.is_not(None)))
    return undone > 0


def mark_superseded(connection: Connection, conversation_key: int, head: int | None) -> None:
    """Compute every item's flag anew: the head has jumped."""
    connection.execute(_MARK, {"head": head, "conversation": conversation_key})


def copy_history(connection: Connection, source_key: int, copy_key: int, head: int | None) -> None:
    """Give a conversation the items that are visible from `head` in another one, as items without a turn."""
    connection.execute(_COPY, {"head": head, "conversation": source_key, "copy": copy_key})


def _cursor(row: AnyRow) -> str:
    return cursors.encode("items", row.key)


def _item(row: AnyRow) -> StoredItem:
    return StoredItem(
        id=ItemId(row.id),
        turn_id=row.turn_id and TurnId(row.turn_id),
        created_at=row.created_at,
        superseded=row.superseded,
        item=row.item,
        origin=row.origin,
        is_summary=row.stands_at is not None,
    )
