"""Which pauses are over, without a look at those that are not."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_index("asked_by_expiry", "asked", ["status", "expires_at"])
