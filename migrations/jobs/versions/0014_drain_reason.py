"""Reason, person and time of the drain of a node."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Double, String, Text

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("nodes", Column("drain_reason", Text))
    op.add_column("nodes", Column("drained_by", String(255)))
    op.add_column("nodes", Column("drained_at", Double))
