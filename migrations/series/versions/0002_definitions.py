"""Definitions of series that scripts write."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, String, Text

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "series_definitions",
        Column("job_id", String(36), primary_key=True),
        Column("name", String(200), primary_key=True),
        Column("definition", Text, nullable=False),
    )
