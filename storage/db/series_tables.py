"""The series database.

Points and log lines in packed chunks, and the fence that every append passes.

A file of its own on SQLite, because it may lose its last second in a power cut and the jobs
database may not; on PostgreSQL it may be the same database. No transaction spans the two, so no
table here refers to one there.

NaN is stored as NULL in plain columns: SQLite has no NaN.

Not here: how chunks are merged and packed (``storage.series.series``, ``storage.series.packing``,
``storage.logs.logs``).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Index,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.orm import DeclarativeBase, InstrumentedAttribute, Mapped, mapped_column

from lockstep.domain.training.metrics import SYSTEM
from lockstep.storage.db.columns import NAMING, BigId, Blob, Count, Id, PrimaryId, Seconds


class SeriesBase(DeclarativeBase):
    """Every table of the series database."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {float: Seconds, int: BigInteger, bytes: Blob}  # noqa: RUF012 -- SQLAlchemy declares it so


class StreamRow(SeriesBase):
    """The fence of one assignment's stream, and the offsets up to which it is stored."""

    __tablename__ = "streams"
    __table_args__ = (Index("ix_streams_job_id_attempt", "job_id", "attempt"),)

    assignment_id: Mapped[PrimaryId]
    job_id: Mapped[str] = mapped_column(Id)
    attempt: Mapped[int]
    token: Mapped[str] = mapped_column(String(64))
    sealed: Mapped[bool] = mapped_column(default=False)
    metrics_offset: Mapped[Count]
    """Bytes of the metrics spool that are stored."""
    events_offset: Mapped[Count]
    log_segment: Mapped[Count]
    log_offset: Mapped[Count]
    """Bytes into that segment."""
    first_step: Mapped[int | None]
    """The smallest step it has reported."""
    last_step: Mapped[int | None]
    """The step of the record it reported last."""
    points_dropped: Mapped[Count]
    """Points beyond the limits of names and of points per job."""
    opened_at: Mapped[float]
    sealed_at: Mapped[float | None]


class StreamOffsetRow(SeriesBase):
    """Stored offset of another source of an assignment's series, beside the metrics spool."""

    __tablename__ = "stream_offsets"

    assignment_id: Mapped[str] = mapped_column(Id, primary_key=True)
    source: Mapped[str] = mapped_column(String(500), primary_key=True)
    """``streams.SYSTEM_SOURCE``, or ``tensorboard:`` and a file's path below the folder."""
    stored_offset: Mapped[int]
    """Bytes of it that are stored; -1 - bytes where it is damaged and left from there."""


class SeriesChunkRow(SeriesBase):
    """At most 512 points of one series of one attempt, in the order they came."""

    __tablename__ = "series_chunks"
    __table_args__ = (
        UniqueConstraint("job_id", "name", "attempt", "seq"),
        # An append finds the few chunks that are not full among thousands of others.
        Index(
            "ix_series_chunks_open",
            "job_id",
            "attempt",
            "name",
            postgresql_where=text("point_count < 512"),
            sqlite_where=text("point_count < 512"),
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(Id)
    name: Mapped[str] = mapped_column(String(200))
    attempt: Mapped[int]
    seq: Mapped[int]
    """Number of its first point among the series' points of all attempts: later chunks have larger
    ones."""
    first_step: Mapped[int]
    """Smallest step in it."""
    last_step: Mapped[int]
    """Largest step in it."""
    point_count: Mapped[int]
    min: Mapped[float | None]
    """Smallest value that is a number (infinities are); NULL when all are NaN."""
    max: Mapped[float | None]
    nan_count: Mapped[int]
    non_finite_count: Mapped[int]
    """NaN and infinities together."""
    end_step: Mapped[int]
    """Step of its last point."""
    end_time: Mapped[float]
    end_value: Mapped[float | None]
    points: Mapped[bytes] = mapped_column(deferred=True)
    """See ``storage.series.packing``."""
    summary: Mapped[bytes | None] = mapped_column(deferred=True)
    """Its points in buckets of 32; NULL in a chunk that is not full, and in those of programs of
    the version before."""


class SeriesLatestRow(SeriesBase):
    """The newest point of each series, how many there are, and the extremes of all of them."""

    __tablename__ = "series_latest"
    # A list of jobs reads one series of all of them.
    __table_args__ = (Index("ix_series_latest_name_job_id", "name", "job_id"),)

    job_id: Mapped[PrimaryId]
    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    attempt: Mapped[int]
    step: Mapped[int]
    time: Mapped[float]
    value: Mapped[float | None]
    min: Mapped[float | None]
    """Smallest finite value of all attempts; NULL without one."""
    max: Mapped[float | None]
    point_count: Mapped[int]


class SeriesDefinitionRow(SeriesBase):
    """Metadata that a job's script gave a series."""

    __tablename__ = "series_definitions"

    job_id: Mapped[PrimaryId]
    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    definition: Mapped[str] = mapped_column(Text)
    """JSON of a ``domain.training.definitions.SeriesDefinition``."""


def of_kind(
    name: ColumnElement[str] | InstrumentedAttribute[str], *, system: bool
) -> ColumnElement[bool]:
    """Filter for series that are, or are not, in ``domain.training.metrics.SYSTEM``.

    Without LIKE, which ignores case on SQLite.
    """
    beginning = func.substr(name, 1, len(SYSTEM))
    return beginning == SYSTEM if system else beginning != SYSTEM


class ProgressRow(SeriesBase):
    """Progress of a job, by its newest attempt that reported."""

    __tablename__ = "progress"

    job_id: Mapped[PrimaryId]
    seq: Mapped[Count]
    """Counts the batches of points and lines that were stored: with the job's version it makes the
    job's ETag."""
    attempt: Mapped[Count]
    """0 until an attempt has reported a step."""
    step: Mapped[Count]
    """Largest step of that attempt."""
    time: Mapped[float | None]
    """Time of that step, by the node's clock."""
    first_step: Mapped[int | None]
    first_time: Mapped[float | None]
    """The attempt's first record: with ``step`` and ``time`` it gives a rate."""


class LogTotalRow(SeriesBase):
    """Number of lines of one attempt, over all its nodes; the number of the next line."""

    __tablename__ = "log_totals"

    job_id: Mapped[PrimaryId]
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    lines: Mapped[int]
    text_bytes: Mapped[int]


class LogChunkRow(SeriesBase):
    """Consecutive lines of one attempt, compressed together."""

    __tablename__ = "log_chunks"
    __table_args__ = (
        UniqueConstraint("job_id", "attempt", "first_line"),
        # A page that begins at a time passes over thousands of chunks, and must not touch their
        # rows for it.
        Index("ix_log_chunks_times", "job_id", "attempt", "first_line", "time_min", "time_max"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(Id)
    attempt: Mapped[int]
    first_line: Mapped[int]
    line_count: Mapped[int]
    text_bytes: Mapped[int]
    """Before compression."""
    sources: Mapped[str] = mapped_column(String(2000))
    """Ranks and streams that occur, as ``" 0:stdout 1:stderr "``; empty when there are too many to
    list."""
    time_min: Mapped[float | None]
    """Of its lines, which may be out of order: nodes have clocks of their own. NULL in chunks of
    the version before."""
    time_max: Mapped[float | None]
    lines: Mapped[bytes] = mapped_column(deferred=True)
    """zlib of one JSON array ``[time, rank, stream, text]`` per line."""
