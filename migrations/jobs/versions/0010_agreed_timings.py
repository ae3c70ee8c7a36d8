"""Timings on which all programs agree."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("passes", sa.Column("timings", sa.JSON(), nullable=True))
