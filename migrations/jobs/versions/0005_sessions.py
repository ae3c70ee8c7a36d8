"""Passwords and invitation codes of people, and their sessions."""

from __future__ import annotations

from functools import partial

from alembic import op
from sqlalchemy import Column, Double, Index, String

revision = "0005"
down_revision = "0004"

_required = partial(Column, nullable=False)


def upgrade() -> None:
    for column in (
        Column("password", String(255)),
        Column("code_sha256", String(64)),
        Column("code_until", Double),
    ):
        op.add_column("users", column)
    op.create_index("ix_users_code_sha256", "users", ["code_sha256"], unique=True)
    op.create_table(
        "sessions",
        Column("sha256", String(64), primary_key=True),
        _required("user_name", String(255)),
        _required("address", String(64)),
        _required("agent", String(200)),
        _required("created_at", Double),
        _required("seen_at", Double),
        _required("expires_at", Double),
        Column("ended_at", Double),
        Index("ix_sessions_user_name", "user_name"),
    )
