"""The role of docker/postgres.sql, on a server of its own: sufficient rights, and no superuser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import URL, make_url

from lockstep.storage.db import migrate
from tests.harness.postgres import find_programs, own_cluster
from tests.harness.processes import until

SCRIPT = Path(__file__).parents[2] / "docker" / "postgres.sql"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Return the URL of the database as the role, after the script has run as in the image."""
    with own_cluster() as cluster:
        if cluster is None:
            pytest.skip("NOT RUN: there are no programs of PostgreSQL here")
        superuser = make_url(cluster.url)
        _psql(superuser, SCRIPT)
        assert _passwords(cluster.url) == {"lockstep": True, "postgres": False}
        yield superuser.set(username="lockstep", database="lockstep").render_as_string(
            hide_password=False
        )


def _psql(server: URL, script: Path) -> None:
    programs = find_programs()
    psql = shutil.which("psql") if programs is None else str(programs / "psql")
    if psql is None or not Path(psql).exists():
        pytest.skip("NOT RUN: there is no psql here")
    words = [psql, "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-h", str(server.query["host"])]
    done = subprocess.run(
        [*words, "-U", str(server.username), "-d", str(server.database), "-f", str(script)],
        env={**os.environ, "POSTGRES_PASSWORD": "it's a password"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _passwords(url: str) -> dict[str, bool]:
    """Return the roles that may log in, with True for each that has a password."""
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


def _migrate(url: str, folder: Path) -> tuple[int, str]:
    """Return exit code and errors of the container's migration."""
    done = subprocess.run(
        [sys.executable, "-m", "lockstep.api", "migrate"],
        env={
            **os.environ,
            "LOCKSTEP_DATABASE_URL": url,
            "LOCKSTEP_BROKER_URL": "redis://localhost:1/0",
            "LOCKSTEP_STORE": str(folder),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr


def test_migrate_warns_of_a_role_that_is_a_superuser(url: str, tmp_path: Path) -> None:
    assert _migrate(url, tmp_path) == (0, "")
    superuser = make_url(url).set(username="postgres", database="postgres")
    code, said = _migrate(superuser.render_as_string(hide_password=False), tmp_path)
    assert code == 0
    assert said.startswith("warning: the role 'postgres' is a superuser")


def test_a_wrong_password_role_or_database_is_named_without_a_retry(
    url: str, tmp_path: Path
) -> None:
    superuser = make_url(url).set(username="postgres", database="postgres")
    with psycopg.connect(
        superuser.render_as_string(hide_password=False).replace("+psycopg", ""), autocommit=True
    ) as connection:
        (file,) = connection.execute("show hba_file").fetchone() or ("",)
        rules = Path(file).read_text()
        Path(file).write_text(f"local all lockstep scram-sha-256\n{rules}")
        connection.execute("select pg_reload_conf()")
        wrong = make_url(url).set(password="wrong").render_as_string(hide_password=False)
        until(lambda: _migrate(wrong, tmp_path)[0] == 2, 120, "the changed rules of the server")
        try:
            for change, refusal, step in (
                (
                    {"password": "wrong"},
                    'password authentication failed for user "lockstep"',
                    ".env",
                ),
                ({"username": "x"}, 'role "x" does not exist', "CREATE ROLE"),
                (
                    {"username": "postgres", "database": "x"},
                    'database "x" does not exist',
                    "createdb -O",
                ),
            ):
                wrong = make_url(url).set(**change).render_as_string(hide_password=False)
                code, said = _migrate(wrong, tmp_path)
                assert code == 2
                assert f"the jobs database refuses the connection: {refusal}; " in said
                assert step in said
                assert "LOCKSTEP_DATABASE_URL" in said
                assert "Try again" not in said
        finally:
            Path(file).write_text(rules)
            connection.execute("select pg_reload_conf()")


def test_the_role_of_an_old_volume_becomes_ordinary_and_may_migrate() -> None:
    """The first superuser is named lockstep, as in earlier versions of the image of PostgreSQL."""
    with own_cluster() as cluster:
        if cluster is None:
            pytest.skip("NOT RUN: there are no programs of PostgreSQL here")
        first = make_url(cluster.url)
        for role, statement in (
            ("postgres", "create role helper login superuser"),
            ("helper", "alter role postgres rename to lockstep"),
            ("lockstep", "create database lockstep"),
        ):
            _execute(first.set(username=role), statement)
        own = first.set(username="lockstep", database="lockstep")
        text = own.render_as_string(hide_password=False)
        migrate.upgrade(text, text)
        assert migrate.superusers(text, text) == ["lockstep"]
        _psql(own, SCRIPT.with_name("old_volume.sql"))
        assert migrate.superusers(text, text) == []
        assert _passwords(cluster.url) == {"helper": False, "lockstep": True, "postgres": False}
        _execute(own, "alter table jobs add column more integer")
        _execute(own, "create table more (id integer)")
        owners = "select distinct tableowner from pg_tables where schemaname = 'public'"
        assert _execute(own, owners) == [("lockstep",)]


def _execute(server: URL, statement: str) -> list[tuple[object, ...]]:
    address = server.render_as_string(hide_password=False).replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as connection:
        done = connection.execute(statement)
        return done.fetchall() if done.description else []
