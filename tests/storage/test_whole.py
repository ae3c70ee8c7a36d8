"""A PostgreSQL database whose restore is not complete refuses every transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from lockstep.storage.attempts import nodes
from lockstep.storage.control import scheduler_lease
from lockstep.storage.db import database as database_module
from lockstep.storage.db.database import Database
from lockstep.storage.db.whole import NotWholeError
from tests.harness.databases import Urls
from tests.harness.postgres import PostgresServer

DROPPED = {
    "a table": "DROP TABLE node_failures",
    "all tables": "DROP SCHEMA public CASCADE",
    "a foreign key": "ALTER TABLE devices DROP CONSTRAINT fk_devices_node_name_nodes",
    "a primary key": "ALTER TABLE scheduler_lease DROP CONSTRAINT pk_scheduler_lease",
    "a unique index": "DROP INDEX uq_attempts_one_live",
}


@pytest.fixture
def opened(postgres_urls: Urls) -> Iterator[Database]:
    database = Database(*postgres_urls)
    yield database
    database.close()


@pytest.mark.parametrize("statement", DROPPED.values(), ids=DROPPED)
def test_a_database_without_a_key_refuses_reads_and_writes(
    opened: Database, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "WHOLE_SECONDS", 0.0)
    with opened.jobs() as session:
        session.execute(text("SELECT 1"))
    with opened.look_jobs() as connection:
        connection.execute(text(statement))
    for transaction in (opened.read_jobs, opened.jobs, opened.look_jobs, opened.look_lists):
        with pytest.raises(NotWholeError, match="not whole") as refused, transaction():
            pass
        assert refused.value.same_server


def test_a_write_is_not_committed_if_a_key_disappeared(opened: Database) -> None:
    """The check before it may be a second old."""

    def write() -> None:
        with opened.jobs() as session:
            nodes.register(session, "n", [], version="1", boot_id="b")
            session.execute(text(DROPPED["a unique index"]))

    with pytest.raises(NotWholeError):
        write()
    with opened.read_jobs() as session:
        assert not nodes.is_registered(session, "n")


def test_another_server_is_not_the_one_that_had_the_database(
    postgres_server: PostgresServer,
) -> None:
    """A program that has never seen the complete database cannot detect this either."""
    name = postgres_server.create()
    empty = Database(postgres_server.url(name), postgres_server.url(name))
    with pytest.raises(NotWholeError) as refused, empty.jobs():
        pass
    empty.close()
    postgres_server.drop(name)
    assert not refused.value.same_server


def test_a_dumped_and_restored_database_is_detected(database: Database) -> None:
    """The test writes the row of the backup: see ``tests.harness.faults.restores`` for real backups."""
    with database.jobs() as session:
        assert not scheduler_lease.was_restored(session)
    with database.jobs() as session:
        assert not scheduler_lease.was_restored(session)
        session.execute(text("UPDATE scheduler_lease SET place = 'of the backup'"))
        assert scheduler_lease.was_restored(session)
        assert not scheduler_lease.was_restored(session)
