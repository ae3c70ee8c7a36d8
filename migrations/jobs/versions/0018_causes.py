"""Cause of the end of a gang, known before all of its parts have ended."""

from __future__ import annotations

from alembic import op
from sqlalchemy import JSON, Column, Double

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column("attempts", Column("cause", JSON))
    op.add_column("attempts", Column("cause_at", Double))
