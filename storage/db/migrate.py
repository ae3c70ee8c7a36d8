"""Migration of both databases, empty ones included, to the schema of this version.

Two programs may start at once: the second waits for the first and then finds nothing to do.
PostgreSQL uses an advisory lock, SQLite the write lock, which the whole upgrade holds. A failed
upgrade changes nothing.

Not here: the migrations (``migrations/``, read as package data).
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, make_url, text, update

from lockstep.storage.db.driver_errors import translated
from lockstep.storage.db.engines import make_engine
from lockstep.storage.db.schema import Mismatch, compare
from lockstep.storage.db.tables import SchedulerLeaseRow

LOCK_KEY: Final = 0x10C5_7E40
"""Key of the advisory lock; no other lock in this database may have it."""


def upgrade(jobs_url: str, series_url: str) -> None:
    """Bring both databases to the newest version; an SQLite file is made where there is none.

    Raises
    ------
    LockstepError
        ``CONFLICT`` when one is newer than this program; then neither is changed.
    """
    urls = (("jobs", jobs_url), ("series", series_url))
    for which, url in urls:
        if not _is_missing_file(url):
            _refuse_newer(_mismatch(which, url))
    for which, url in urls:
        database = make_url(url)
        if database.get_backend_name() == "sqlite" and database.database:
            Path(database.database).parent.mkdir(parents=True, exist_ok=True)
        engine = make_engine(url, durable=True)
        try:
            with (
                translated(which),
                engine.execution_options(lockstep_write=True).begin() as connection,
            ):
                if connection.dialect.name == "postgresql":
                    connection.execute(
                        text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY}
                    )
                # Again, because another program may have upgraded it while this one waited.
                _refuse_newer(compare(connection, which))
                migrated = compare(connection, which) is not None
                command.upgrade(config(which, connection), "head")
                if migrated and which == "jobs":
                    # A migration changes it as a restore does.
                    connection.execute(update(SchedulerLeaseRow).values(place=None))
        finally:
            engine.dispose()


def pending(jobs_url: str, series_url: str) -> list[str]:
    """List which of ``jobs`` and ``series`` are not at the version that this program needs."""
    urls = (("jobs", jobs_url), ("series", series_url))
    return [which for which, url in urls if _mismatch(which, url) is not None]


def superusers(jobs_url: str, series_url: str) -> list[str]:
    """List the roles of the two addresses that are superusers of their PostgreSQL server.

    The agents have the address, and a job runs as its agent's user: with such a role every job may
    run programs on the host of the database.
    """
    found = []
    for which, url in {"jobs": jobs_url, "series": series_url}.items():
        engine = make_engine(url, durable=True)
        try:
            with translated(which), engine.connect() as connection:
                if connection.dialect.name == "postgresql":
                    row = connection.execute(
                        text("SELECT current_user, current_setting('is_superuser')")
                    ).one()
                    found += [row[0]] if row[1] == "on" else []
        finally:
            engine.dispose()
    return sorted(set(found))


def _refuse_newer(differs: Mismatch | None) -> None:
    if differs is not None and differs.newer:
        raise differs.error()


def _mismatch(which: str, url: str) -> Mismatch | None:
    engine = make_engine(url, durable=True)
    try:
        with translated(which), engine.connect() as connection:
            return compare(connection, which)
    finally:
        engine.dispose()


def _is_missing_file(url: str) -> bool:
    database = make_url(url)
    return database.get_backend_name() == "sqlite" and not Path(database.database or "").exists()


def config(which: str, connection: Connection) -> Config:
    """Alembic's settings for one of the two databases, on an open connection."""
    folder = Path(str(files("lockstep.migrations")))
    settings = Config()
    settings.set_main_option("script_location", _literal(folder))
    settings.set_main_option("version_locations", _literal(folder / which / "versions"))
    settings.set_main_option("path_separator", "newline")
    settings.attributes["connection"] = connection
    settings.attributes["which"] = which
    return settings


def _literal(path: Path) -> str:
    return str(path).replace("%", "%%")
