"""Origin of an event that a node sends, so that it is added once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("events", sa.Column("origin", sa.String(160), nullable=True))
    op.create_index("ix_events_origin", "events", ["origin"], unique=True)
