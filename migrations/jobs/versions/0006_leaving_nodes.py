"""Time of an agent's orderly stop: its node leaves at once, instead of at the end of its lease."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("nodes", sa.Column("left_at", sa.Double(), nullable=True))
