"""Index for the jobs of one owner."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_index("ix_jobs_actor_id", "jobs", ["actor", "id"], unique=False)
