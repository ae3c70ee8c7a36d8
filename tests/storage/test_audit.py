"""Rows of the audit: added, never changed, restored, and read by project."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from sqlite3 import connect

import pytest
from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from lockstep.domain.audit import Action
from lockstep.domain.errors import LockstepError
from lockstep.domain.rights import EVERY, Within
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import AuditRow
from lockstep.storage.people import audit
from lockstep.storage.people.audit import Sender
from tests.harness.databases import Backup, Urls
from tests.harness.faults import restores
from tests.harness.postgres import PostgresServer


def add(database: Database, actor: str = "ada", project: str | None = "nlp") -> None:
    with database.jobs() as session:
        audit.add(session, Sender(actor), Action.JOB_CANCEL, target="a-job", project=project)


def rows(database: Database) -> list[tuple[int, str]]:
    with database.read_jobs() as session:
        return [tuple(row) for row in session.execute(select(AuditRow.id, AuditRow.actor))]


@pytest.mark.parametrize(
    "statement",
    [update(AuditRow).values(actor="eve"), delete(AuditRow), text("TRUNCATE audit")],
    ids=["update", "delete", "truncate"],
)
def test_a_row_is_neither_changed_nor_deleted(database: Database, statement: object) -> None:
    add(database)
    refusals = (DBAPIError, LockstepError)  # the latter of TRUNCATE, which SQLite does not have
    with (
        pytest.raises(refusals, match=r"neither changed nor deleted|syntax"),
        database.jobs() as of,
    ):
        of.execute(statement)  # type: ignore[call-overload]
    assert rows(database) == [(1, "ada")]


def test_rows_are_inserted_by_a_restore(database: Database) -> None:
    add(database)
    backup = Backup(database)
    add(database, "bob")
    backup.restore()
    assert rows(database) == [(1, "ada")]
    with database.jobs() as session:
        values = {"at": 1.0, "actor": "cy", "action": "x", "target": "y", "outcome": "denied"}
        session.execute(insert(AuditRow).values(id=7, **values))
    assert rows(database) == [(1, "ada"), (7, "cy")]
    with pytest.raises(DBAPIError), database.jobs() as session:
        session.execute(delete(AuditRow))


def test_a_dump_of_sqlite_restores_rows_and_triggers(sqlite_urls: Urls) -> None:
    database = Database(*sqlite_urls)
    add(database)
    database.close()
    old = connect(sqlite_urls[0].removeprefix("sqlite:///"))
    new = connect(":memory:")
    new.executescript("\n".join(old.iterdump()))
    old.close()
    assert new.execute("SELECT actor FROM audit").fetchall() == [("ada",)]
    with pytest.raises(Exception, match="neither changed nor deleted"):
        new.execute("DELETE FROM audit")
    new.close()


@pytest.mark.parametrize("restore", [restores.ordinary, restores.clean])
def test_pg_restore_restores_rows_and_triggers(
    postgres_server: PostgresServer, tmp_path: Path, restore: Callable[..., None]
) -> None:
    name = postgres_server.migrated()
    database = Database(postgres_server.url(name), postgres_server.url(name))
    add(database)
    database.close()
    restore(postgres_server, name, restores.dumped(postgres_server, name, tmp_path))
    add(database, "bob")
    assert rows(database) == [(1, "ada"), (2, "bob")]
    with pytest.raises(DBAPIError), database.jobs() as session:
        session.execute(delete(AuditRow))
    database.close()
    postgres_server.drop(name)


def test_pages_have_the_rows_of_the_own_projects(database: Database) -> None:
    for actor, project in (("ada", "nlp"), ("bob", "vision"), ("ada", None), ("ada", "nlp")):
        add(database, actor, project)

    def ids(among: Within, **more: object) -> list[int]:
        with database.read_jobs() as session:
            found, _ = audit.page(session, among=among, limit=9, **more)  # type: ignore[arg-type]
        return [row.id for row in found]

    nlp = Within(frozenset({"nlp"}))
    assert ids(EVERY) == [4, 3, 2, 1]
    assert ids(nlp) == [4, 1]
    assert ids(Within(frozenset())) == []
    assert ids(EVERY, project="vision") == [2]
    assert ids(nlp, project="vision") == []
    assert ids(EVERY, actor="ada", before=4) == [3, 1]
    assert ids(EVERY, action="job.delete") == []
    with database.read_jobs() as session:
        assert [audit.page(session, among=nlp, limit=limit)[1] for limit in (1, 2)] == [4, None]
