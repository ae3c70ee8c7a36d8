"""The role that docker/postgres.sql makes, on a server of its own: enough for Lockstep, and no
superuser."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from lockstep.storage.db import migrate
from tests.postgres import find_programs, own_cluster

SCRIPT = Path(__file__).parents[2] / "docker" / "postgres.sql"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of the database as the role, after the script has run as the image of PostgreSQL runs
    it."""
    programs = find_programs()
    psql = shutil.which("psql") if programs is None else str(programs / "psql")
    with own_cluster() as cluster:
        if cluster is None or psql is None or not Path(psql).exists():
            pytest.skip("NOT RUN: there are no programs of PostgreSQL here")
        superuser = make_url(cluster.url)
        host = str(superuser.query["host"])
        words = [
            psql,
            "--no-psqlrc",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            host,
            "-U",
            "postgres",
            "-d",
            "postgres",
        ]
        environment = {**os.environ, "POSTGRES_PASSWORD": "it's a password"}
        done = subprocess.run(
            [*words, "-f", str(SCRIPT)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert _passwords(cluster.url) == {"lockstep": True, "postgres": False}
        yield superuser.set(username="lockstep", database="lockstep").render_as_string(
            hide_password=False
        )


def _passwords(url: str) -> dict[str, bool]:
    """Which of the roles that may log in have a password."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        found = connection.execute(
            "select rolname, rolpassword is not null from pg_authid where rolcanlogin"
        )
        return dict(found.fetchall())


def test_the_role_is_no_superuser_and_runs_no_program(url: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        (superuser,) = connection.execute("show is_superuser").fetchone() or ("",)
        assert superuser == "off"
        rights = "rolsuper or rolcreatedb or rolcreaterole or rolreplication or rolbypassrls"
        assert connection.execute(
            f"select {rights} from pg_roles where rolname = current_user"
        ).fetchone() == (False,)
        for forbidden in (
            "copy (select 1) to program 'id'",
            "create role another superuser",
            "alter role lockstep superuser",
            "select * from pg_authid",
            "select pg_read_file('/etc/passwd')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(forbidden)


def test_the_role_may_migrate(url: str) -> None:
    migrate.upgrade(url, url)
    assert migrate.pending(url, url) == []
