"""The series database: streams, points and log lines."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    String,
    UniqueConstraint,
    text,
)

revision = "0001"
down_revision = None

_COUNTING = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "log_chunks",
        Column("id", _COUNTING, primary_key=True),
        Column("job_id", String(36), nullable=False),
        Column("attempt", BigInteger, nullable=False),
        Column("first_line", BigInteger, nullable=False),
        Column("line_count", BigInteger, nullable=False),
        Column("text_bytes", BigInteger, nullable=False),
        Column("sources", String(2000), nullable=False),
        Column("time_min", Double),
        Column("time_max", Double),
        Column("lines", LargeBinary, nullable=False),
        UniqueConstraint("job_id", "attempt", "first_line"),
        Index("ix_log_chunks_times", "job_id", "attempt", "first_line", "time_min", "time_max"),
    )
    op.create_table(
        "log_totals",
        Column("job_id", String(36), primary_key=True),
        Column("attempt", BigInteger, primary_key=True, autoincrement=False),
        Column("lines", BigInteger, nullable=False),
        Column("text_bytes", BigInteger, nullable=False),
    )
    op.create_table(
        "progress",
        Column("job_id", String(36), primary_key=True),
        Column("seq", BigInteger, nullable=False),
        Column("attempt", BigInteger, nullable=False),
        Column("step", BigInteger, nullable=False),
        Column("time", Double),
        Column("first_step", BigInteger),
        Column("first_time", Double),
    )
    op.create_table(
        "series_chunks",
        Column("id", _COUNTING, primary_key=True),
        Column("job_id", String(36), nullable=False),
        Column("name", String(200), nullable=False),
        Column("attempt", BigInteger, nullable=False),
        Column("seq", BigInteger, nullable=False),
        Column("first_step", BigInteger, nullable=False),
        Column("last_step", BigInteger, nullable=False),
        Column("point_count", BigInteger, nullable=False),
        Column("min", Double),
        Column("max", Double),
        Column("nan_count", BigInteger, nullable=False),
        Column("non_finite_count", BigInteger, nullable=False),
        Column("end_step", BigInteger, nullable=False),
        Column("end_time", Double, nullable=False),
        Column("end_value", Double),
        Column("points", LargeBinary, nullable=False),
        Column("summary", LargeBinary),
        UniqueConstraint("job_id", "name", "attempt", "seq"),
        Index(
            "ix_series_chunks_open",
            "job_id",
            "attempt",
            "name",
            postgresql_where=text("point_count < 512"),
            sqlite_where=text("point_count < 512"),
        ),
    )
    op.create_table(
        "series_latest",
        Column("job_id", String(36), primary_key=True),
        Column("name", String(200), primary_key=True),
        Column("attempt", BigInteger, nullable=False),
        Column("step", BigInteger, nullable=False),
        Column("time", Double, nullable=False),
        Column("value", Double),
        Column("point_count", BigInteger, nullable=False),
    )
    op.create_table(
        "stream_offsets",
        Column("assignment_id", String(36), primary_key=True),
        Column("source", String(500), primary_key=True),
        Column("stored_offset", BigInteger, nullable=False),
    )
    op.create_table(
        "streams",
        Column("assignment_id", String(36), primary_key=True),
        Column("job_id", String(36), nullable=False),
        Column("attempt", BigInteger, nullable=False),
        Column("token", String(64), nullable=False),
        Column("sealed", Boolean, nullable=False),
        Column("metrics_offset", BigInteger, nullable=False),
        Column("events_offset", BigInteger, nullable=False),
        Column("log_segment", BigInteger, nullable=False),
        Column("log_offset", BigInteger, nullable=False),
        Column("first_step", BigInteger),
        Column("last_step", BigInteger),
        Column("points_dropped", BigInteger, nullable=False),
        Column("opened_at", Double, nullable=False),
        Column("sealed_at", Double),
        Index("ix_streams_job_id_attempt", "job_id", "attempt"),
    )
