"""Ledger of device use."""

from __future__ import annotations

from functools import partial

from alembic import op
from sqlalchemy import Column, Double, Integer, String, text

revision = "0008"
down_revision = "0007"

_required = partial(Column, nullable=False)


def upgrade() -> None:
    op.create_table(
        "ledger",
        Column("assignment_id", String(36), primary_key=True),
        _required("job_id", String(36)),
        _required("job_name", String(255)),
        _required("attempt", Integer),
        _required("project", String(255)),
        _required("actor", String(255)),
        _required("node_name", String(255)),
        _required("device_type", String(255)),
        _required("devices", Integer),
        _required("placed_at", Double),
        _required("released_at", Double),
        _required("productive", Double),
        _required("repeated", Double),
        _required("idle", Double),
    )
    op.create_index("ix_ledger_released_at", "ledger", ["released_at"])
    op.add_column("assignments", Column("accounted_at", Double))
    unaccounted = text("accounted_at IS NULL")
    op.create_index(
        "ix_assignments_unaccounted",
        "assignments",
        ["released_at"],
        postgresql_where=unaccounted,
        sqlite_where=unaccounted,
    )
