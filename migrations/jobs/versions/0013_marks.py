"""Labels, notes and stars of jobs, which people change."""

from __future__ import annotations

from alembic import op
from sqlalchemy import JSON, Boolean, Column, Text, false

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("jobs", Column("labels", JSON))
    op.add_column("jobs", Column("note", Text))
    op.add_column("jobs", Column("starred", Boolean, nullable=False, server_default=false()))
