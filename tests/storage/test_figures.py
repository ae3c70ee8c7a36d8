"""Figures of series: last, extremes, best and its step, compared with a count over all points."""

from __future__ import annotations

import math
import random

import pytest
from sqlalchemy import event

from lockstep.domain import limits
from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.db.database import Database
from lockstep.storage.series import definitions, figures, series
from lockstep.storage.series.figures import SeriesFigures
from tests.storage import scenes
from tests.storage.raw_points import NAMES, Raw, Stored, plant, wanted
from tests.storage.test_series import Uploader

JOB = "00000000-0000-7000-8000-000000000001"


def _read(database: Database, job_id: str) -> dict[str, SeriesFigures]:
    with database.read_series() as session:
        return {each.series.name: each for each in figures.read(session, job_id)}


def _define(database: Database, job_id: str, **fields: SeriesDefinition) -> tuple[str, ...]:
    with database.series() as session:
        return definitions.store(session, job_id, fields)


def _check(found: SeriesFigures, points: list[Raw], direction: str) -> None:
    """Compare with a plain loop over the visible points."""
    low = high = None
    odd = 0
    for point in points:
        if not math.isfinite(point.value):
            odd += 1
            continue
        if low is None or point.value < low.value:
            low = point
        if high is None or point.value > high.value:
            high = point
    best = {"lower": low, "higher": high, "none": None}[direction]
    assert (found.count, found.non_finite) == (len(points), odd)
    assert found.min == (low and low.value)
    assert found.max == (high and high.value)
    assert (found.best, found.best_step) == ((best.value, best.step) if best else (None, None))
    last = points[-1]
    assert (found.last.attempt, found.last.step, found.last.time) == last[:3]
    assert repr(found.last.value) == repr(last.value)


@pytest.mark.parametrize("seed", range(6))
def test_figures_agree_with_a_count_over_the_visible_points(database: Database, seed: int) -> None:
    numbers = random.Random(seed)
    sizes = [
        [numbers.choice((1, 7, 300, 1_100)) for _ in range(numbers.randint(1, 5))]
        for _ in range(numbers.randint(1, 4))
    ]
    stored: Stored = plant(database, JOB, numbers, sizes)
    direction = numbers.choice(("lower", "higher", "none"))
    definition = {name: SeriesDefinition(direction=direction) for name in NAMES}
    _define(database, JOB, **definition)
    found = _read(database, JOB)
    compared = 0
    for name in NAMES:
        curves = wanted(stored, name, None, None, "current")
        assert (name in found) == bool(curves)
        for points in curves:
            _check(found[name], points, direction)
            compared += 1
    assert compared


def test_several_jobs_have_the_figures_of_each(database: Database) -> None:
    numbers = random.Random(7)
    ids = [f"0000000{number}-0000-7000-8000-000000000000" for number in range(1, 6)]
    for job_id in ids[:4]:
        sizes = [[numbers.choice((1, 300, 700))] for _ in range(numbers.randint(1, 3))]
        plant(database, job_id, numbers, sizes)
        _define(database, job_id, **{NAMES[0]: SeriesDefinition(direction="lower")})
    _define(database, ids[3], **{NAMES[0]: SeriesDefinition(direction="higher")})
    for wanted_names in (None, [], [NAMES[0]], [*NAMES, "unknown"]):
        with database.read_series() as session:
            found = figures.read_jobs(session, ids, wanted_names)
        assert list(found.figures) == ids
        for job_id in ids:
            alone = _read(database, job_id)
            names = [name for name in alone if wanted_names is None or name in wanted_names]
            assert [repr(each) for each in found.figures[job_id]] == [
                repr(alone[name]) for name in names
            ]
        all_names = {name for job_id in ids for name in _read(database, job_id)}
        assert {each.name for each in found.series} == all_names
        assert found.series[0].metadata.direction == "none"


def test_headers_are_enough_but_for_the_step_of_the_best(database: Database) -> None:
    uploader = Uploader(database, scenes.run(database))
    records = [StepValues(step, 1.0, {"a": step, "b": -step}) for step in range(1, 5_001)]
    uploader.upload(records)
    _define(database, uploader.claimed.job_id, b=SeriesDefinition(direction="lower"))
    read: list[str] = []
    with database.read_series() as session:
        event.listen(
            session.connection(),
            "before_cursor_execute",
            lambda _c, _cursor, statement, *_: read.append(statement),
        )
        found = figures.read(session, uploader.claimed.job_id)
    assert [each.best_step for each in found] == [5_000, None]
    assert len([statement for statement in read if "series_chunks.points" in statement]) == 1


def test_a_flood_of_infinities_costs_a_bounded_number_of_reads(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "INFINITE_CHUNKS_MAX", 3)
    uploader = Uploader(database, scenes.run(database))
    chunk = limits.METRIC_POINTS_PER_CHUNK
    values = [math.inf if step % chunk == 0 else float(step) for step in range(1, 5 * chunk + 1)]
    uploader.upload([StepValues(step, 1.0, {"a": value}) for step, value in enumerate(values, 1)])
    found = _read(database, uploader.claimed.job_id)["a"]
    assert (found.min, found.max, found.non_finite) == (1.0, None, 5)


def test_definitions_replace_each_other_and_have_a_limit(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "METRIC_NAMES_PER_JOB_MAX", 3)
    lower, higher = SeriesDefinition(direction="lower"), SeriesDefinition(direction="higher")
    assert _define(database, JOB, a=lower, b=lower) == ()
    assert _define(database, JOB, a=higher, c=lower, d=lower, e=lower) == ("d", "e")
    _define(database, "00000000-0000-7000-8000-000000000002", d=lower)
    with database.read_series() as session:
        found = definitions.of_jobs(session, [JOB])
    assert found == {JOB: {"a": higher, "b": lower, "c": lower}}


def test_definitions_survive_a_refused_batch_and_follow_the_offset(database: Database) -> None:
    claimed = scenes.run(database)
    given = {"loss": SeriesDefinition(unit="nats")}

    def append(before: int) -> bool:
        with database.series() as session:
            return series.append(
                session,
                assignment_id=claimed.assignment_id,
                token=claimed.token,
                offset_before=before,
                offset_after=before + 10,
                records=[],
                defined=given,
            )

    assert append(0)
    given["loss"] = SeriesDefinition(unit="bits")
    assert not append(0)  # the same piece again, as after a lost answer
    with database.read_series() as session:
        (stored,) = definitions.of_jobs(session, [claimed.job_id]).values()
    assert stored == {"loss": SeriesDefinition(unit="nats")}
