"""Every program refuses a database of another schema at its start.

One sentence names the side to upgrade.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import create_engine, text

from lockstep.storage.db.schema import VERSION_TABLES, head
from tests.harness import forks
from tests.harness.databases import Urls
from tests.harness.processes import ROOT, START_SECONDS

PROGRAMS: Final[dict[str, tuple[list[str], dict[str, str]]]] = {
    "api": (["lockstep.api"], {"LOCKSTEP_MIGRATE": "off"}),
    "api that migrates": (["lockstep.api"], {"LOCKSTEP_MIGRATE": "on"}),
    "migrate": (["lockstep.api", "migrate"], {}),
    "scheduler": (["lockstep.scheduler"], {}),
    "agent": (["lockstep.worker"], {}),
}
NEVER_MIGRATE: Final = ["api", "scheduler", "agent"]
WHICH: Final = ["jobs", "series"]


def refusal(name: str, urls: Urls, folder: Path) -> str:
    """Return the one line with which a program refuses to start."""
    words, more = PROGRAMS[name]
    environment = {
        "PATH": os.environ["PATH"],
        "LOCKSTEP_DATABASE_URL": urls[0],
        "LOCKSTEP_SERIES_URL": urls[1],
        "LOCKSTEP_BROKER_URL": f"redis+socket://{folder}/none.sock",
        "LOCKSTEP_STORE": str(folder / "store"),
        "LOCKSTEP_NODE_NAME": "n1",
        "LOCKSTEP_NODE_DIR": str(folder / "node"),
        "LOCKSTEP_PORT": "0",
        "LOCKSTEP_TIMINGS_SCALE": "0.1",
        **more,
    }
    command = [sys.executable, "-m", *words]
    ended = forks.run(command, forks.SERVICE, cwd=ROOT, env=environment, timeout=START_SECONDS)
    assert ended.returncode == 2, ended.stderr
    (line,) = ended.stderr.splitlines()
    return line


def set_version(urls: Urls, which: str, version: str) -> None:
    engine = create_engine(urls[WHICH.index(which)])
    with engine.begin() as connection:
        connection.execute(
            text(f"UPDATE {VERSION_TABLES[which]} SET version_num = :new"), {"new": version}
        )
    engine.dispose()


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_newer_database_is_refused_with_an_upgrade_of_the_program(
    sqlite_urls: Urls, tmp_path: Path, name: str, which: str
) -> None:
    set_version(sqlite_urls, which, "9999")
    line = refusal(name, sqlite_urls, tmp_path)
    assert f"the {which} database has schema 9999, newer than {head(which)} of this program" in line
    assert "upgrade Lockstep on this host" in line
    assert "lockstep migrate" not in line


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("name", NEVER_MIGRATE)
def test_an_older_database_is_refused_with_a_migration(
    sqlite_urls: Urls, tmp_path: Path, name: str, which: str
) -> None:
    set_version(sqlite_urls, which, "0000")
    line = refusal(name, sqlite_urls, tmp_path)
    assert f"the {which} database has schema 0000, older than {head(which)} of this program" in line
    assert "with: lockstep migrate" in line


@pytest.mark.parametrize("name", NEVER_MIGRATE)
def test_a_program_refuses_a_database_without_tables(tmp_path: Path, name: str) -> None:
    urls = f"sqlite:///{tmp_path}/jobs.db", f"sqlite:///{tmp_path}/series.db"
    line = refusal(name, urls, tmp_path)
    assert "the jobs database has no Lockstep tables" in line
    assert "with: lockstep migrate" in line
