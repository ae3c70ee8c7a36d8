"""Migrations, from an empty database to the declared schema, on both databases."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, MetaData, Table, delete, insert, inspect, select, update

from lockstep.domain.rights import EVERY, ProjectRole, Right, UserState
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.control import scheduler_lease
from lockstep.storage.db.database import Database
from lockstep.storage.db.engines import make_engine
from lockstep.storage.db.migrate import config, pending, upgrade
from lockstep.storage.db.people_tables import TokenRow, UserRow
from lockstep.storage.db.schema import VERSION_TABLES
from lockstep.storage.db.series_tables import SeriesChunkRow, SeriesLatestRow
from lockstep.storage.db.tables import SchedulerLeaseRow
from lockstep.storage.db.whole import METADATA
from lockstep.storage.jobs import jobs, listing
from lockstep.storage.people import projects, tokens
from lockstep.storage.series import series
from tests.harness.databases import Urls
from tests.harness.postgres import PostgresServer
from tests.storage import lists, scenes


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Urls]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/new/jobs.db", f"sqlite:///{tmp_path}/new/series.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create()
    yield server.url(name), server.url(name)
    server.drop(name)


def _opened(url: str) -> Iterator[Engine]:
    engine = make_engine(url, durable=True)
    yield engine
    engine.dispose()


def test_an_empty_database_is_pending_until_upgraded(empty_urls: Urls) -> None:
    if empty_urls[0].startswith("sqlite"):
        Path(empty_urls[0].removeprefix("sqlite:///")).parent.mkdir()
    assert pending(*empty_urls) == ["jobs", "series"]
    upgrade(*empty_urls)
    assert pending(*empty_urls) == []


@pytest.mark.parametrize("which", ["jobs", "series"])
def test_a_migrated_schema_is_the_declared_one(empty_urls: Urls, which: str) -> None:
    upgrade(*empty_urls)
    others = {
        name for other, metadata in METADATA.items() if other != which for name in metadata.tables
    }
    others |= set(VERSION_TABLES.values())
    for engine in _opened(empty_urls[0 if which == "jobs" else 1]):
        with engine.connect() as connection:
            context = MigrationContext.configure(
                connection,
                opts={
                    "compare_type": True,
                    "version_table": VERSION_TABLES[which],
                    "include_name": lambda name, kind, _parents: (
                        kind != "table" or name not in others
                    ),
                },
            )
            assert compare_metadata(context, METADATA[which]) == []


def test_a_migrated_schema_has_every_check_of_the_declared_one(empty_urls: Urls) -> None:
    upgrade(*empty_urls)
    declared = {
        (table.name, constraint.name)
        for table in METADATA["jobs"].tables.values()
        for constraint in table.constraints
        if type(constraint).__name__ == "CheckConstraint"
    }
    for engine in _opened(empty_urls[0]):
        inspector = inspect(engine)
        found = {
            (table, constraint["name"])
            for table in inspector.get_table_names()
            for constraint in inspector.get_check_constraints(table)
        }
    assert len(declared) == 9
    assert {name for _table, name in found} == {
        f"ck_{table}_{name}" for table, name in _words(declared)
    }


def _words(declared: set[tuple[str, object]]) -> list[tuple[str, str]]:
    return [(table, str(name).removeprefix(f"ck_{table}_")) for table, name in declared]


def test_an_upgrade_that_is_run_again_changes_nothing(database_urls: Urls) -> None:
    database = Database(*database_urls)
    with database.jobs() as session:
        assert scheduler_lease.take(session, "first", ttl_seconds=60)
    upgrade(*database_urls)
    with database.read_jobs() as session:
        assert [row.owner for row in session.scalars(select(SchedulerLeaseRow))] == ["first"]
    database.close()


def test_programs_that_upgrade_at_once_wait_for_each_other(empty_urls: Urls) -> None:
    code = (
        "import sys; from lockstep.storage.db.migrate import upgrade; sys.stdin.readline(); "
        "upgrade(*sys.argv[1:])"
    )
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", code, *empty_urls], stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for program in programs:
        assert program.stdin is not None
        program.stdin.write(b"go\n")
        program.stdin.flush()
    errors = [program.communicate()[1].decode() for program in programs]
    assert [program.returncode for program in programs] == [0, 0], errors
    assert pending(*empty_urls) == []


def test_projects_and_people_in_use_keep_their_jobs_and_tokens(
    empty_urls: Urls, sqlite_urls: Urls
) -> None:
    owners = [
        ("ada", "nlp"),
        ("bob", "nlp"),
        ("bob", "vision"),
        ("cy", "speech"),
        ("dan", "default"),
    ]
    database = Database(*sqlite_urls)
    with database.jobs() as session:
        for actor, project in owners:
            spec = JobSpec.model_validate(scenes.document(project=project))
            jobs.create(session, document={}, spec=spec, plan=None, actor=actor)
        for actor in ("ada", "admin", "eve"):
            tokens.ensure(session, f"token-of-{actor}", name="old", actor=actor)
        session.execute(update(TokenRow).where(TokenRow.actor == "eve").values(revoked_at=1.0))
    with database.read_jobs() as session:
        rows = {
            name: [row._asdict() for row in session.execute(select(METADATA["jobs"].tables[name]))]
            for name in ("jobs", "tokens")
        }
    database.close()
    _migrate_to(empty_urls, "jobs", "0001", rows)
    upgrade(*empty_urls)
    database = Database(*empty_urls)
    with database.read_jobs() as session:
        for actor, project in owners:
            assert projects.roles_of(session, actor)[project] is ProjectRole.MEMBER
            assert projects.get(session, project)
        names = ["bob", "cy", "eve", "admin"]
        people = session.scalars(select(UserRow).where(UserRow.name.in_(names)))
        states = {row.name: row.state for row in people}
        assert states == dict.fromkeys(names, UserState.INVITED) | {"admin": UserState.ACTIVE}
        for actor in ("ada", "admin"):
            token = tokens.find(session, f"token-of-{actor}")
            assert token is not None
            assert tokens.why_refused(session, token) is None
            assert tokens.rights(session, token).within(Right.JOB_CONTROL) == EVERY
        everything = listing.page(session, among=EVERY, limit=10)[0]
        assert {(job.actor, job.project) for job in everything} == set(owners)
    database.close()


def test_jobs_and_series_that_exist_get_the_rows_of_lists(
    empty_urls: Urls, sqlite_urls: Urls
) -> None:
    database = Database(*sqlite_urls)
    lists.make(database, 12, seed=8)
    with database.series() as session:
        for each in (SeriesChunkRow, SeriesLatestRow):
            session.execute(delete(each))
    scenes.add_node(database)
    claim = scenes.start(database, scenes.submit(database))
    for first, value in ((0, 2.5), (1, -1.0), (2, math.nan)):
        with database.series() as session:
            assert series.append(
                session,
                assignment_id=claim.assignment_id,
                token=claim.token,
                offset_before=first,
                offset_after=first + 1,
                records=[StepValues(first, 1.0, {"m": value})],
            )
    rows = {which: _rows(database, which) for which in ("jobs", "series")}
    database.close()
    _migrate_to(empty_urls, "jobs", "0011", {"jobs": rows["jobs"]["jobs"]})
    series_rows = {name: rows["series"][name] for name in ("series_latest", "series_chunks")}
    _migrate_to(empty_urls, "series", "0002", series_rows)
    upgrade(*empty_urls)
    database = Database(*empty_urls)
    again = {which: _rows(database, which) for which in ("jobs", "series")}
    database.close()
    for which, name in (("jobs", "job_values"), ("jobs", "jobs"), ("series", "series_latest")):
        assert sorted(again[which][name], key=str) == sorted(rows[which][name], key=str)
    assert again["jobs"]["job_values"]
    assert any(row["steps"] for row in again["jobs"]["jobs"])


def _rows(database: Database, which: str) -> dict[str, list[dict[str, Any]]]:
    opened = database.read_jobs if which == "jobs" else database.read_series
    with opened() as session:
        return {
            name: [row._asdict() for row in session.execute(select(table))]
            for name, table in METADATA[which].tables.items()
        }


def _migrate_to(
    urls: Urls, which: str, version: str, rows: dict[str, list[dict[str, Any]]]
) -> None:
    """Make a database of an earlier migration, with these rows."""
    if urls[0].startswith("sqlite"):
        Path(urls[0].removeprefix("sqlite:///")).parent.mkdir(exist_ok=True)
    for engine in _opened(urls[0] if which == "jobs" else urls[1]):
        with engine.execution_options(lockstep_write=True).begin() as connection:
            command.upgrade(config(which, connection), version)
            for name, values in rows.items():
                found = Table(name, MetaData(), autoload_with=connection)
                known = set(found.columns.keys())
                connection.execute(
                    insert(found),
                    [{key: each[key] for key in each if key in known} for each in values],
                )
