"""The audit, with triggers that refuse to change and delete its rows.

Backups are restored as before: ``pg_restore`` and the dump of SQLite insert rows, and add triggers
after them. Of SQLite, a later migration that copies this table must create its triggers again.
"""

from __future__ import annotations

from functools import partial

from alembic import op
from sqlalchemy import JSON, BigInteger, Column, Double, Enum, Index, Integer, String

revision = "0003"
down_revision = "0002"

_required = partial(Column, nullable=False)


def upgrade() -> None:
    op.create_table(
        "audit",
        Column(
            "id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
        ),
        _required("at", Double),
        _required("actor", String(255)),
        Column("token", String(36)),
        Column("address", String(64)),
        Column("request_id", String(64)),
        _required("action", String(64)),
        _required("target", String(512)),
        Column("project", String(255)),
        _required(
            "outcome",
            Enum(
                "ok",
                "denied",
                name="audit_outcome",
                native_enum=False,
                create_constraint=True,
                length=16,
            ),
        ),
        Column("detail", JSON),
        Index("ix_audit_project_id", "project", "id"),
        Index("ix_audit_actor_id", "actor", "id"),
    )
    for statement in _TRIGGERS[op.get_bind().dialect.name]:
        op.execute(statement)


_WHY = "rows of the audit are neither changed nor deleted"
_TRIGGERS = {
    "sqlite": [
        f"CREATE TRIGGER audit_{event.lower()} BEFORE {event} ON audit"
        f" BEGIN SELECT RAISE(ABORT, '{_WHY}'); END"
        for event in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION refuse_change_of_audit() RETURNS trigger LANGUAGE plpgsql"
        f" AS $$ BEGIN RAISE EXCEPTION '{_WHY}'; END $$",
        "CREATE TRIGGER audit_unchanged BEFORE UPDATE OR DELETE OR TRUNCATE ON audit"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_audit()",
    ],
}
