"""Mark of a job that is being deleted."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Double

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("jobs", Column("deleting_at", Double))
