"""Single-use codes of ``lockstep open``, and sessions that are bound to a token."""

from __future__ import annotations

from functools import partial

from alembic import op
from sqlalchemy import Column, Double, String

revision = "0006"
down_revision = "0005"

_required = partial(Column, nullable=False)


def upgrade() -> None:
    op.add_column("sessions", Column("token_id", String(36)))
    op.create_table(
        "sign_in_codes",
        Column("sha256", String(64), primary_key=True),
        _required("user_name", String(255)),
        Column("token_id", String(36)),
        _required("expires_at", Double),
    )
