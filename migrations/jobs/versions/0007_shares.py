"""Shares and limits of projects, and reasons and holds of jobs that wait."""

from __future__ import annotations

from alembic import op
from sqlalchemy import JSON, Column, Double, Integer, String

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("jobs", Column("wait_code", String(64)))
    op.add_column("jobs", Column("wait_facts", JSON))
    op.add_column("jobs", Column("hold", JSON))
    op.add_column("jobs", Column("timeout_source", String(16)))
    op.add_column("projects", Column("weight", Double, nullable=False, server_default="1"))
    op.add_column("projects", Column("gpus_max", Integer))
    op.add_column("projects", Column("gpus_per_user_max", Integer))
    op.add_column("projects", Column("queued_per_user_max", Integer))
    op.add_column("projects", Column("budget_gpu_hours", Double))
    op.add_column("projects", Column("budget_action", String(16)))
