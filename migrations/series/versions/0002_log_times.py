"""Times of the lines of a log chunk, for pages that begin at a time.

Both may be empty: programs of the version before still write rows while this one starts, and a
chunk without times is opened like one that may have any. Filling them would require decompressing
every log.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # Not in a batch, which would copy the whole table on SQLite: gigabytes of logs.
    op.add_column("log_chunks", sa.Column("time_min", sa.Double(), nullable=True))
    op.add_column("log_chunks", sa.Column("time_max", sa.Double(), nullable=True))
    op.create_index(
        "ix_log_chunks_times",
        "log_chunks",
        ["job_id", "attempt", "first_line", "time_min", "time_max"],
        unique=False,
    )
