"""The series database: streams, points and log lines."""

from __future__ import annotations

from functools import partial

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

_required = partial(Column, nullable=False)
_COUNTING = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "log_chunks",
        Column("id", _COUNTING, primary_key=True),
        _required("job_id", String(36)),
        _required("attempt", BigInteger),
        _required("first_line", BigInteger),
        _required("line_count", BigInteger),
        _required("text_bytes", BigInteger),
        _required("sources", String(2000)),
        Column("time_min", Double),
        Column("time_max", Double),
        _required("lines", LargeBinary),
        UniqueConstraint("job_id", "attempt", "first_line"),
        Index("ix_log_chunks_times", "job_id", "attempt", "first_line", "time_min", "time_max"),
    )
    op.create_table(
        "log_totals",
        Column("job_id", String(36), primary_key=True),
        Column("attempt", BigInteger, primary_key=True, autoincrement=False),
        _required("lines", BigInteger),
        _required("text_bytes", BigInteger),
    )
    op.create_table(
        "progress",
        Column("job_id", String(36), primary_key=True),
        _required("seq", BigInteger),
        _required("attempt", BigInteger),
        _required("step", BigInteger),
        Column("time", Double),
        Column("first_step", BigInteger),
        Column("first_time", Double),
    )
    op.create_table(
        "series_chunks",
        Column("id", _COUNTING, primary_key=True),
        _required("job_id", String(36)),
        _required("name", String(200)),
        _required("attempt", BigInteger),
        _required("seq", BigInteger),
        _required("first_step", BigInteger),
        _required("last_step", BigInteger),
        _required("point_count", BigInteger),
        Column("min", Double),
        Column("max", Double),
        _required("nan_count", BigInteger),
        _required("non_finite_count", BigInteger),
        _required("end_step", BigInteger),
        _required("end_time", Double),
        Column("end_value", Double),
        _required("points", LargeBinary),
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
        _required("attempt", BigInteger),
        _required("step", BigInteger),
        _required("time", Double),
        Column("value", Double),
        _required("point_count", BigInteger),
    )
    op.create_table(
        "stream_offsets",
        Column("assignment_id", String(36), primary_key=True),
        Column("source", String(500), primary_key=True),
        _required("stored_offset", BigInteger),
    )
    op.create_table(
        "streams",
        Column("assignment_id", String(36), primary_key=True),
        _required("job_id", String(36)),
        _required("attempt", BigInteger),
        _required("token", String(64)),
        _required("sealed", Boolean),
        _required("metrics_offset", BigInteger),
        _required("events_offset", BigInteger),
        _required("log_segment", BigInteger),
        _required("log_offset", BigInteger),
        Column("first_step", BigInteger),
        Column("last_step", BigInteger),
        _required("points_dropped", BigInteger),
        _required("opened_at", Double),
        Column("sealed_at", Double),
        Index("ix_streams_job_id_attempt", "job_id", "attempt"),
    )
