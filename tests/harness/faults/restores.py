"""Ways to restore a backup of both databases, with their own tools.

Not here: the required result (``test_restore``, ``test_ordinary_restore``).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from sqlalchemy import make_url

from tests.harness.databases import Urls
from tests.harness.postgres import PostgresServer, find_programs

SECTIONS: Final = ("pre-data", "data", "post-data")
"""Of a dump, in the order of ``pg_restore``."""

Restore = Callable[[], None]


def pg(server: PostgresServer, program: str, database: str, *words: str) -> None:
    """Run one of PostgreSQL's programs on a database of the server."""
    programs = find_programs()
    assert programs is not None
    url = make_url(server.url(database)).set(drivername="postgresql")
    command = [str(programs / program), "--dbname", url.render_as_string(hide_password=False)]
    subprocess.run(
        [*command, *words],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )


def dumped(server: PostgresServer, name: str, folder: Path) -> str:
    """Dump a database; return the file."""
    file = str(folder / f"dump-{time.monotonic_ns()}")
    pg(server, "pg_dump", name, "-Fc", "--file", file)
    return file


def beside(server: PostgresServer, name: str, file: str) -> None:
    """Restore into another database, and rename that one."""
    other = server.create()
    pg(server, "pg_restore", other, "--exit-on-error", file)
    server.drop(name)
    server.rename(other, name)


def ordinary(server: PostgresServer, name: str, file: str) -> None:
    """Drop the database, create it, restore into it."""
    server.recreate(name)
    pg(server, "pg_restore", name, "--exit-on-error", file)


def slow(server: PostgresServer, name: str, file: str, *, pause_seconds: float) -> None:
    """Restore the ordinary way, with a large database.

    For a while all tables exist without rows.
    """
    server.recreate(name)
    for section in SECTIONS:
        if section == "data":
            time.sleep(pause_seconds)
        pg(server, "pg_restore", name, "--exit-on-error", f"--section={section}", file)


def clean(server: PostgresServer, name: str, file: str) -> None:
    """Restore over the existing tables."""
    pg(server, "pg_restore", name, "--exit-on-error", "--clean", "--if-exists", file)


def paths(urls: Urls) -> list[Path]:
    """Return both SQLite files, the series database first."""
    return [Path(make_url(url).database or "") for url in reversed(urls)]


def copied(files: list[Path], folder: Path) -> None:
    """Back up SQLite files that are in use."""
    for path in files:
        _online(path, folder / path.name)


def renamed(files: list[Path], folder: Path) -> None:
    """Delete the files, and rename the backup into their place."""
    for path in files:
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
            path.with_name(name).unlink(missing_ok=True)
    for path in files:
        copy = path.with_name(f"{path.name}.restored")
        shutil.copyfile(folder / path.name, copy)
        copy.rename(path)


def in_place(files: list[Path], folder: Path) -> None:
    """Write the backup into the live files, like ``.restore`` of the program ``sqlite3``."""
    for path in files:
        _online(folder / path.name, path)


def _online(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        new.execute("PRAGMA busy_timeout=60000")
        old.backup(new)
