"""The series database: streams, points and log lines."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "log_chunks",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("first_line", sa.BigInteger(), nullable=False),
        sa.Column("line_count", sa.BigInteger(), nullable=False),
        sa.Column("text_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sources", sa.String(length=2000), nullable=False),
        sa.Column("lines", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_log_chunks"),
        sa.UniqueConstraint(
            "job_id", "attempt", "first_line", name="uq_log_chunks_job_id_attempt_first_line"
        ),
    )
    op.create_table(
        "log_totals",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("lines", sa.BigInteger(), nullable=False),
        sa.Column("text_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "attempt", name="pk_log_totals"),
    )
    op.create_table(
        "progress",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.Double(), nullable=True),
        sa.Column("first_step", sa.BigInteger(), nullable=True),
        sa.Column("first_time", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", name="pk_progress"),
    )
    op.create_table(
        "series_chunks",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("point_count", sa.BigInteger(), nullable=False),
        sa.Column("min", sa.Double(), nullable=True),
        sa.Column("max", sa.Double(), nullable=True),
        sa.Column("nan_count", sa.BigInteger(), nullable=False),
        sa.Column("non_finite_count", sa.BigInteger(), nullable=False),
        sa.Column("end_step", sa.BigInteger(), nullable=False),
        sa.Column("end_time", sa.Double(), nullable=False),
        sa.Column("end_value", sa.Double(), nullable=True),
        sa.Column("points", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_series_chunks"),
        sa.UniqueConstraint(
            "job_id", "name", "attempt", "seq", name="uq_series_chunks_job_id_name_attempt_seq"
        ),
    )
    op.create_index(
        "ix_series_chunks_open",
        "series_chunks",
        ["job_id", "attempt", "name"],
        unique=False,
        postgresql_where=sa.text("point_count < 512"),
        sqlite_where=sa.text("point_count < 512"),
    )

    op.create_table(
        "series_latest",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("point_count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "name", name="pk_series_latest"),
    )
    op.create_table(
        "streams",
        sa.Column("assignment_id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.String(length=64), nullable=False),
        sa.Column("sealed", sa.Boolean(), nullable=False),
        sa.Column("metrics_offset", sa.BigInteger(), nullable=False),
        sa.Column("events_offset", sa.BigInteger(), nullable=False),
        sa.Column("log_segment", sa.BigInteger(), nullable=False),
        sa.Column("log_offset", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("points_dropped", sa.BigInteger(), nullable=False),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("sealed_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("assignment_id", name="pk_streams"),
    )
    op.create_index("ix_streams_job_id_attempt", "streams", ["job_id", "attempt"], unique=False)
