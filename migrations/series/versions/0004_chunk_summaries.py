"""The summary of a full chunk of points, from which charts are drawn.

It may be empty: programs of the version before go on writing rows while this one starts, and a
chunk without one is opened. Chunks are compressed from now on; those that are there stay as they
are, and are read as before.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # Not in a batch, which would copy the whole table on SQLite.
    op.add_column("series_chunks", sa.Column("summary", sa.LargeBinary(), nullable=True))
