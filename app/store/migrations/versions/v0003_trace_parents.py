"""Under which span of its caller a turn is traced."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("turns", sa.Column("trace_parent", sa.Text))
