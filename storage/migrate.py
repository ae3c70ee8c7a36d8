"""Bringing both databases from whatever they are, empty included, to what this version needs.

Two programs may start at once: the second waits for the first and then finds nothing to do. On PostgreSQL an advisory
lock sees to that, on SQLite the write lock that the whole upgrade holds. On both, an upgrade that fails leaves nothing.

Not here: the changes themselves (``migrations/``, found as package data so that it works from a wheel).
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, make_url, text

from storage.database import make_engine
from storage.faults import translated

LOCK_KEY: Final = 0x10C5_7E40
"""Of the advisory lock: any number that nobody else uses in this database."""
VERSION_TABLES: Final = {"jobs": "alembic_version_jobs", "series": "alembic_version_series"}
"""Two, because both sets of tables may live in one PostgreSQL database."""


def upgrade(jobs_url: str, series_url: str) -> None:
    """Bring both databases to the newest version; an SQLite file is made where there is none."""
    for which, url in (("jobs", jobs_url), ("series", series_url)):
        database = make_url(url)
        if database.get_backend_name() == "sqlite" and database.database:
            Path(database.database).parent.mkdir(parents=True, exist_ok=True)
        engine = make_engine(url, durable=True)
        try:
            with translated(which), engine.execution_options(lockstep_write=True).begin() as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
                command.upgrade(config(which, connection), "head")
        finally:
            engine.dispose()


def pending(jobs_url: str, series_url: str) -> list[str]:
    """Which of ``jobs`` and ``series`` are not at the version that this program needs."""
    behind = []
    for which, url in (("jobs", jobs_url), ("series", series_url)):
        engine = make_engine(url, durable=True)
        try:
            with translated(which), engine.connect() as connection:
                context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLES[which]})
                heads = set(ScriptDirectory.from_config(config(which, connection)).get_heads())
                if set(context.get_current_heads()) != heads:
                    behind.append(which)
        finally:
            engine.dispose()
    return behind


def config(which: str, connection: Connection) -> Config:
    """Alembic's settings for one of the two databases, on an open connection."""
    folder = Path(str(files("migrations")))
    settings = Config()
    settings.set_main_option("script_location", _literal(folder))
    settings.set_main_option("version_locations", _literal(folder / which / "versions"))
    settings.set_main_option("path_separator", "newline")
    settings.attributes["connection"] = connection
    settings.attributes["which"] = which
    return settings


def _literal(path: Path) -> str:
    return str(path).replace("%", "%%")
