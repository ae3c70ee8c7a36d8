"""Labels, notes and stars of jobs, which people change."""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    String,
    Text,
    bindparam,
    column,
    false,
    select,
    table,
    update,
)

revision = "0013"
down_revision = "0012"

_AT_ONCE: Final = 500
"""Jobs whose specs are read together."""
_JOBS: Final = table("jobs", column("id", String), column("spec", JSON), column("labels", JSON))


def upgrade() -> None:
    op.add_column("jobs", Column("labels", JSON, nullable=False, server_default="{}"))
    op.add_column("jobs", Column("note", Text))
    op.add_column("jobs", Column("starred", Boolean, nullable=False, server_default=false()))
    connection, last = op.get_bind(), ""
    some = select(_JOBS.c.id, _JOBS.c.spec).order_by(_JOBS.c.id).limit(_AT_ONCE)
    of_spec = update(_JOBS).where(_JOBS.c.id == bindparam("of_job"))
    while rows := connection.execute(some.where(_JOBS.c.id > last)).all():
        last = rows[-1].id
        labelled = [
            {"of_job": row.id, "given": row.spec["labels"]}
            for row in rows
            if row.spec.get("labels")
        ]
        if labelled:
            connection.execute(of_spec.values(labels=bindparam("given", type_=JSON)), labelled)
