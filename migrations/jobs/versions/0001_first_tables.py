"""Jobs database: jobs, attempts, nodes, events and related tables."""

from __future__ import annotations

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

_COUNTING = BigInteger().with_variant(Integer, "sqlite")


def _choice(name: str, *values: str) -> Enum:
    return Enum(*values, name=name, native_enum=False, create_constraint=True, length=16)


def upgrade() -> None:
    op.create_table(
        "jobs",
        Column("id", String(36), primary_key=True),
        Column("name", String(255), nullable=False),
        Column("project", String(255), nullable=False),
        Column("kind", String(16), nullable=False),
        Column(
            "state",
            _choice("state", "queued", "starting", "running", "succeeded", "failed", "cancelled"),
            nullable=False,
        ),
        Column("intent", _choice("intent", "cancel", "timeout", "shutdown")),
        Column("stop_grace", JSON),
        Column("save_time", JSON),
        Column("version", BigInteger, nullable=False),
        Column("priority", Integer, nullable=False),
        Column("devices", Integer, nullable=False),
        Column("device_type", String(255)),
        Column("node_count", Integer),
        Column("document", JSON, nullable=False),
        Column("spec", JSON, nullable=False),
        Column("plan", JSON),
        Column("outcome", JSON),
        Column("reason", String(64)),
        Column("attempt_count", Integer, nullable=False),
        Column("charged_attempts", Integer, nullable=False),
        Column("fruitless_attempts", Integer, nullable=False, server_default="0"),
        Column("progress_step", BigInteger, nullable=False, server_default="0"),
        Column("stuck_step", BigInteger),
        Column("stuck_nodes", JSON, nullable=False, server_default="[]"),
        Column("retries_max", Integer, nullable=False),
        Column("avoid_nodes", JSON, nullable=False),
        Column("not_before", Double, nullable=False),
        Column("timeout_seconds", Double),
        Column("running_seconds", Double, nullable=False),
        Column("wait_position", Integer),
        Column("wait_reason", Text),
        Column("actor", String(255), nullable=False),
        Column("created_at", Double, nullable=False),
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
        Column("version", String(64), nullable=False),
        Column("boot_id", String(64), nullable=False),
        Column("draining", Boolean, nullable=False),
        Column("quarantine", Text),
        Column("quarantined_at", Double),
        Column("registered_at", Double, nullable=False),
        Column("seen_at", Double, nullable=False),
        Column("left_at", Double),
    )
    op.create_table(
        "scheduler_lease",
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("owner", String(255)),
        Column("expires_at", Double, nullable=False),
        Column("dirty", Boolean, nullable=False),
        Column("finished_at", Double),
        Column("place", Text),
        Column("restored_at", Double),
        Column("timings", JSON),
    )
    op.create_table(
        "tokens",
        Column("id", String(36), primary_key=True),
        Column("name", String(255), nullable=False),
        Column("sha256", String(64), nullable=False),
        Column("actor", String(255), nullable=False),
        Column("created_at", Double, nullable=False),
        Column("revoked_at", Double),
        UniqueConstraint("sha256"),
    )
    op.create_table(
        "attempts",
        Column("id", String(36), primary_key=True),
        Column("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
        Column("number", Integer, nullable=False),
        Column("state", _choice("state", "starting", "running", "ended"), nullable=False),
        Column("plan", JSON),
        Column("world_size", Integer, nullable=False),
        Column("node_count", Integer, nullable=False),
        Column("device_kind", String(16), nullable=False),
        Column("rendezvous_host", String(255), nullable=False),
        Column("rendezvous_port", Integer),
        Column("outcome", JSON),
        Column("created_at", Double, nullable=False),
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
        Column("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("step", BigInteger, nullable=False),
        Column("location", Text, nullable=False),
        Column("bytes", BigInteger, nullable=False),
        Column("sha256", String(64), nullable=False),
        Column("value", Double),
        Column("final", Boolean, nullable=False),
        Column("created_at", Double, nullable=False),
        UniqueConstraint("job_id", "attempt", "step"),
    )
    op.create_table(
        "events",
        Column("id", _COUNTING, primary_key=True),
        Column("at", Double, nullable=False),
        Column("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
        Column("attempt", Integer),
        Column("kind", String(64), nullable=False),
        Column("actor", String(255), nullable=False),
        Column("message", Text, nullable=False),
        Column("data", JSON, nullable=False),
        Column("origin", String(160)),
        Index("ix_events_job_id_id", "job_id", "id"),
        Index("ix_events_origin", "origin", unique=True),
    )
    op.create_table(
        "idempotency_keys",
        Column("actor", String(255), primary_key=True),
        Column("key", String(200), primary_key=True),
        Column("fingerprint", String(128), nullable=False),
        Column(
            "job_id",
            String(36),
            ForeignKey("jobs.id", deferrable=True, initially="DEFERRED"),
            nullable=False,
        ),
        Column("created_at", Double, nullable=False),
    )
    op.create_table(
        "job_labels",
        Column("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        Column("key", String(63), primary_key=True),
        Column("value", String(255), nullable=False),
        Index("ix_job_labels_key_value_job_id", "key", "value", "job_id"),
    )
    op.create_table(
        "node_failures",
        Column(
            "node_name", String(255), ForeignKey("nodes.name", ondelete="CASCADE"), primary_key=True
        ),
        Column("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        Column("reason", String(64), primary_key=True),
        Column("at", Double, nullable=False),
        Index("ix_node_failures_at", "at"),
    )
    op.create_table(
        "retentions",
        Column("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        Column("what", String(16), primary_key=True),
        Column("days", Integer, nullable=False),
    )
    op.create_table(
        "assignments",
        Column("id", String(36), primary_key=True),
        Column(
            "attempt_id", String(36), ForeignKey("attempts.id", ondelete="CASCADE"), nullable=False
        ),
        Column("job_id", String(36), ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
        Column("node_name", String(255), ForeignKey("nodes.name"), nullable=False),
        Column("node_rank", Integer, nullable=False),
        Column(
            "state", _choice("state", "assigned", "claimed", "ended", "released"), nullable=False
        ),
        Column("token", String(64), nullable=False),
        Column("device_indices", JSON, nullable=False),
        Column("ranks_here", Integer, nullable=False),
        Column("lease_expires_at", Double, nullable=False),
        Column("outcome", JSON),
        Column("created_at", Double, nullable=False),
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
        Column("kind", String(16), nullable=False),
        Column("type", String(255), nullable=False),
        Column("memory_bytes", BigInteger),
        Column("present", Boolean, nullable=False),
        Column("assignment_id", String(36), ForeignKey("assignments.id", ondelete="SET NULL")),
        Index("ix_devices_assignment_id", "assignment_id"),
    )
    op.bulk_insert(
        table("scheduler_lease", column("id"), column("expires_at"), column("dirty")),
        [{"id": 1, "expires_at": 0.0, "dirty": False}],
    )
