"""Jobs database: jobs, attempts, nodes, events and related tables."""

from __future__ import annotations

from functools import partial

from alembic import op
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    Enum,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
    column,
    table,
    text,
)

revision = "0001"
down_revision = None

_required = partial(Column, nullable=False)
_COUNTING = BigInteger().with_variant(Integer, "sqlite")


def _choice(name: str, *values: str) -> Enum:
    return Enum(*values, name=name, native_enum=False, create_constraint=True, length=16)


def upgrade() -> None:
    op.create_table(
        "jobs",
        Column("id", String(36), primary_key=True),
        _required("name", String(255)),
        _required("project", String(255)),
        _required("kind", String(16)),
        _required(
            "state",
            _choice("state", "queued", "starting", "running", "succeeded", "failed", "cancelled"),
        ),
        Column("intent", _choice("intent", "cancel", "timeout", "shutdown")),
        Column("stop_grace", JSON),
        Column("save_time", JSON),
        _required("version", BigInteger),
        _required("priority", Integer),
        _required("devices", Integer),
        Column("device_type", String(255)),
        Column("node_count", Integer),
        _required("document", JSON),
        _required("spec", JSON),
        Column("plan", JSON),
        Column("outcome", JSON),
        Column("reason", String(64)),
        _required("attempt_count", Integer),
        _required("charged_attempts", Integer),
        _required("fruitless_attempts", Integer, server_default="0"),
        _required("progress_step", BigInteger, server_default="0"),
        Column("stuck_step", BigInteger),
        _required("stuck_nodes", JSON, server_default="[]"),
        _required("retries_max", Integer),
        _required("avoid_nodes", JSON),
        _required("not_before", Double),
        Column("timeout_seconds", Double),
        _required("running_seconds", Double),
        Column("wait_position", Integer),
        Column("wait_reason", Text),
        _required("actor", String(255)),
        _required("created_at", Double),
        Column("started_at", Double),
        Column("finished_at", Double),
        Index("ix_jobs_actor_id", "actor", "id"),
        Index("ix_jobs_name_id", "name", "id"),
        Index("ix_jobs_project_id", "project", "id"),
        Index("ix_jobs_state_id", "state", "id"),
    )
    op.create_table(
        "nodes",
        Column("name", String(255), primary_key=True),
        _required("version", String(64)),
        _required("boot_id", String(64)),
        _required("draining", Boolean),
        Column("quarantine", Text),
        Column("quarantined_at", Double),
        _required("registered_at", Double),
        _required("seen_at", Double),
        Column("left_at", Double),
    )
    op.create_table(
        "scheduler_lease",
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("owner", String(255)),
        _required("expires_at", Double),
        _required("dirty", Boolean),
        Column("finished_at", Double),
        Column("place", Text),
        Column("restored_at", Double),
        Column("timings", JSON),
    )
    op.create_table(
        "tokens",
        Column("id", String(36), primary_key=True),
        _required("name", String(255)),
        _required("sha256", String(64)),
        _required("actor", String(255)),
        _required("created_at", Double),
        Column("revoked_at", Double),
        UniqueConstraint("sha256"),
    )
    op.create_table(
        "attempts",
        Column("id", String(36), primary_key=True),
        _required("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE")),
        _required("number", Integer),
        _required("state", _choice("state", "starting", "running", "ended")),
        Column("plan", JSON),
        _required("world_size", Integer),
        _required("node_count", Integer),
        _required("device_kind", String(16)),
        _required("rendezvous_host", String(255)),
        Column("rendezvous_port", Integer),
        Column("outcome", JSON),
        _required("created_at", Double),
        Column("running_at", Double),
        Column("ended_at", Double),
        UniqueConstraint("job_id", "number"),
        Index(
            "uq_attempts_one_live",
            "job_id",
            unique=True,
            postgresql_where=text("state <> 'ended'"),
            sqlite_where=text("state <> 'ended'"),
        ),
    )
    op.create_table(
        "checkpoints",
        Column("id", String(36), primary_key=True),
        _required("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE")),
        _required("attempt", Integer),
        _required("step", BigInteger),
        _required("location", Text),
        _required("bytes", BigInteger),
        _required("sha256", String(64)),
        Column("value", Double),
        _required("final", Boolean),
        _required("created_at", Double),
        UniqueConstraint("job_id", "attempt", "step"),
    )
    op.create_table(
        "events",
        Column("id", _COUNTING, primary_key=True),
        _required("at", Double),
        _required("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE")),
        Column("attempt", Integer),
        _required("kind", String(64)),
        _required("actor", String(255)),
        _required("message", Text),
        _required("data", JSON),
        Column("origin", String(160)),
        Index("ix_events_job_id_id", "job_id", "id"),
        Index("ix_events_origin", "origin", unique=True),
    )
    op.create_table(
        "idempotency_keys",
        Column("actor", String(255), primary_key=True),
        Column("key", String(200), primary_key=True),
        _required("fingerprint", String(128)),
        _required(
            "job_id", String(36), ForeignKey("jobs.id", deferrable=True, initially="DEFERRED")
        ),
        _required("created_at", Double),
    )
    op.create_table(
        "job_labels",
        Column("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        Column("key", String(63), primary_key=True),
        _required("value", String(255)),
        Index("ix_job_labels_key_value_job_id", "key", "value", "job_id"),
    )
    op.create_table(
        "node_failures",
        Column(
            "node_name", String(255), ForeignKey("nodes.name", ondelete="CASCADE"), primary_key=True
        ),
        Column("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        Column("reason", String(64), primary_key=True),
        _required("at", Double),
        Index("ix_node_failures_at", "at"),
    )
    op.create_table(
        "retentions",
        Column("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        Column("what", String(16), primary_key=True),
        _required("days", Integer),
    )
    op.create_table(
        "assignments",
        Column("id", String(36), primary_key=True),
        _required("attempt_id", String(36), ForeignKey("attempts.id", ondelete="CASCADE")),
        _required("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE")),
        _required("node_name", String(255), ForeignKey("nodes.name")),
        _required("node_rank", Integer),
        _required("state", _choice("state", "assigned", "claimed", "ended", "released")),
        _required("token", String(64)),
        _required("device_indices", JSON),
        _required("ranks_here", Integer),
        _required("lease_expires_at", Double),
        Column("outcome", JSON),
        _required("created_at", Double),
        Column("claimed_at", Double),
        Column("ended_at", Double),
        Column("released_at", Double),
        UniqueConstraint("attempt_id", "node_rank"),
        Index("ix_assignments_node_name_state", "node_name", "state"),
        Index("ix_assignments_state_lease_expires_at", "state", "lease_expires_at"),
    )
    op.create_table(
        "devices",
        Column(
            "node_name", String(255), ForeignKey("nodes.name", ondelete="CASCADE"), primary_key=True
        ),
        Column("index", Integer, primary_key=True, autoincrement=False),
        _required("kind", String(16)),
        _required("type", String(255)),
        Column("memory_bytes", BigInteger),
        _required("present", Boolean),
        Column("assignment_id", String(36), ForeignKey("assignments.id", ondelete="SET NULL")),
        Index("ix_devices_assignment_id", "assignment_id"),
    )
    op.bulk_insert(
        table("scheduler_lease", column("id"), column("expires_at"), column("dirty")),
        [{"id": 1, "expires_at": 0.0, "dirty": False}],
    )
