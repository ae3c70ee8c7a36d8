"""History of a job for the retry rules, and failures of nodes.

Defaults are the database's: programs of the version before still write rows while this one starts.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("jobs") as table:
        table.add_column(
            sa.Column("fruitless_attempts", sa.Integer(), nullable=False, server_default="0")
        )
        table.add_column(
            sa.Column("progress_step", sa.BigInteger(), nullable=False, server_default="0")
        )
        table.add_column(sa.Column("stuck_step", sa.BigInteger(), nullable=True))
        table.add_column(sa.Column("stuck_nodes", sa.JSON(), nullable=False, server_default="[]"))
    with op.batch_alter_table("nodes") as table:
        table.add_column(sa.Column("quarantine", sa.Text(), nullable=True))
        table.add_column(sa.Column("quarantined_at", sa.Double(), nullable=True))
    op.create_table(
        "node_failures",
        sa.Column("node_name", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["node_name"],
            ["nodes.name"],
            name="fk_node_failures_node_name_nodes",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name="fk_node_failures_job_id_jobs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("node_name", "job_id", "reason", name="pk_node_failures"),
    )
    op.create_index("ix_node_failures_at", "node_failures", ["at"], unique=False)
