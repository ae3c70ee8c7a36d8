"""Mark of a node that was removed."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Double

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("nodes", Column("removed_at", Double))
