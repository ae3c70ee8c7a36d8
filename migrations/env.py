"""Alembic environment of one database.

It uses the connection and the transaction of ``storage.db.migrate``.
"""

from __future__ import annotations

from alembic import context

from lockstep.storage.db.schema import VERSION_TABLES
from lockstep.storage.db.whole import METADATA

which = context.config.attributes["which"]
context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA[which],
    version_table=VERSION_TABLES[which],
    compare_type=True,
    # SQLite changes a table by copying it.
    render_as_batch=True,
)
context.run_migrations()
