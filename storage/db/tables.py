r"""The jobs database: what is in it, and which rules the database itself keeps.

Rules kept here rather than in code, because two programs may race: one attempt per job that has not
ended (a partial unique index), one job per idempotency key, a lease that is never NULL (``NULL <
now`` is not true, so a node that dies before its first heartbeat would hold its job for ever), and
states that are words from ``domain.life.lifecycle``.

JSON columns are ``JSON``, not ``JSONB``: no statement searches in them, and JSONB would reorder
the submitted document and refuse the escape ``\u0000`` in it.

Not here: points and lines (``series_tables``), people, projects and the ledger
(``people_tables``), files (``file_tables``), labels and settings (``listing_tables``), statements.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from sqlalchemy import JSON, ForeignKey, Index, MetaData, String, UniqueConstraint, false, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from lockstep.domain.life.lifecycle import AssignmentState, AttemptState, Intent, JobState
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.columns import (
    NAMING,
    BigId,
    BigInt,
    Count,
    Id,
    Json,
    LongText,
    Name,
    Named,
    PrimaryId,
    Seconds,
    ShortWord,
    Word,
    choice,
)

LISTED: Final = (
    "id state project actor name kind priority devices steps attempt_count created_at started_at "
    "finished_at"
).split()
"""Columns of jobs that an index holds together."""
JobId = Annotated[str, mapped_column(Id, ForeignKey("jobs.id", ondelete="CASCADE"))]


class JobsBase(DeclarativeBase):
    """Every table of the jobs database."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {dict[str, Any]: JSON, float: Seconds}  # noqa: RUF012 -- SQLAlchemy declares it so


class JobRow(JobsBase):
    """One submitted job."""

    __tablename__ = "jobs"
    __table_args__ = (
        # The scheduler reads the queue in each pass; the list page filters by state and goes by id.
        Index("ix_jobs_state_id", "state", "id"),
        Index("ix_jobs_name_id", "name", "id"),
        Index("ix_jobs_project_id", "project", "id"),
        Index("ix_jobs_actor_id", "actor", "id"),
        # All that a list filters, sorts and sums: rows with their documents are a page each.
        Index("ix_jobs_listed", *LISTED),
    )

    id: Mapped[PrimaryId]
    name: Mapped[Named]
    project: Mapped[Named]
    kind: Mapped[ShortWord]
    state: Mapped[JobState] = mapped_column(choice(JobState, "state"), default=JobState.QUEUED)
    intent: Mapped[Intent | None] = mapped_column(choice(Intent, "intent"))
    """Requested change of the live attempt; the state changes once it is carried out."""
    stop_grace: Mapped[Json | None]
    """``domain.life.grace.Grace`` of that request, if it is a stop."""
    save_time: Mapped[Json | None]
    """``domain.life.grace.SaveTime``: duration of the last save, or its forecast."""
    version: Mapped[BigInt] = mapped_column(default=1)
    """Counts every change that a reader of the job can see."""
    priority: Mapped[int]
    devices: Mapped[int]
    """Devices of one attempt."""
    device_type: Mapped[Named | None]
    node_count: Mapped[int | None]
    """Exactly this many nodes; NULL takes the fewest."""
    needs: Mapped[list[str]] = mapped_column(JSON, default=list, server_default="[]")
    """Names that each of its nodes offers, sorted."""
    document: Mapped[Json]
    """The submitted body, as it was sent."""
    spec: Mapped[Json]
    """The document with every default filled in."""
    plan: Mapped[Json | None]
    """The batch plan; once an attempt has settled it, the engine's actual plan."""
    steps: Mapped[BigInt | None]
    """Steps of that plan."""
    outcome: Mapped[Json | None]
    """Outcome of the newest attempt."""
    reason: Mapped[Word | None]
    """The newest outcome's reason."""
    attempt_count: Mapped[Count]
    """Attempts so far, and so the number of the newest."""
    charged_attempts: Mapped[Count]
    """Attempts since the last progress that count against ``retry.max``. This and the next four are
    ``domain.life.retrying.AttemptHistory``; their defaults are the database's too, for an api of
    the version before."""
    fruitless_attempts: Mapped[int] = mapped_column(default=0, server_default="0")
    progress_step: Mapped[BigInt] = mapped_column(default=0, server_default="0")
    stuck_step: Mapped[BigInt | None]
    stuck_nodes: Mapped[list[str]] = mapped_column(JSON, default=list, server_default="[]")
    retries_max: Mapped[int]
    avoid_nodes: Mapped[list[str]] = mapped_column(JSON, default=list)
    """Nodes it failed on for the node's own reasons."""
    not_before: Mapped[float] = mapped_column(default=0.0)
    """The end of its backoff."""
    timeout_seconds: Mapped[float | None]
    timeout_source: Mapped[ShortWord | None]
    """``storage.people.limits.LimitSource`` of that limit."""
    running_seconds: Mapped[float] = mapped_column(default=0.0)
    """Seconds that ended attempts were running."""
    wait_position: Mapped[int | None]
    wait_reason: Mapped[LongText | None]
    wait_code: Mapped[Word | None]
    """``domain.scheduling.state.WaitCode`` of that reason."""
    wait_facts: Mapped[Json | None]
    hold: Mapped[Json | None]
    """Nodes that are kept for it while it waits (``storage.control.snapshots``)."""
    labels: Mapped[Json | None]
    """All labels, once people have changed one; null: those of its spec."""
    note: Mapped[LongText | None]
    starred: Mapped[bool] = mapped_column(default=False, server_default=false())
    actor: Mapped[Named]
    """User who submitted it."""
    created_at: Mapped[float] = mapped_column(insert_default=db_now())
    started_at: Mapped[float | None]
    """Time of its first run."""
    finished_at: Mapped[float | None]
    deleting_at: Mapped[float | None]
    """Time of the request to delete it. Its data goes first, and no job begins from it any more."""


class AttemptRow(JobsBase):
    """One try at one job, on devices of its own."""

    __tablename__ = "attempts"
    __table_args__ = (
        UniqueConstraint("job_id", "number"),
        Index(
            "uq_attempts_one_live",
            "job_id",
            unique=True,
            postgresql_where=text("state <> 'ended'"),
            sqlite_where=text("state <> 'ended'"),
        ),
    )

    id: Mapped[PrimaryId]
    job_id: Mapped[JobId]
    number: Mapped[int]
    """Counted from 1."""
    state: Mapped[AttemptState] = mapped_column(
        choice(AttemptState, "state"), default=AttemptState.STARTING
    )
    plan: Mapped[Json | None]
    world_size: Mapped[int]
    node_count: Mapped[int]
    device_kind: Mapped[ShortWord]
    rendezvous_host: Mapped[Named]
    rendezvous_port: Mapped[int | None]
    """Bound and published by the node of rank 0 when it claims."""
    outcome: Mapped[Json | None]
    cause: Mapped[Json | None]
    """Of a gang: its outcome, known before all of its parts have ended."""
    cause_at: Mapped[float | None]
    created_at: Mapped[float]
    running_at: Mapped[float | None]
    ended_at: Mapped[float | None]

    assignments: Mapped[list[AssignmentRow]] = relationship(
        order_by="AssignmentRow.node_rank", lazy="raise"
    )

    @property
    def nodes(self) -> list[str]:
        """Names of its nodes, in the order of their ranks."""
        return [assignment.node_name for assignment in self.assignments]


class AssignmentRow(JobsBase):
    """One node's part of an attempt. Its token fences every write about it."""

    __tablename__ = "assignments"
    __table_args__ = (
        Index("ix_assignments_node_name_state", "node_name", "state"),
        Index("ix_assignments_state_lease_expires_at", "state", "lease_expires_at"),
        UniqueConstraint("attempt_id", "node_rank"),
        # Few rows of many: those that are live or were released a moment ago.
        Index(
            "ix_assignments_unaccounted",
            "released_at",
            postgresql_where=text("accounted_at IS NULL"),
            sqlite_where=text("accounted_at IS NULL"),
        ),
    )

    id: Mapped[PrimaryId]
    attempt_id: Mapped[str] = mapped_column(Id, ForeignKey("attempts.id", ondelete="CASCADE"))
    job_id: Mapped[JobId]
    """Its attempt's job. It never changes; here so that a renewal reads the job's intent without a
    join."""
    node_name: Mapped[str] = mapped_column(Name, ForeignKey("nodes.name"))
    node_rank: Mapped[int]
    state: Mapped[AssignmentState] = mapped_column(
        choice(AssignmentState, "state"), default=AssignmentState.ASSIGNED
    )
    token: Mapped[Word]
    device_indices: Mapped[list[int]] = mapped_column(JSON)
    """Devices of the assignment; the current holder of a device is ``devices.assignment_id``."""
    ranks_here: Mapped[int]
    lease_expires_at: Mapped[float]
    """Set at placement already: a node that never answers is lost like one that fell silent."""
    outcome: Mapped[Json | None]
    created_at: Mapped[float]
    claimed_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    released_at: Mapped[float | None]
    accounted_at: Mapped[float | None]
    """Since then it has a row in the ledger."""

    attempt: Mapped[AttemptRow] = relationship(lazy="raise", viewonly=True)


class NodeRow(JobsBase):
    """One host with devices, as its agent last described it."""

    __tablename__ = "nodes"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    version: Mapped[Word]
    """Of the agent."""
    boot_id: Mapped[Word]
    offers: Mapped[list[str]] = mapped_column(JSON, default=list, server_default="[]")
    """Names that jobs can need, sorted; empty of an agent of the version before."""
    draining: Mapped[bool] = mapped_column(default=False)
    drain_reason: Mapped[LongText | None]
    """In the words of the person who drained it."""
    drained_by: Mapped[str | None] = mapped_column(Name)
    drained_at: Mapped[float | None]
    quarantine: Mapped[LongText | None]
    """Reason of the quarantine, which lasts until a user resumes the node."""
    quarantined_at: Mapped[float | None]
    registered_at: Mapped[float]
    seen_at: Mapped[float]
    left_at: Mapped[float | None]
    """Time of its agent's orderly stop: it is leaving while this is not before ``seen_at``."""
    removed_at: Mapped[float | None]
    """An operator removed it: its row stays for the attempts that ran there."""

    devices: Mapped[list[DeviceRow]] = relationship(order_by="DeviceRow.index", lazy="raise")


class DeviceRow(JobsBase):
    """One device of a node: a GPU, or a CPU slot.

    Rows are kept when a device disappears (``present``).
    """

    __tablename__ = "devices"
    __table_args__ = (Index("ix_devices_assignment_id", "assignment_id"),)

    node_name: Mapped[str] = mapped_column(
        Name, ForeignKey("nodes.name", ondelete="CASCADE"), primary_key=True
    )
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[ShortWord]
    type: Mapped[Named]
    memory_bytes: Mapped[BigInt | None]
    present: Mapped[bool] = mapped_column(default=True)
    assignment_id: Mapped[str | None] = mapped_column(
        Id, ForeignKey("assignments.id", ondelete="SET NULL")
    )
    """Assignment that holds it; NULL if it is free."""
    free_since: Mapped[float | None]
    """Time of the last release; NULL before the first one."""

    assignment: Mapped[AssignmentRow | None] = relationship(lazy="raise", viewonly=True)

    @property
    def free(self) -> bool:
        """True if an attempt may be placed on it."""
        return self.present and self.assignment_id is None

    @property
    def job_id(self) -> str | None:
        """The job that holds it."""
        return None if self.assignment is None else self.assignment.job_id


class NodeFailureRow(JobsBase):
    """The newest failure of a job that may be its node's own, until an attempt succeeds there."""

    __tablename__ = "node_failures"
    __table_args__ = (Index("ix_node_failures_at", "at"),)

    node_name: Mapped[str] = mapped_column(
        Name, ForeignKey("nodes.name", ondelete="CASCADE"), primary_key=True
    )
    job_id: Mapped[JobId] = mapped_column(primary_key=True)
    reason: Mapped[str] = mapped_column(String(64), primary_key=True)
    at: Mapped[float]


class EventRow(JobsBase):
    """Something that happened. Rows are added, never changed."""

    __tablename__ = "events"
    __table_args__ = (
        Index("ix_events_job_id_id", "job_id", "id"),
        Index("ix_events_origin", "origin", unique=True),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    at: Mapped[float]
    job_id: Mapped[JobId]
    attempt: Mapped[int | None]
    kind: Mapped[Word]
    actor: Mapped[Named]
    message: Mapped[LongText]
    data: Mapped[Json] = mapped_column(default=dict)
    origin: Mapped[str | None] = mapped_column(String(160))
    """Assignment, offset and kind of an event that a node sent from its spool. A node that was
    killed sends it again, and it is added once."""


class CheckpointRow(JobsBase):
    """A checkpoint that was published under a valid token. A folder without a row is none."""

    __tablename__ = "checkpoints"
    __table_args__ = (UniqueConstraint("job_id", "attempt", "step"),)

    id: Mapped[PrimaryId]
    job_id: Mapped[JobId]
    attempt: Mapped[int]
    step: Mapped[BigInt]
    location: Mapped[LongText]
    bytes: Mapped[BigInt]
    sha256: Mapped[Word]
    """Of its manifest."""
    value: Mapped[float | None]
    """Of the metric that ``keep_best`` names, where its step measured a finite one."""
    final: Mapped[bool]
    created_at: Mapped[float]


class IdempotencyKeyRow(JobsBase):
    """A submit that was seen before."""

    __tablename__ = "idempotency_keys"

    actor: Mapped[str] = mapped_column(Name, primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(128))
    # Deferred: the key is written before its job, so that a loser of the race has nothing to take
    # back.
    job_id: Mapped[str] = mapped_column(
        Id, ForeignKey("jobs.id", deferrable=True, initially="DEFERRED")
    )
    created_at: Mapped[float]


class SchedulerLeaseRow(JobsBase):
    """Lease of the scheduler: exactly one row, written by the migration."""

    __tablename__ = "scheduler_lease"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    owner: Mapped[Named | None]
    expires_at: Mapped[float] = mapped_column(default=0.0)
    dirty: Mapped[bool] = mapped_column(default=False)
    """True if a notification arrived during a reconcile cycle."""
    finished_at: Mapped[float | None]
    place: Mapped[LongText | None]
    """Place of this database (``storage.control.places``) at the last cycle. A backup that is
    restored names another one. NULL after a migration."""
    restored_at: Mapped[float | None]
    """Time at which a cycle found a restored backup."""
    timings: Mapped[Json | None]
    """``domain.life.timings.Timings`` of all programs; NULL until a scheduler stores its own."""
