"""Titles, limits and archives of projects; programs among the people; rotation of tokens."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Boolean, Column, Double, Integer, String, false

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("users", Column("title", String(255), nullable=False, server_default=""))
    op.add_column("users", Column("service", Boolean, nullable=False, server_default=false()))
    for column in (
        Column("title", String(255), nullable=False, server_default=""),
        Column("gpus_per_job_max", Integer),
        Column("queued_max", Integer),
        Column("priority_max", Integer),
        Column("timeout_default_seconds", Double),
        Column("timeout_max_seconds", Double),
        Column("archived_at", Double),
    ):
        op.add_column("projects", column)
    with op.batch_alter_table("tokens") as tokens:
        tokens.add_column(Column("prefix", String(16), nullable=False, server_default=""))
        tokens.add_column(Column("overlap_sha256", String(64)))
        tokens.add_column(Column("overlap_until", Double))
        tokens.add_column(Column("used_at", Double))
        tokens.create_unique_constraint("uq_tokens_overlap_sha256", ["overlap_sha256"])
