"""Names that nodes offer, and that jobs need of them."""

from __future__ import annotations

from alembic import op
from sqlalchemy import JSON, Column

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("nodes", Column("offers", JSON, nullable=False, server_default="[]"))
    op.add_column("jobs", Column("needs", JSON, nullable=False, server_default="[]"))
