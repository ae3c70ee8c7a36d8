"""Databases: transactions, their errors, and settings."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import event, select, text
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.rights import EVERY
from lockstep.storage.db import engines
from lockstep.storage.db.database import Database
from lockstep.storage.db.driver_errors import translated
from lockstep.storage.db.settings import StorageSettings, default_series_url
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import jobs, listing, stopping
from tests.harness.databases import Urls
from tests.storage import scenes


def test_an_exception_takes_back_everything_in_the_block(database: Database) -> None:
    job_id = scenes.submit(database)
    with pytest.raises(RuntimeError), database.jobs() as session:  # noqa: PT012 -- the block is tested
        stopping.cancel(session, job_id, "ada")
        raise RuntimeError("after the write")
    assert scenes.kinds(database, job_id) == ["submitted"]


def test_a_read_session_cannot_write(database: Database) -> None:
    job_id = scenes.submit(database)
    with database.read_jobs() as session:
        job = jobs.get(session, job_id)
        assert job is not None
        job.priority = 99
    assert scenes.job_of(database, job_id).priority == 50


def test_rows_stay_readable_after_the_session(database: Database) -> None:
    job = scenes.job_of(database, scenes.submit(database))
    assert job.name == "digits"


def test_reads_continue_during_a_write(database: Database) -> None:
    job_id = scenes.submit(database)
    with database.jobs() as session:
        stopping.cancel(session, job_id, "ada")
        assert scenes.kinds(database, job_id) == ["submitted"]


def test_writers_that_read_first_wait_for_each_other(database: Database) -> None:
    job_id = scenes.submit(database)

    def count_up() -> None:
        with database.jobs() as session:
            row = session.scalars(select(JobRow).where(JobRow.id == job_id).with_for_update()).one()
            row.version += 1

    scenes.at_once(*[count_up for _ in range(8)])
    assert scenes.job_of(database, job_id).version == 9


def test_a_commit_whose_answer_was_lost_can_be_repeated(database: Database) -> None:
    def lose_the_answer(_session: Session) -> None:
        raise OperationalError(
            "COMMIT", {}, psycopg.OperationalError("server closed the connection")
        )

    event.listen(Session, "after_commit", lose_the_answer)
    try:
        with pytest.raises(LockstepError) as failure:
            scenes.submit(database, idempotency=("key", "same"))
    finally:
        event.remove(Session, "after_commit", lose_the_answer)
    assert failure.value.code is ErrorCode.UNAVAILABLE
    job_id = scenes.submit(database, idempotency=("key", "same"))
    with database.read_jobs() as session:
        assert [row.id for row in listing.page(session, among=EVERY, limit=10)[0]] == [job_id]
    assert scenes.kinds(database, job_id) == ["submitted"]


def test_a_value_that_the_database_cannot_hold_is_refused(postgres_urls: Urls) -> None:
    database = Database(*postgres_urls)
    with pytest.raises(LockstepError) as refusal, database.read_jobs() as session:
        listing.page(session, listing.JobQuery(name="a\0b"), among=EVERY, limit=1)
    database.close()
    assert refusal.value.code is ErrorCode.INVALID


def test_a_broken_rule_of_the_schema_is_not_disguised(database: Database) -> None:
    with pytest.raises(IntegrityError), database.jobs() as session:
        session.execute(
            text("INSERT INTO job_labels (job_id, key, value) VALUES ('nothing', 'a', 'b')")
        )


def test_a_state_that_is_no_word_of_the_life_cycle_is_refused(database: Database) -> None:
    scenes.submit(database)
    with pytest.raises(IntegrityError), database.jobs() as session:
        session.execute(text("UPDATE jobs SET state = 'halted'"))


@pytest.mark.parametrize(
    "url", ["sqlite:////nonexistent/folder/jobs.db", "postgresql+psycopg://u@/d?host=/nonexistent"]
)
def test_a_database_that_is_not_there_is_unavailable(url: str) -> None:
    database = Database(url, url)
    with pytest.raises(LockstepError) as failure:
        database.ping()
    database.close()
    assert failure.value.code is ErrorCode.UNAVAILABLE
    assert "jobs database" in failure.value.message


def test_a_server_that_hangs_up_is_unavailable_and_then_found_again(postgres_urls: Urls) -> None:
    database = Database(*postgres_urls)
    with pytest.raises(LockstepError) as failure, database.jobs() as session:
        session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    assert failure.value.code is ErrorCode.UNAVAILABLE
    database.ping()
    database.close()


def test_connections_that_died_while_idle_are_not_used(
    postgres_urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "IDLE_SECONDS_MAX", 0.0)
    with closing(Database(*postgres_urls)) as database, closing(Database(*postgres_urls)) as other:
        with ExitStack() as together:
            pids = [
                together.enter_context(database.read_jobs()).scalar(text("SELECT pg_backend_pid()"))
                for _program in range(3)
            ]
        with other.jobs() as session:
            for pid in pids:
                end = text("SELECT pg_terminate_backend(:pid, 10000)")
                assert session.scalar(end, {"pid": pid})
        with ExitStack() as together:
            for opened in (database.look_jobs, database.jobs, database.read_series):
                together.enter_context(opened()).execute(text("SELECT 1"))


def test_a_connection_in_constant_use_is_not_pinged(
    postgres_urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        PGDialect_psycopg, "do_ping", lambda _dialect, connection: asked.append(connection)
    )
    database = Database(*postgres_urls)
    for _time in range(5):
        assert _jobs(database) == 0
    assert asked == []
    monkeypatch.setattr(engines, "IDLE_SECONDS_MAX", 0.0)
    assert _jobs(database) == 0
    assert len(asked) == 1
    database.close()


def test_each_statement_of_a_read_sees_current_rows(database: Database) -> None:
    with database.look_jobs() as look:
        assert listing.places(look, among=EVERY, limit=10).ids == []
        job_id = scenes.submit(database)
        assert listing.places(look, among=EVERY, limit=10).ids == [job_id]
    # The same connections still have their transactions.
    with database.read_jobs() as session:
        assert len(listing.page(session, among=EVERY, limit=10)[0]) == 1
        scenes.submit(database)
        assert len(listing.page(session, among=EVERY, limit=10)[0]) == 1
    with pytest.raises(RuntimeError), database.jobs() as session:  # noqa: PT012 -- the block is tested
        stopping.cancel(session, job_id, "ada")
        raise RuntimeError("after the write")
    assert scenes.kinds(database, job_id) == ["submitted"]


def test_a_writer_that_is_not_let_in_gives_up(
    sqlite_urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "BUSY_SECONDS", 0.05)
    database = Database(*sqlite_urls)
    refusals: list[ErrorCode] = []

    def write() -> None:
        try:
            scenes.submit(database)
        except LockstepError as refusal:
            refusals.append(refusal.code)

    with database.jobs() as session:
        session.execute(text("SELECT 1"))  # the transaction begins with its first statement
        other = threading.Thread(target=write)
        other.start()
        other.join()
    database.close()
    assert refusals == [ErrorCode.UNAVAILABLE]


def test_writers_of_two_programs_wait_for_each_other_and_all_get_in(sqlite_urls: Urls) -> None:
    programs = [Database(*sqlite_urls) for _program in range(2)]
    held = threading.Event()

    def write(database: Database) -> None:
        held.wait()
        for _turn in range(5):
            scenes.submit(database)

    writers = [
        threading.Thread(target=write, args=(database,))
        for database in programs
        for _thread in range(4)
    ]
    for writer in writers:
        writer.start()
    with programs[0].jobs() as session:
        session.execute(text("SELECT 1"))
        held.set()
        time.sleep(0.2)  # so that all threads ask while no thread may write
        assert _jobs(programs[1]) == 0
    for writer in writers:
        writer.join()
    assert _jobs(programs[1]) == 5 * len(writers)
    with programs[0].jobs() as session:
        assert session.scalar(text("PRAGMA busy_timeout")) == engines.BUSY_SECONDS * 1000
    for database in programs:
        database.close()


def test_a_write_that_fails_gives_its_turn_to_the_next(
    sqlite_urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, other = (Database(*sqlite_urls) for _program in range(2))
    waits: list[float] = []
    with pytest.raises(RuntimeError), database.jobs():
        raise RuntimeError("inside the transaction")
    with monkeypatch.context() as hurried, other.jobs():
        hurried.setattr(engines, "BUSY_SECONDS", 0.05)
        with pytest.raises(LockstepError):
            scenes.submit(database)
    database.tell_waits(lambda _database, _transaction, seconds: waits.append(seconds))
    scenes.submit(database)
    assert max(waits) < engines.BUSY_SECONDS / 2
    database.close()
    other.close()


def _jobs(database: Database) -> int:
    with database.read_jobs() as session:
        return int(session.scalar(text("SELECT count(*) FROM jobs")) or 0)


def test_a_full_disk_is_named_and_nothing_is_written(sqlite_urls: Urls) -> None:
    database = Database(*sqlite_urls)
    with pytest.raises(LockstepError) as failure, database.jobs() as session:  # noqa: PT012 -- the block is tested
        session.execute(
            text("PRAGMA max_page_count = 1")
        )  # SQLite's error is the one of a full disk
        session.execute(text("CREATE TABLE large AS SELECT randomblob(100000) AS bytes"))
    database.close()
    assert failure.value.code is ErrorCode.STORAGE_FULL


def test_a_full_disk_of_postgresql_is_named() -> None:
    with pytest.raises(LockstepError) as failure, translated("series"):
        raise OperationalError("INSERT", {}, psycopg.errors.DiskFull("could not extend file"))
    assert failure.value.code is ErrorCode.STORAGE_FULL
    assert "series database" in failure.value.message


def test_the_jobs_file_is_durable_and_the_series_file_is_fast(sqlite_urls: Urls) -> None:
    database = Database(*sqlite_urls)
    for opened, synchronous in ((database.read_jobs, 2), (database.read_series, 1)):
        with opened() as session:
            assert session.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
            assert session.execute(text("PRAGMA synchronous")).scalar_one() == synchronous
            assert session.execute(text("PRAGMA foreign_keys")).scalar_one() == 1
    database.close()


def test_the_series_database_lies_beside_the_jobs_database() -> None:
    assert default_series_url("sqlite:////data/jobs.db") == "sqlite:////data/series.db"
    url = "postgresql+psycopg://lockstep:secret@db/lockstep"
    assert default_series_url(url) == url


def test_settings_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCKSTEP_DATABASE_URL", f"sqlite:///{tmp_path}/jobs.db")
    monkeypatch.setenv("LOCKSTEP_STORE", str(tmp_path))
    settings = StorageSettings()
    assert settings.series_url == f"sqlite:///{tmp_path}/series.db"
    assert settings.store == str(tmp_path)


@pytest.mark.parametrize(
    "url",
    ["mysql://u:hunter2@h/d", "sqlite:///relative.db", "hunter2", "postgresql://u:hunter2@h/d"],
)
def test_a_database_that_is_not_supported_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="database_url") as refusal:
        StorageSettings(database_url=url, store="/store")
    assert "hunter2" not in str(refusal.value).replace(f"input_value={url!r}", "")


def test_all_statements_of_a_reader_see_one_moment(database: Database) -> None:
    job_id = scenes.submit(database)
    with database.read_jobs() as session:
        assert len(listing.queued(session, among=EVERY, limit=10)) == 1
        with database.jobs() as writer:
            stopping.cancel(writer, job_id, "ada")
        assert len(listing.queued(session, among=EVERY, limit=10)) == 1
    assert scenes.kinds(database, job_id) == ["submitted", "cancelled"]


def test_a_program_reopens_a_file_that_a_backup_replaced(sqlite_urls: Urls, tmp_path: Path) -> None:
    """A connection to a deleted file works as before, without an error."""
    database = Database(*sqlite_urls)
    files = [tmp_path / name for name in ("jobs.db", "series.db")]
    (tmp_path / "backup").mkdir()
    before = scenes.submit(database)
    for file in files:
        copy = tmp_path / "backup" / file.name
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
    lost = scenes.submit(database)
    for file in files:
        for path in tmp_path.glob(f"{file.name}*"):
            path.unlink()
    with pytest.raises(
        LockstepError, match="the jobs database does not answer: unable to open database file"
    ):
        scenes.submit(database)
    assert list(tmp_path.glob("*.db*")) == []
    for file in files:
        (tmp_path / "backup" / file.name).rename(file)
    after = scenes.submit(database)
    with closing(sqlite3.connect(files[0])) as found:
        assert {row[0] for row in found.execute("SELECT id FROM jobs")} == {before, after} - {lost}
    database.close()


def test_a_file_that_is_replaced_during_the_connect_is_not_missed(
    sqlite_urls: Urls, tmp_path: Path
) -> None:
    """The connection is to the deleted file, and the path already leads to the new one."""
    whole, empty = tmp_path / "jobs.db", tmp_path / "empty.db"
    with closing(sqlite3.connect(whole)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sqlite3.connect(empty).close()
    whole.rename(tmp_path / "away.db")
    empty.rename(whole)
    database = Database(*sqlite_urls)
    swapped = []

    def swap(connection: sqlite3.Connection, _record: object) -> None:
        if not swapped:
            (tmp_path / "away.db").rename(whole)
            swapped.append(connection.execute("SELECT count(*) FROM sqlite_master").fetchone())

    event.listen(database._jobs, "connect", swap, insert=True)
    scenes.submit(database)
    assert swapped == [(0,)]
    database.close()
