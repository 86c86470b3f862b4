"""${message}"""

from alembic import op

revision = "${up_revision}"
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades if upgrades else "raise NotImplementedError"}
