"""Followed series: a client that appends or replaces, as answers request, has all points.

Metric series, not logs (``tests.storage.test_log_pages``).
"""

from __future__ import annotations

import random
import re
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from lockstep.domain import limits
from lockstep.domain.errors import LockstepError
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.db.database import Database
from lockstep.storage.db.series_tables import SeriesChunkRow, SeriesLatestRow
from lockstep.storage.series import series, series_query, streams, tails
from lockstep.storage.series.series_query import Attempts, SeriesData
from tests.storage.raw_points import NAMES, Stored, check, planting, wanted

EVERY = 1_000_000
ATTEMPTS: tuple[Attempts, ...] = ("current", "visible", "all")


@dataclass
class Follower:
    """Client that keeps the received points as the answers request."""

    attempts: Attempts = "current"
    names: tuple[str, ...] | None = None
    cursor: str | None = None
    kept: dict[tuple[str, int], list[SeriesData]] = field(default_factory=dict)
    answers: list[tails.Tail] = field(default_factory=list)

    def look(self, database: Database, job_id: str) -> None:
        with database.read_series() as session:
            answer = tails.read(
                session,
                job_id,
                since=self.cursor,
                names=self.names,
                max_points=EVERY,
                attempts=self.attempts,
            )
        self.answers.append(answer)
        self.cursor = answer.cursor
        if answer.complete:
            self.kept = {}
        for curve in answer.curves:
            # "current" merges the attempts into one curve: a later attempt hides the steps of the
            # previous one from its own first step on.
            self.kept.setdefault(
                (curve.name, 0 if self.attempts == "current" else curve.attempt), []
            ).append(curve)

    def check(self, stored: Stored) -> None:
        for name in NAMES:
            mine = [parts for (of, _), parts in sorted(self.kept.items()) if of == name]
            for parts, points in zip(
                mine, wanted(stored, name, None, None, self.attempts), strict=True
            ):
                whole = SeriesData(
                    name,
                    parts[-1].unit,
                    parts[-1].kind,
                    parts[-1].direction,
                    parts[-1].attempt,
                    sum(part.count for part in parts),
                    sum(part.non_finite for part in parts),
                    *(
                        [number for part in parts for number in getattr(part, column)]
                        for column in COLUMNS
                    ),
                )
                check(whole, points, EVERY)


COLUMNS = ("step", "time", "value", "min", "max")


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.lists(st.integers(1, 900), min_size=1, max_size=6), min_size=1, max_size=3),
    looks=st.lists(st.booleans(), min_size=18, max_size=18),
)
def test_a_follower_gets_every_point_once(
    database: Database, seed: int, sizes: list[list[int]], looks: list[bool]
) -> None:
    job_id = str(uuid.uuid4())
    stored: Stored = {name: [] for name in NAMES}
    followers = [Follower(attempts) for attempts in ATTEMPTS]
    for _, looks_now in zip(
        planting(database, job_id, random.Random(seed), sizes, stored), looks, strict=False
    ):
        for follower in followers if looks_now else ():
            follower.look(database, job_id)
            follower.check(stored)
    for follower in followers:
        follower.look(database, job_id)
        follower.check(stored)
        follower.look(database, job_id)
        assert follower.answers[-1] == tails.Tail([], follower.cursor or "", complete=False), (
            "nothing came since"
        )
    assert sum(answer.complete for answer in followers[-1].answers) == 1, (
        "all attempts: nothing is ever taken back"
    )


class Writing:
    """A job whose series are written record by record."""

    def __init__(self, database: Database):
        self.database = database
        self.job_id = str(uuid.uuid4())
        self._attempt = 0
        self._offset = 0

    def begin(self) -> None:
        self._attempt, self._offset = self._attempt + 1, 0
        writer = streams.Writer(
            f"{self.job_id[:30]}-{self._attempt}", self.job_id, self._attempt, "token"
        )
        with self.database.series() as session:
            assert streams.open_stream(session, writer)

    def write(self, *records: StepValues) -> None:
        with self.database.series() as session:
            assert series.append(
                session,
                assignment_id=f"{self.job_id[:30]}-{self._attempt}",
                token="token",
                offset_before=self._offset,
                offset_after=self._offset + 1,
                records=records,
            )
        self._offset += 1


@pytest.fixture
def job(database: Database) -> Writing:
    return Writing(database)


def _losses(first: int, last: int, *names: str) -> list[StepValues]:
    return [
        StepValues(step, float(step), dict.fromkeys(names or ("a",), 1.0))
        for step in range(first, last + 1)
    ]


def test_everything_is_sent_again_once_an_attempt_repeats_steps_and_not_before(
    job: Writing,
) -> None:
    follower = Follower()
    job.begin()
    job.write(*_losses(1, 10))
    follower.look(job.database, job.job_id)
    job.write(*_losses(11, 12))
    follower.look(job.database, job.job_id)
    assert [curve.step for curve in follower.answers[-1].curves] == [[11, 12]]
    job.begin()
    follower.look(job.database, job.job_id)
    assert not follower.answers[-1].complete, "an attempt that has reported nothing hides nothing"
    job.write(*_losses(7, 8))
    follower.look(job.database, job.job_id)
    assert follower.answers[-1].complete
    assert [curve.step for curve in follower.answers[-1].curves] == [[1, 2, 3, 4, 5, 6, 7, 8]]


def test_a_series_that_begins_later_is_given_from_its_beginning(job: Writing) -> None:
    follower, of_one = Follower(), Follower(names=("b",))
    job.begin()
    job.write(*_losses(1, 3))
    for each in (follower, of_one):
        each.look(job.database, job.job_id)
    job.write(*_losses(4, 5, "a", "b"))
    for each in (follower, of_one):
        each.look(job.database, job.job_id)
    assert [(curve.name, curve.step) for curve in follower.answers[-1].curves] == [
        ("a", [4, 5]),
        ("b", [4, 5]),
    ]
    assert [(curve.name, curve.step) for curve in of_one.answers[-1].curves] == [("b", [4, 5])]


def test_many_series_are_followed_in_one_answer(job: Writing) -> None:
    names = [f"series/{number:03}" for number in range(limits.METRIC_NAMES_PER_JOB_MAX)]
    follower = Follower()
    job.begin()
    job.write(*_losses(1, 2, *names))
    follower.look(job.database, job.job_id)
    job.write(*_losses(3, 3, *names))
    follower.look(job.database, job.job_id)
    answer = follower.answers[-1]
    assert [(curve.name, curve.step) for curve in answer.curves] == [(name, [3]) for name in names]
    assert len(answer.cursor) <= tails.CURSOR_LENGTH_MAX


def test_many_new_points_come_in_buckets(job: Writing) -> None:
    job.begin()
    job.write(*_losses(1, 700))
    with job.database.read_series() as session:
        first = tails.read(session, job.job_id, max_points=10)
    job.write(*_losses(701, 2000))
    with job.database.read_series() as session:
        (curve,) = tails.read(session, job.job_id, since=first.cursor, max_points=10).curves
    assert (curve.count, curve.step[-1]) == (1300, 2000)
    assert len(curve.step) <= 10


def test_following_opens_no_chunk_that_was_read(
    job: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower()
    job.begin()
    old = 5 * series_query.CHUNK
    job.write(*_losses(1, old))
    follower.look(job.database, job.job_id)
    job.write(*_losses(old + 1, old + 3))
    headers: list[int] = []
    opened: list[int] = []

    def counting_rows(session: object, statement: Any, **values: object) -> object:
        rows = actual(session, statement, **values)  # type: ignore[arg-type]
        columns = statement.selected_columns
        if "end_value" in columns:
            headers.append(len(rows))
        elif "points" in columns:
            opened.append(len(rows))
        return rows

    actual = series_query._rows
    monkeypatch.setattr(series_query, "_rows", counting_rows)
    follower.look(job.database, job.job_id)
    assert [curve.step for curve in follower.answers[-1].curves] == [[old + 1, old + 2, old + 3]]
    assert sum(headers) <= 2, "the work is that of the new points, not of the series"
    assert opened == [1]


def test_the_format_of_a_cursor_does_not_depend_on_the_series(job: Writing) -> None:
    job.begin()
    for count in range(8):
        with job.database.read_series() as session:
            cursor = tails.read(session, job.job_id).cursor
            assert re.match(tails.CURSOR, cursor)
            assert not re.match(tails.CURSOR, cursor + "A")
            assert not tails.read(session, job.job_id, since=cursor).complete
        job.write(*_losses(1, 1, f"loss/{count}"))


@pytest.mark.parametrize("cursor", ["", "a", "!", "é", "A" * 10, "A" * 13, "AAAA=AAA"])
def test_an_invalid_cursor_is_refused(job: Writing, cursor: str) -> None:
    with (
        job.database.read_series() as session,
        pytest.raises(LockstepError, match="is not a cursor of a job's series"),
    ):
        tails.read(session, job.job_id, since=cursor)


def test_a_database_older_than_the_cursor_is_read_again(job: Writing) -> None:
    follower = Follower()
    job.begin()
    job.write(*_losses(1, 9))
    follower.look(job.database, job.job_id)
    with job.database.series() as session:  # from the view of a restored backup
        for table in (SeriesChunkRow, SeriesLatestRow):
            session.execute(delete(table).where(table.job_id == job.job_id))
    job.write(*_losses(1, 4))
    follower.look(job.database, job.job_id)
    assert follower.answers[-1].complete
    assert [curve.step for curve in follower.answers[-1].curves] == [[1, 2, 3, 4]]
