"""People, projects and memberships; scopes, projects and the end of a token.

Each project name in use becomes a project, and each user name a person, who is a member of the
projects of the own jobs. Until now every token had all rights: the owner of a valid one becomes an
admin of the service. The others are invited.
"""

from __future__ import annotations

import time
from functools import partial

from alembic import op
from sqlalchemy import JSON, Column, Double, Enum, ForeignKey, Index, String, text

revision = "0002"
down_revision = "0001"

_required = partial(Column, nullable=False)


def _choice(name: str, *values: str) -> Enum:
    return Enum(*values, name=name, native_enum=False, create_constraint=True, length=16)


def upgrade() -> None:
    op.create_table(
        "users",
        Column("name", String(255), primary_key=True),
        Column("role", _choice("service_role", "operator", "admin")),
        _required("state", _choice("user_state", "invited", "active", "off")),
        _required("created_at", Double),
    )
    op.create_table(
        "projects",
        Column("name", String(255), primary_key=True),
        _required("visibility", _choice("visibility", "internal", "private")),
        _required("created_at", Double),
    )
    op.create_table(
        "memberships",
        Column("project", String(255), ForeignKey("projects.name"), primary_key=True),
        Column("user_name", String(255), ForeignKey("users.name"), primary_key=True),
        _required("role", _choice("project_role", "viewer", "member", "admin")),
        Index("ix_memberships_user_name", "user_name"),
    )
    for column in (
        Column("scopes", JSON),
        Column("projects", JSON),
        Column("expires_at", Double),
    ):
        op.add_column("tokens", column)
    for statement in _ROWS:
        op.execute(text(statement).bindparams(**_at(statement)))


def _at(statement: str) -> dict[str, float]:
    return {"at": time.time()} if ":at" in statement else {}


_ROWS = (
    "INSERT INTO users (name, role, state, created_at) SELECT DISTINCT actor, 'admin', 'active',"
    " CAST(:at AS double precision) FROM tokens WHERE revoked_at IS NULL",
    "INSERT INTO users (name, state, created_at) SELECT actor, 'invited',"
    " CAST(:at AS double precision) FROM (SELECT actor FROM jobs UNION SELECT actor FROM tokens)"
    " AS used WHERE actor NOT IN (SELECT name FROM users)",
    "INSERT INTO projects (name, visibility, created_at) SELECT project, 'internal',"
    " CAST(:at AS double precision) FROM (SELECT 'default' AS project UNION"
    " SELECT project FROM jobs) AS used",
    "INSERT INTO memberships (project, user_name, role) SELECT DISTINCT project, actor, 'member'"
    " FROM jobs",
)
