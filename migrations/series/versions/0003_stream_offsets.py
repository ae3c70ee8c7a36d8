"""Offsets of further sources of series: node measurements and TensorBoard event files."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "stream_offsets",
        sa.Column("assignment_id", sa.String(length=36), nullable=False),
        sa.Column("source", sa.String(length=500), nullable=False),
        sa.Column("stored_offset", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("assignment_id", "source", name="pk_stream_offsets"),
    )
