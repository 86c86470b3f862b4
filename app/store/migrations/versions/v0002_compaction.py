"""Compaction: which items a turn has put a summary in the place of, and where that stands."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "compacted",
        sa.Column("item_key", sa.Integer, sa.ForeignKey("items.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("turn_key", sa.Integer, sa.ForeignKey("turns.key", ondelete="CASCADE"), primary_key=True),
    )
    op.create_index("compacted_by_turn", "compacted", ["turn_key"])
    op.add_column("items", sa.Column("stands_at", sa.Integer))
    op.drop_column("items", "compacted_by")
