"""When a node's agent was stopped in order: it leaves at once, and not only when its lease runs out."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("nodes", sa.Column("left_at", sa.Double(), nullable=True))
