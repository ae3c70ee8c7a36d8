"""Curves of a continued job: one curve of both, against points that are counted by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.db.database import Database
from lockstep.storage.db.series_tables import SeriesChunkRow, SeriesLatestRow
from lockstep.storage.series import (
    definitions,
    exports,
    inherited,
    series,
    series_query,
    streams,
)
from tests.storage.raw_points import NAMES, Raw, Stored, check, plant, wanted


def _visible(stored: Stored) -> Stored:
    """Return the former job's visible points as those of attempt 0."""
    return {
        name: [
            point._replace(attempt=0)
            for curve in wanted(stored, name, None, None, "visible")
            for point in curve
        ]
        for name in NAMES
    }


def _add(database: Database, job_id: str, steps: range, stored: Stored) -> None:
    writer = streams.Writer(f"{job_id}-1", job_id, 1, "token")
    records = [StepValues(step, 1e6 + step, dict.fromkeys(NAMES, -float(step))) for step in steps]
    with database.series() as session:
        assert streams.open_stream(session, writer)
        assert series.append(
            session,
            assignment_id=writer.assignment_id,
            token="token",
            offset_before=0,
            offset_after=1,
            records=records,
        )
    for name in NAMES:
        stored[name] += [Raw(1, step, 1e6 + step, -float(step)) for step in steps]


def _check_all(database: Database, job_id: str, stored: Stored) -> None:
    for attempts in ("current", "visible", "all"):
        for max_points in (7, 10_000):
            with database.read_series() as session:
                found = series_query.read(session, job_id, attempts=attempts, max_points=max_points)
            for name in NAMES:
                drawn = [curve for curve in found if curve.name == name]
                expected = wanted(stored, name, None, None, attempts)
                for curve, points in zip(drawn, expected, strict=True):
                    check(curve, points, max_points)


@pytest.mark.parametrize("seed", range(6))
def test_both_jobs_make_one_curve(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = random.Random(seed)
    monkeypatch.setattr(inherited, "CHUNKS_AT_ONCE", numbers.choice((1, 2, 500)))
    sizes = [[numbers.randint(1, 900) for _ in range(3)] for _ in range(numbers.randint(1, 3))]
    stored = _visible(plant(database, "former", numbers, sizes))
    defined = {NAMES[0]: SeriesDefinition(direction="lower")}
    with database.series() as session:
        definitions.store(session, "former", defined)
    inherited.inherit(database, of=["former"], by="next")
    _check_all(database, "next", stored)
    with database.read_series() as session:
        assert definitions.of_jobs(session, ["next"]) == {"next": defined}
        for name in NAMES:
            latest = session.get(SeriesLatestRow, ("next", name))
            numbers_of = [each.value for each in stored[name] if not math.isnan(each.value)]
            if latest is not None:
                assert (latest.min, latest.max) == (min(numbers_of), max(numbers_of))
    last = max(point.step for point in stored[NAMES[0]])
    _add(database, "next", range(last // 2, last + 600), stored)
    inherited.inherit(database, of=["former"], by="next")
    _check_all(database, "next", stored)
    pieces = list(exports.every_point(database.read_series, "next", names=[NAMES[0]]))
    steps = [step for piece in pieces for step in piece.points.steps]
    (expected,) = wanted(stored, NAMES[0], None, None, "current")
    assert steps == [point.step for point in expected]
    # A third job gets the curve of both.
    inherited.inherit(database, of=["without points", "next"], by="third")
    _check_all(database, "third", _visible(stored))


def test_an_interrupted_copy_is_completed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inherited, "CHUNKS_AT_ONCE", 1)
    stored = _visible(plant(database, "former", random.Random(9), [[600, 700], [900]]))
    opened = Database.series
    left = 0

    @contextmanager
    def failing(self: Database) -> Iterator[Session]:
        nonlocal left
        left -= 1
        with opened(self) as session:
            yield session
            if left < 0:
                raise ConnectionError("gone")

    tries = 0
    with monkeypatch.context() as patch:
        patch.setattr(Database, "series", failing)
        while True:
            left, tries = tries, tries + 1
            try:
                inherited.inherit(database, of=["former"], by="next")
            except ConnectionError:
                continue
            break
    assert tries > 3
    _check_all(database, "next", stored)
    with database.read_series() as session:
        count = select(func.sum(SeriesChunkRow.point_count)).where(SeriesChunkRow.job_id == "next")
        assert session.scalars(count).one() == sum(map(len, stored.values()))


def test_a_job_with_points_inherits_none(database: Database) -> None:
    """Its own points are numbered from 0 on."""
    plant(database, "former", random.Random(1), [[20]])
    stored: Stored = {name: [] for name in NAMES}
    _add(database, "next", range(5), stored)
    inherited.inherit(database, of=["former"], by="next")
    _check_all(database, "next", stored)
