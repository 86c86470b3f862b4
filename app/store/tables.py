"""The tables. A change here needs a migration beside it; a test compares the two.

Every `key` is the database's own number, never reused. JSON columns are text: a native JSON type refuses what
models send. Times are whole microseconds since 1970, in UTC.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)

from app.store import json_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class CleanText(TypeDecorator[str]):
    """Text that SQLite takes: a lone surrogate is replaced, as a value and in a comparison."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else json_text.without_surrogates(value)


class JsonText(TypeDecorator[Any]):
    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json_text.encode(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json_text.decode(value)


class Instant(TypeDecorator[datetime]):
    impl = Integer
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else instant(value)


def microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def instant(value: int) -> datetime:
    """What `microseconds` has made a number."""
    return _EPOCH + timedelta(microseconds=value)


metadata = MetaData()


def _key() -> Column[int]:
    return Column("key", Integer, primary_key=True, autoincrement=True)


def _belongs_to(table: str, *, nullable: bool = False) -> Column[int]:
    name = {"conversations": "conversation_key", "turns": "turn_key"}[table]
    return Column(name, Integer, ForeignKey(f"{table}.key", ondelete="CASCADE"), nullable=nullable)


conversations = Table(
    "conversations",
    metadata,
    _key(),
    Column("id", CleanText, nullable=False),
    Column("caller_name", CleanText, nullable=False),
    Column("caller_user", CleanText, nullable=False, comment="empty: no user"),
    Column("agent", CleanText),
    Column("last_agent", CleanText),
    Column("metadata", JsonText, nullable=False),
    Column("head_key", Integer, comment="the newest turn that history leads to"),
    Column("created_at", Instant, nullable=False),
    Column("active_at", Instant, nullable=False),
    UniqueConstraint("caller_name", "id", "caller_user", name="one_id_per_caller"),
    Index("conversations_by_activity", "caller_name", "active_at", "key"),
    sqlite_autoincrement=True,
)

turns = Table(
    "turns",
    metadata,
    _key(),
    Column("id", CleanText, nullable=False, unique=True),
    _belongs_to("conversations"),
    Column("caller_name", CleanText, nullable=False),
    Column("caller_user", CleanText, nullable=False),
    Column("status", CleanText, nullable=False),
    Column("agent", CleanText, nullable=False),
    Column("last_agent", CleanText),
    Column("model", CleanText),
    Column("input", JsonText, nullable=False, comment="the request's, apart: lists go without it"),
    Column("request", JsonText, nullable=False),
    Column("edits", Boolean, nullable=False, comment="after_turn was given"),
    Column("parent_key", Integer, comment="the turn it followed; null: the start"),
    Column("previous_head_key", Integer, comment="the conversation's head before it ran"),
    Column("output_text", CleanText, nullable=False),
    Column("output", JsonText),
    Column("usage", JsonText),
    Column("error", JsonText),
    Column("pause", JsonText),
    Column("cancel", JsonText),
    Column("state", LargeBinary, comment="the run as it was when it paused"),
    Column("answers", JsonText, comment="what was answered to the pause so far"),
    Column("runs", Integer, nullable=False),
    Column("last_event_id", Integer, nullable=False, comment="as of the last pause or the end"),
    Column("events_form", CleanText, nullable=False, comment="plain, packed or expired"),
    Column("metadata", JsonText, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("ended_at", Instant),
    Column("owner", CleanText, comment="the process that runs it"),
    Column("lease_until", Instant, comment="null: as long as its owner holds the data folder"),
    Column("attempt", Integer, nullable=False),
    Column("trace_parent", CleanText),
    Index("turns_of_conversation", "conversation_key", "key"),
    Index("turns_of_caller", "caller_name", "key"),
    Index(
        "one_active_turn",
        "conversation_key",
        unique=True,
        sqlite_where=text("status IN ('running', 'paused')"),
    ),
    Index("unfinished_turns", "conversation_key", "key", sqlite_where=text("ended_at IS NULL")),
    Index("ended_turns", "events_form", "ended_at", sqlite_where=text("ended_at IS NOT NULL")),
    sqlite_autoincrement=True,
)

items = Table(
    "items",
    metadata,
    _key(),
    Column("id", CleanText, nullable=False),
    _belongs_to("conversations"),
    _belongs_to("turns", nullable=True),
    Column("item", JsonText, nullable=False),
    Column("origin", CleanText, comment="the upstream that made it"),
    Column("superseded", Boolean, nullable=False, comment="not on the way from the head, or compacted"),
    Column("stands_at", Integer, comment="of a summary: the key of the first item that it stands for"),
    Column("created_at", Instant, nullable=False),
    Index("items_of_conversation", "conversation_key", "key"),
    Index("items_of_turn", "turn_key", "key"),
    sqlite_autoincrement=True,
)

compacted = Table(
    "compacted",
    metadata,
    Column("item_key", Integer, ForeignKey("items.key", ondelete="CASCADE"), primary_key=True),
    Column("turn_key", Integer, ForeignKey("turns.key", ondelete="CASCADE"), primary_key=True),
    Index("compacted_by_turn", "turn_key"),
)
"""Which turns have put a summary in the place of an item; each holds on the branches that lead over it."""

events = Table(
    "events",
    metadata,
    Column("key", Integer, primary_key=True),
    _belongs_to("turns"),
    Column("first_seq", Integer, nullable=False),
    Column("last_seq", Integer, nullable=False),
    Column("packed", Boolean, nullable=False, comment="the body is compressed by zlib"),
    Column("body", LargeBinary, nullable=False, comment="one JSON object a line"),
    Index("events_of_turn", "turn_key", "first_seq", unique=True),
)

asked = Table(
    "asked",
    metadata,
    _key(),
    _belongs_to("turns"),
    Column("kind", CleanText, nullable=False, comment="approval, tool_output or step"),
    Column("id", CleanText, nullable=False, comment="the approval's, the call's or the pause's"),
    Column("pause_id", CleanText, nullable=False),
    Column("call_id", CleanText),
    Column("tool", CleanText),
    Column("agent", CleanText),
    Column("arguments", JsonText),
    Column("status", CleanText, nullable=False, comment="pending, approved, rejected, answered, cancelled"),
    Column("answer", JsonText),
    Column("answered_after", Integer, comment="the answer's stream begins behind this event"),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("answered_at", Instant),
    UniqueConstraint("turn_key", "kind", "id", name="asked_once"),
    Index("asked_by_status", "status", "key"),
    Index("asked_by_expiry", "status", "expires_at"),
    sqlite_autoincrement=True,
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("caller_name", CleanText, primary_key=True),
    Column("caller_user", CleanText, primary_key=True),
    Column("idempotency_key", CleanText, primary_key=True),
    Column("fingerprint", CleanText, nullable=False),
    _belongs_to("turns"),
    Column("after", Integer, nullable=False, comment="the answer's stream begins behind this event"),
    Column("created_at", Instant, nullable=False),
    Index("idempotency_keys_of_turn", "turn_key"),
    Index("idempotency_keys_by_age", "created_at"),
)

external_ids = Table(
    "external_ids",
    metadata,
    _key(),
    Column("caller_name", CleanText, nullable=False),
    Column("caller_user", CleanText, nullable=False),
    Column("protocol", CleanText, nullable=False),
    Column("kind", CleanText, nullable=False, comment="response, run or message"),
    Column("external_id", CleanText, nullable=False),
    _belongs_to("turns"),
    Column("item_id", CleanText),
    UniqueConstraint("caller_name", "protocol", "kind", "external_id", "caller_user", name="one_external_id"),
    Index("external_ids_of_turn", "turn_key"),
    sqlite_autoincrement=True,
)

artifacts = Table(
    "artifacts",
    metadata,
    _key(),
    Column("id", CleanText, nullable=False, unique=True),
    _belongs_to("turns"),
    Column("name", CleanText, nullable=False),
    Column("media_type", CleanText, nullable=False),
    Column("size", Integer, nullable=False),
    Column("location", CleanText, nullable=False, comment="below the folder of artifacts"),
    Column("created_at", Instant, nullable=False),
    Index("artifacts_of_turn", "turn_key", "key"),
    sqlite_autoincrement=True,
)
