"""A database whose disk is full, for as long as a test requests it.

SQLite gets a limit on the size of its file (``max_page_count``). Its error is then the one of a
full disk, at the moment when it needs a page. PostgreSQL has no such setting: its driver's error is
raised at the write of a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import Engine, event

_PAGES_MAX = 1_073_741_823
"""SQLite's own default."""


@contextmanager
def full(engine: Engine) -> Iterator[None]:
    """Refuse more data in the engine's database inside the block."""
    hook, listener = (
        ("checkout", _no_more_pages)
        if engine.dialect.name == "sqlite"
        else ("do_execute", _no_more_rows)
    )
    event.listen(engine, hook, listener)
    try:
        yield
    finally:
        event.remove(engine, hook, listener)
        if engine.dialect.name == "sqlite":
            engine.dispose()  # the setting belongs to the connection


def _no_more_pages(connection: Any, _record: Any, _proxy: Any) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()


def _no_more_rows(_cursor: Any, statement: str, _parameters: Any, _context: Any) -> None:
    if statement.startswith("INSERT INTO"):
        raise psycopg.errors.DiskFull('could not extend file "base/1/2": No space left on device')
