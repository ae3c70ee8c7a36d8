"""Jobs database: jobs, attempts, nodes, events and related tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column(
            "state",
            sa.Enum(
                "queued",
                "starting",
                "running",
                "succeeded",
                "failed",
                "cancelled",
                name="state",
                native_enum=False,
                create_constraint=True,
                length=16,
            ),
            nullable=False,
        ),
        sa.Column(
            "intent",
            sa.Enum(
                "cancel",
                "timeout",
                "shutdown",
                name="intent",
                native_enum=False,
                create_constraint=True,
                length=16,
            ),
            nullable=True,
        ),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("devices", sa.Integer(), nullable=False),
        sa.Column("device_type", sa.String(length=255), nullable=True),
        sa.Column("node_count", sa.Integer(), nullable=True),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=True),
        sa.Column("outcome", sa.JSON(), nullable=True),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("attempt_count", sa.Integer(), nullable=False),
        sa.Column("charged_attempts", sa.Integer(), nullable=False),
        sa.Column("retries_max", sa.Integer(), nullable=False),
        sa.Column("avoid_nodes", sa.JSON(), nullable=False),
        sa.Column("not_before", sa.Double(), nullable=False),
        sa.Column("timeout_seconds", sa.Double(), nullable=True),
        sa.Column("running_seconds", sa.Double(), nullable=False),
        sa.Column("wait_position", sa.Integer(), nullable=True),
        sa.Column("wait_reason", sa.Text(), nullable=True),
        sa.Column("actor", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_name_id", "jobs", ["name", "id"], unique=False)
    op.create_index("ix_jobs_project_id", "jobs", ["project", "id"], unique=False)
    op.create_index("ix_jobs_state_id", "jobs", ["state", "id"], unique=False)

    op.create_table(
        "nodes",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("boot_id", sa.String(length=64), nullable=False),
        sa.Column("draining", sa.Boolean(), nullable=False),
        sa.Column("registered_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_nodes"),
    )
    op.create_table(
        "scheduler_lease",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("dirty", sa.Boolean(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_scheduler_lease"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("actor", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("sha256", name="uq_tokens_sha256"),
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column(
            "state",
            sa.Enum(
                "starting",
                "running",
                "ended",
                name="state",
                native_enum=False,
                create_constraint=True,
                length=16,
            ),
            nullable=False,
        ),
        sa.Column("plan", sa.JSON(), nullable=True),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("node_count", sa.Integer(), nullable=False),
        sa.Column("device_kind", sa.String(length=16), nullable=False),
        sa.Column("rendezvous_host", sa.String(length=255), nullable=False),
        sa.Column("rendezvous_port", sa.Integer(), nullable=True),
        sa.Column("outcome", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("running_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name="fk_attempts_job_id_jobs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_attempts"),
        sa.UniqueConstraint("job_id", "number", name="uq_attempts_job_id_number"),
    )
    op.create_index(
        "uq_attempts_one_live",
        "attempts",
        ["job_id"],
        unique=True,
        postgresql_where=sa.text("state <> 'ended'"),
        sqlite_where=sa.text("state <> 'ended'"),
    )

    op.create_table(
        "checkpoints",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name="fk_checkpoints_job_id_jobs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_checkpoints"),
        sa.UniqueConstraint("job_id", "attempt", "step", name="uq_checkpoints_job_id_attempt_step"),
    )
    op.create_table(
        "events",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("actor", sa.String(length=255), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name="fk_events_job_id_jobs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_job_id_id", "events", ["job_id", "id"], unique=False)

    op.create_table(
        "idempotency_keys",
        sa.Column("actor", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("fingerprint", sa.String(length=128), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
            name="fk_idempotency_keys_job_id_jobs",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("actor", "key", name="pk_idempotency_keys"),
    )
    op.create_table(
        "job_labels",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("key", sa.String(length=63), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name="fk_job_labels_job_id_jobs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "key", name="pk_job_labels"),
    )
    op.create_index(
        "ix_job_labels_key_value_job_id", "job_labels", ["key", "value", "job_id"], unique=False
    )

    op.create_table(
        "assignments",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("attempt_id", sa.String(length=36), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("node_name", sa.String(length=255), nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column(
            "state",
            sa.Enum(
                "assigned",
                "claimed",
                "ended",
                "released",
                name="state",
                native_enum=False,
                create_constraint=True,
                length=16,
            ),
            nullable=False,
        ),
        sa.Column("token", sa.String(length=64), nullable=False),
        sa.Column("device_indices", sa.JSON(), nullable=False),
        sa.Column("ranks_here", sa.Integer(), nullable=False),
        sa.Column("lease_expires_at", sa.Double(), nullable=False),
        sa.Column("outcome", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("claimed_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("released_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"],
            ["attempts.id"],
            name="fk_assignments_attempt_id_attempts",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name="fk_assignments_job_id_jobs", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["node_name"], ["nodes.name"], name="fk_assignments_node_name_nodes"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_assignments"),
        sa.UniqueConstraint("attempt_id", "node_rank", name="uq_assignments_attempt_id_node_rank"),
    )
    op.create_index(
        "ix_assignments_node_name_state", "assignments", ["node_name", "state"], unique=False
    )
    op.create_index(
        "ix_assignments_state_lease_expires_at",
        "assignments",
        ["state", "lease_expires_at"],
        unique=False,
    )

    op.create_table(
        "devices",
        sa.Column("node_name", sa.String(length=255), nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("type", sa.String(length=255), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("present", sa.Boolean(), nullable=False),
        sa.Column("assignment_id", sa.String(length=36), nullable=True),
        sa.ForeignKeyConstraint(
            ["assignment_id"],
            ["assignments.id"],
            name="fk_devices_assignment_id_assignments",
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["node_name"], ["nodes.name"], name="fk_devices_node_name_nodes", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("node_name", "index", name="pk_devices"),
    )
    op.create_index("ix_devices_assignment_id", "devices", ["assignment_id"], unique=False)
    op.bulk_insert(
        sa.table("scheduler_lease", sa.column("id"), sa.column("expires_at"), sa.column("dirty")),
        [{"id": 1, "expires_at": 0.0, "dirty": False}],
    )
