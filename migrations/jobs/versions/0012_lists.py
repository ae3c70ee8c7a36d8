"""Steps and settings of jobs, in a form by which lists are filtered and sorted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from alembic import op
from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Double,
    PrimaryKeyConstraint,
    String,
    bindparam,
    column,
    insert,
    select,
    table,
    update,
)

from lockstep.storage.jobs import settings

revision = "0012"
down_revision = "0011"

_AT_ONCE: Final = 500
"""Jobs whose documents are read together."""
_JOBS: Final = table(
    "jobs",
    column("id", String),
    column("spec", JSON),
    column("plan", JSON),
    column("steps", BigInteger),
)
_VALUES: Final = table(
    "job_values",
    column("key", String),
    column("job_id", String),
    column("number", Double),
    column("text", String),
)


def upgrade() -> None:
    op.add_column("jobs", Column("steps", BigInteger))
    op.create_table(
        "job_values",
        Column("key", String(200), nullable=False),
        Column("job_id", String(36), nullable=False),
        Column("number", Double),
        Column("text", String(255)),
        PrimaryKeyConstraint(
            "key", "job_id", name="pk_job_values", postgresql_include=["number", "text"]
        ),
        sqlite_with_rowid=False,
    )
    _fill()
    listed = "id state project actor name kind priority devices steps attempt_count created_at"
    op.create_index("ix_jobs_listed", "jobs", [*listed.split(), "started_at", "finished_at"])


def _fill() -> None:
    connection, last = op.get_bind(), ""
    some = select(_JOBS.c.id, _JOBS.c.spec, _JOBS.c.plan).order_by(_JOBS.c.id).limit(_AT_ONCE)
    steps = update(_JOBS).where(_JOBS.c.id == bindparam("of_job")).values(steps=bindparam("to"))
    while rows := connection.execute(some.where(_JOBS.c.id > last)).all():
        last = rows[-1].id
        known = [
            {"of_job": row.id, "to": row.plan["steps"]}
            for row in rows
            if row.plan and row.plan.get("steps") is not None
        ]
        if known:
            connection.execute(steps, known)
        values = [each for row in rows for each in _values(row.id, row.spec)]
        if values:
            connection.execute(insert(_VALUES), values)


def _values(job_id: str, spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    # By the code that runs the migration, and then reads the rows.
    for key, (number, text) in settings.of_spec(spec).items():
        yield {"key": key, "job_id": job_id, "number": number, "text": text}
