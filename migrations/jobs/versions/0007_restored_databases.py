"""Place of the jobs database, and the time at which a scheduler found it in another one.

Then a backup was restored.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("scheduler_lease", sa.Column("place", sa.Text(), nullable=True))
    op.add_column("scheduler_lease", sa.Column("restored_at", sa.Double(), nullable=True))
