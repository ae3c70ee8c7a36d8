"""State of a paused job, and the requests to pause and to requeue a live one."""

from __future__ import annotations

from typing import Final

from alembic import op
from sqlalchemy import text

revision = "0010"
down_revision = "0009"

_CHECKS: Final = {
    "state": (
        "'queued', 'starting', 'running', 'succeeded', 'failed', 'cancelled'",
        "'queued', 'starting', 'running', 'paused', 'succeeded', 'failed', 'cancelled'",
    ),
    "intent": (
        "'cancel', 'timeout', 'shutdown'",
        "'cancel', 'timeout', 'pause', 'requeue', 'shutdown'",
    ),
}


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _rewrite()
        return
    for column, (_, values) in _CHECKS.items():
        name = f"ck_jobs_{column}"
        check = f"CHECK ({column} IN ({values}))"
        op.execute(
            f"ALTER TABLE jobs DROP CONSTRAINT {name}, ADD CONSTRAINT {name} {check}",
        )


def _rewrite() -> None:
    """Change the text of the table: a copy of all jobs would take minutes.

    SQLite's manual describes this for constraints (https://sqlite.org/lang_altertable.html, "Making
    Other Kinds Of Table Schema Changes"). Each stored row meets the wider constraint.
    """
    bind = op.get_bind()
    version = bind.scalar(text("PRAGMA schema_version"))
    op.execute("PRAGMA writable_schema = ON")
    change = text(
        "UPDATE sqlite_master SET sql = replace(sql, :before, :after) "
        "WHERE type = 'table' AND name = 'jobs'"
    )
    for before, after in _CHECKS.values():
        bind.execute(change, {"before": f"({before})", "after": f"({after})"})
    op.execute(f"PRAGMA schema_version = {version + 1}")
    op.execute("PRAGMA writable_schema = OFF")
