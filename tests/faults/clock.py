"""The database's clock, controlled by a test: the product's own SQL reads another time.

No part of the product is replaced. On SQLite the function ``julianday`` is ours for each
connection. On PostgreSQL a function ``clock_timestamp`` is in a schema that this one database
searches before ``pg_catalog``. It reads a sequence, because a sequence has the same value for every
transaction.

Not here: clocks of processes. No decision of the service may depend on one.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.pool import StaticPool

START: Final = 1_800_000_000.0
_UNIX_EPOCH_DAYS: Final = 2440587.5
_MOVED: Final = """
CREATE SCHEMA moved;
CREATE SEQUENCE moved.microseconds MINVALUE 0 START 0;
CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT to_timestamp(last_value / 1e6) FROM moved.microseconds';
"""


class DatabaseClock:
    """Current time of every connection to the databases at ``url``.

    It stands until it is moved.
    """

    def __init__(self, url: str) -> None:
        self._at = START
        self._connection: Connection | None = None
        if make_url(url).get_backend_name() == "postgresql":
            self._connection = _prepared(url)
        self.move_to(START)

    @property
    def at(self) -> float:
        """Seconds since the epoch."""
        return self._at

    def move_to(self, at: float) -> None:
        self._at = at
        if self._connection is not None:
            moment = {"moment": round(at * 1e6)}
            self._connection.execute(text("SELECT setval('moved.microseconds', :moment)"), moment)

    def advance(self, seconds: float) -> None:
        """Let time pass, or go back if ``seconds`` is negative."""
        self.move_to(self._at + seconds)

    def rule(self, engine: Engine) -> None:
        """Make an engine's future connections use this clock."""
        if engine.dialect.name != "sqlite":
            return  # there the database itself has the clock

        @event.listens_for(engine, "connect")
        def _connected(connection: sqlite3.Connection, _record: Any) -> None:
            connection.create_function(
                "julianday", 1, lambda _when: self._at / 86400.0 + _UNIX_EPOCH_DAYS
            )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection.engine.dispose()


def _prepared(url: str) -> Connection:
    connection = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=StaticPool).connect()
    connection.exec_driver_sql(_MOVED)
    name = connection.execute(text("SELECT current_database()")).scalar_one()
    connection.exec_driver_sql(
        f'ALTER DATABASE "{name}" SET search_path = moved, pg_catalog, public'
    )
    return connection
