"""Files that jobs keep."""

from __future__ import annotations

from functools import partial

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Double, ForeignKey, Integer, String, Text

revision = "0011"
down_revision = "0010"

_required = partial(Column, nullable=False)


def upgrade() -> None:
    for name, columns in (("kept_files", _files()), ("kept_rounds", _rounds())):
        job = ForeignKey("jobs.id", ondelete="CASCADE", name=f"fk_{name}_job_id_jobs")
        op.create_table(
            name,
            Column("job_id", String(36), job, primary_key=True),
            Column("node_rank", Integer, primary_key=True, autoincrement=False),
            *columns,
        )
    op.create_index("ix_kept_files_job_id_path", "kept_files", ["job_id", "path"])
    job = ForeignKey("jobs.id", ondelete="CASCADE", name="fk_file_retentions_job_id_jobs")
    op.create_table(
        "file_retentions",
        Column("job_id", String(36), job, primary_key=True),
        _required("days", Integer),
    )


def _files() -> list[Column[object]]:
    return [
        Column("path", String(400), primary_key=True),
        _required("sha256", String(64)),
        _required("bytes", BigInteger),
        _required("modified_at", Double),
        _required("executable", Boolean),
        _required("attempt", Integer),
        _required("location", Text),
    ]


def _rounds() -> list[Column[object]]:
    return [
        _required("revision", BigInteger),
        _required("attempt", Integer),
        _required("complete", Boolean),
        _required("as_of", Double),
    ]
