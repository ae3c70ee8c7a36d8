"""The service without its processes: the real application, storage and scheduler.

They run over real databases, on a simulated clock. ``look`` reads all data of the guarantees
directly from the rows, without the code under test. ``look_again`` reads only what a statement may
have changed.

Not here: the required state (``tests.harness.life.model``), and the actions (``tests.harness.life.actions``).
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    delete,
    event,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.orm import undefer
from sqlalchemy.pool import StaticPool

from lockstep.api.app import create_app
from lockstep.api.jobs.views import job_views
from lockstep.domain.life.timings import Timings
from lockstep.domain.rights import EVERY
from lockstep.domain.training.metrics import SYSTEM
from lockstep.domain.views import JobView
from lockstep.scheduler.reconcile import run_cycle
from lockstep.scheduler.report import CycleReport
from lockstep.storage.attempts import nodes
from lockstep.storage.attempts.nodes import DeviceInfo
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import AuditRow, ProjectRow, TokenRow, UserRow
from lockstep.storage.db.series_tables import SeriesBase, SeriesChunkRow, StreamRow
from lockstep.storage.db.tables import (
    AssignmentRow,
    AttemptRow,
    CheckpointRow,
    DeviceRow,
    EventRow,
    JobRow,
    SchedulerLeaseRow,
)
from lockstep.storage.db.whole import METADATA
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.people import tokens
from lockstep.storage.series.packing import unpack
from tests.api.conftest import TOKEN, settings_for
from tests.harness.clients import Client
from tests.harness.databases import Urls
from tests.scheduler.world import Notifications

CLOCK_START: Final = 1_800_000_000.0
_UNIX_EPOCH_DAYS: Final = 2440587.5
_MOVED: Final = """
CREATE SCHEMA moved;
CREATE SEQUENCE moved.microseconds MINVALUE 0 START 0;
CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT to_timestamp(last_value / 1e6) FROM moved.microseconds';
"""
_SHOWS_NOTHING: Final = re.compile(
    r"\s*(SELECT|PRAGMA|BEGIN|SAVEPOINT|RELEASE|UPDATE nodes|UPDATE scheduler_lease)\b"
)
"""Statements that change nothing of a look, such as those of a heartbeat or of a cycle."""
_WRITES: Final = re.compile(r"\s*(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)")
_SERIES: Final = frozenset(SeriesBase.metadata.tables)


class DatabaseClock:
    """Current time of every connection to the databases at ``url``.

    It stands until it is moved.
    """

    def __init__(self, url: str) -> None:
        self._at = CLOCK_START
        self._connection: Connection | None = None
        if make_url(url).get_backend_name() == "postgresql":
            self._connection = _prepared(url)
        self.move_to(CLOCK_START)

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


class Happened(NamedTuple):
    """One event."""

    id: int
    job: str
    attempt: int | None
    kind: str


@dataclass(frozen=True)
class Look:
    """Complete current state."""

    jobs: dict[str, JobView] = field(default_factory=dict)
    """As in the api's list, by id."""
    attempts: list[AttemptRow] = field(default_factory=list)
    parts: dict[str, AssignmentRow] = field(default_factory=dict)
    """Assignments by id."""
    holders: dict[tuple[str, int], str | None] = field(default_factory=dict)
    """Assignment by (node, device)."""
    events: list[Happened] = field(default_factory=list)
    """In their order."""
    checkpoints: list[tuple[str, int, int]] = field(default_factory=list)
    """(job, attempt, step)."""
    points: dict[tuple[str, int], list[tuple[int, float]]] = field(default_factory=dict)
    """(step, value) of the job's own metrics in the order of arrival, by (job, attempt)."""
    scalars: dict[tuple[str, int], list[tuple[int, float]]] = field(default_factory=dict)
    """The same of its event files, whose series have the prefix ``tb/``."""
    streams: dict[str, StreamRow] = field(default_factory=dict)
    """By assignment."""


class Writes:
    """Halves of a look that statements of these engines may have changed since the last look."""

    def __init__(self) -> None:
        self.jobs = self.series = True

    def rule(self, engine: Engine) -> None:
        event.listen(engine, "before_cursor_execute", self._note)

    def _note(self, _connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if _SHOWS_NOTHING.match(statement):
            return
        found = _WRITES.match(statement)
        table = found[1] if found else None  # unknown
        self.jobs |= table not in _SERIES
        self.series |= table is None or table in _SERIES


class Service:
    """Service of this module. ``close`` it."""

    timings = Timings()
    wiped = 0
    """Number of its lives."""

    def __init__(
        self, urls: Urls, store: Path, *, prepare: Callable[[Engine], None] = lambda _engine: None
    ) -> None:
        self.urls = urls
        self.store = store
        self.clock = DatabaseClock(urls[0])
        self.notifications = Notifications()
        self.database = opened(urls, self.clock, prepare)
        self._writes, self._seen = Writes(), Look()
        for engine in {self.database._jobs, self.database._series}:
            self._writes.rule(engine)
        self._open()
        with self.database.jobs() as session:
            tokens.ensure(session, TOKEN, name="tests", actor="ada")

    @property
    def kind(self) -> str:
        """Return the kind of its databases."""
        return self.urls[0].partition(":")[0].partition("+")[0]

    def _open(self) -> None:
        app = create_app(
            settings_for(self.urls, self.store),
            self.database,
            BlobStore(str(self.store)),
            self.notifications,
        )
        self._client = Client(
            app, headers={"Authorization": f"Bearer {TOKEN}"}, raise_server_exceptions=False
        )
        self.http = self._client.__enter__()

    def _shut(self) -> None:
        self._client.__exit__(None, None, None)
        self.database.close()

    def restart(self) -> None:
        """End the api and the scheduler with their connections and all state, and start them again.

        The engines remain: they cache statements, and no rows.
        """
        self._shut()
        self._open()

    def close(self) -> None:
        self._shut()
        self.clock.close()

    def wipe(self) -> None:
        """Delete all data: a new database for each example would cost more than the example."""
        self.wiped += 1
        with self.database.jobs() as session:
            rows = (SchedulerLeaseRow, TokenRow, UserRow, ProjectRow, AuditRow)
            kept = {each.__table__ for each in rows}
            for table in reversed(METADATA["jobs"].sorted_tables):
                if table not in kept:
                    session.execute(delete(table))
            session.execute(
                update(SchedulerLeaseRow).values(
                    owner=None, expires_at=0.0, dirty=False, finished_at=None
                )
            )
        with self.database.series() as session:
            for table in SeriesBase.metadata.sorted_tables:
                session.execute(delete(table))
        self.notifications.sent.clear()

    def register(self, name: str, devices: int) -> None:
        with self.database.jobs() as session:
            found = [DeviceInfo(index, "cpu", "cpu") for index in range(devices)]
            nodes.register(session, name, found, version="1", boot_id="b")

    def run_one_cycle(self, owner: str, **options: Any) -> CycleReport:
        return run_cycle(self.database, self.notifications, self.timings, owner=owner, **options)

    def look(self) -> Look:
        return self._look_at_series(self._look_at_jobs(Look()))

    def look_again(self) -> Look:
        """Return what ``look`` would: all its data but views of progress, for one thread.

        What no statement has written since the last time is not read again.
        """
        written = self._writes
        if written.jobs:
            self._seen = self._look_at_jobs(self._seen)
        if written.series:
            self._seen = self._look_at_series(self._seen)
        written.jobs = written.series = False
        return self._seen

    def _look_at_jobs(self, before: Look) -> Look:
        with self.database.read_jobs() as session:
            rows = list(session.scalars(select(JobRow)))
            attempts = list(
                session.scalars(select(AttemptRow).order_by(AttemptRow.job_id, AttemptRow.number))
            )
            parts = {row.id: row for row in session.scalars(select(AssignmentRow))}
            devices = session.execute(
                select(DeviceRow.node_name, DeviceRow.index, DeviceRow.assignment_id)
            )
            holders = {(name, index): holder for name, index, holder in devices}
            kinds = select(EventRow.id, EventRow.job_id, EventRow.attempt, EventRow.kind).order_by(
                EventRow.id
            )
            events = [Happened(*row) for row in session.execute(kinds)]
            saved = select(CheckpointRow.job_id, CheckpointRow.attempt, CheckpointRow.step)
            checkpoints = sorted(
                (job, attempt, step) for job, attempt, step in session.execute(saved)
            )
        return replace(
            before,
            jobs={view.id: view for view in job_views(self.database, rows, among=EVERY)},
            attempts=attempts,
            parts=parts,
            holders=holders,
            events=events,
            checkpoints=checkpoints,
        )

    def _look_at_series(self, before: Look) -> Look:
        points: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
        scalars: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
        with self.database.read_series() as session:
            streams = {row.assignment_id: row for row in session.scalars(select(StreamRow))}
            chunks = (
                select(SeriesChunkRow)
                .options(undefer(SeriesChunkRow.points))
                .order_by(SeriesChunkRow.seq)
            )
            # Measurements of its node arrive at any time.
            chunks = chunks.where(SeriesChunkRow.name.not_like(f"{SYSTEM}%"))
            for chunk in session.scalars(chunks):
                unpacked = unpack(chunk.points)
                source = scalars if chunk.name.startswith("tb/") else points
                source[chunk.job_id, chunk.attempt] += zip(
                    unpacked.steps, unpacked.values, strict=True
                )
        return replace(before, points=dict(points), scalars=dict(scalars), streams=streams)


def opened(urls: Urls, clock: DatabaseClock, prepare: Callable[[Engine], None]) -> Database:
    """Return the databases with this clock.

    Durability is off, because no power cut is tested.
    """
    database = Database(*urls)
    for engine in {database._jobs, database._series}:
        clock.rule(engine)
        if engine.dialect.name == "sqlite":
            event.listen(
                engine,
                "connect",
                lambda connection, _record: connection.execute("PRAGMA synchronous=OFF"),
            )
        prepare(engine)
    return database
