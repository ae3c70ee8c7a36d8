"""Duration of a job's checkpoint, and the grace of the stop that was requested."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("save_time", sa.JSON(), nullable=True))
    op.add_column("jobs", sa.Column("stop_grace", sa.JSON(), nullable=True))
