"""Time since which a device is free."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Double

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("devices", Column("free_since", Double))
