"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _conversations()
    _turns()
    _items()
    _events()
    _asked()
    _idempotency_keys()
    _external_ids()
    _artifacts()


def _key() -> sa.Column[int]:
    return sa.Column("key", sa.Integer, primary_key=True, autoincrement=True)


def _conversation(*, nullable: bool = False) -> sa.Column[int]:
    key = sa.ForeignKey("conversations.key", ondelete="CASCADE")
    return sa.Column("conversation_key", sa.Integer, key, nullable=nullable)


def _turn(*, nullable: bool = False) -> sa.Column[int]:
    return sa.Column("turn_key", sa.Integer, sa.ForeignKey("turns.key", ondelete="CASCADE"), nullable=nullable)


def _text(
    name: str, *, nullable: bool = False, unique: bool = False, primary_key: bool = False
) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable, unique=unique, primary_key=primary_key)


def _integer(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=nullable)


def _boolean(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False)


def _conversations() -> None:
    op.create_table(
        "conversations",
        _key(),
        _text("id"),
        _text("caller_name"),
        _text("caller_user"),
        _text("agent", nullable=True),
        _text("last_agent", nullable=True),
        _text("metadata"),
        _integer("head_key", nullable=True),
        _integer("created_at"),
        _integer("active_at"),
        sa.UniqueConstraint("caller_name", "id", "caller_user", name="one_id_per_caller"),
        sqlite_autoincrement=True,
    )
    op.create_index("conversations_by_activity", "conversations", ["caller_name", "active_at", "key"])


def _turns() -> None:
    op.create_table(
        "turns",
        _key(),
        _text("id", unique=True),
        _conversation(),
        _text("caller_name"),
        _text("caller_user"),
        _text("status"),
        _text("agent"),
        _text("last_agent", nullable=True),
        _text("model", nullable=True),
        _text("input"),
        _text("request"),
        _boolean("edits"),
        _integer("parent_key", nullable=True),
        _integer("previous_head_key", nullable=True),
        _text("output_text"),
        _text("output", nullable=True),
        _text("usage", nullable=True),
        _text("error", nullable=True),
        _text("pause", nullable=True),
        _text("cancel", nullable=True),
        sa.Column("state", sa.LargeBinary),
        _text("answers", nullable=True),
        _integer("runs"),
        _integer("last_event_id"),
        _text("events_form"),
        _text("metadata"),
        _integer("created_at"),
        _integer("started_at", nullable=True),
        _integer("ended_at", nullable=True),
        _text("owner", nullable=True),
        _integer("lease_until", nullable=True),
        _integer("attempt"),
        sqlite_autoincrement=True,
    )
    active = sa.text("status IN ('running', 'paused')")
    unfinished, ended = sa.text("ended_at IS NULL"), sa.text("ended_at IS NOT NULL")
    op.create_index("turns_of_conversation", "turns", ["conversation_key", "key"])
    op.create_index("turns_of_caller", "turns", ["caller_name", "key"])
    op.create_index("one_active_turn", "turns", ["conversation_key"], unique=True, sqlite_where=active)
    op.create_index("unfinished_turns", "turns", ["conversation_key", "key"], sqlite_where=unfinished)
    op.create_index("ended_turns", "turns", ["events_form", "ended_at"], sqlite_where=ended)


def _items() -> None:
    op.create_table(
        "items",
        _key(),
        _text("id"),
        _conversation(),
        _turn(nullable=True),
        _text("item"),
        _text("origin", nullable=True),
        _boolean("superseded"),
        _integer("compacted_by", nullable=True),
        _integer("created_at"),
        sqlite_autoincrement=True,
    )
    op.create_index("items_of_conversation", "items", ["conversation_key", "key"])
    op.create_index("items_of_turn", "items", ["turn_key", "key"])


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("key", sa.Integer, primary_key=True),
        _turn(),
        _integer("first_seq"),
        _integer("last_seq"),
        _boolean("packed"),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_index("events_of_turn", "events", ["turn_key", "first_seq"], unique=True)


def _asked() -> None:
    op.create_table(
        "asked",
        _key(),
        _turn(),
        _text("kind"),
        _text("id"),
        _text("pause_id"),
        _text("call_id", nullable=True),
        _text("tool", nullable=True),
        _text("agent", nullable=True),
        _text("arguments", nullable=True),
        _text("status"),
        _text("answer", nullable=True),
        _integer("answered_after", nullable=True),
        _integer("created_at"),
        _integer("expires_at"),
        _integer("answered_at", nullable=True),
        sa.UniqueConstraint("turn_key", "kind", "id", name="asked_once"),
        sqlite_autoincrement=True,
    )
    op.create_index("asked_by_status", "asked", ["status", "key"])


def _idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        _text("caller_name", primary_key=True),
        _text("caller_user", primary_key=True),
        _text("idempotency_key", primary_key=True),
        _text("fingerprint"),
        _turn(),
        _integer("after"),
        _integer("created_at"),
    )
    op.create_index("idempotency_keys_of_turn", "idempotency_keys", ["turn_key"])
    op.create_index("idempotency_keys_by_age", "idempotency_keys", ["created_at"])


def _external_ids() -> None:
    op.create_table(
        "external_ids",
        _key(),
        _text("caller_name"),
        _text("caller_user"),
        _text("protocol"),
        _text("kind"),
        _text("external_id"),
        _turn(),
        _text("item_id", nullable=True),
        sa.UniqueConstraint(
            "caller_name", "protocol", "kind", "external_id", "caller_user", name="one_external_id"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("external_ids_of_turn", "external_ids", ["turn_key"])


def _artifacts() -> None:
    op.create_table(
        "artifacts",
        _key(),
        _text("id", unique=True),
        _turn(),
        _text("name"),
        _text("media_type"),
        _integer("size"),
        _text("location"),
        _integer("created_at"),
        sqlite_autoincrement=True,
    )
    op.create_index("artifacts_of_turn", "artifacts", ["turn_key", "key"])
