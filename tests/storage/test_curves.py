"""Charts: for every request and all stored points, each bucket agrees with the raw points."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select, update

from lockstep.domain.training.metrics import StepValues
from lockstep.storage.db.database import Database
from lockstep.storage.db.series_tables import SeriesChunkRow
from lockstep.storage.series import series, series_query
from lockstep.storage.series.packing import SUMMARY_POINTS, unpack
from tests.storage.raw_points import NAMES, check, plant, wanted

SIZES = st.lists(st.lists(st.integers(1, 1400), min_size=1, max_size=3), min_size=1, max_size=3)
STEP = st.none() | st.integers(0, 3000)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(SIZES, min_size=1, max_size=3),
    asked=st.lists(
        st.tuples(
            STEP,
            STEP,
            st.integers(1, 60) | st.integers(1, 4000),
            st.sampled_from(get_args(series_query.Attempts)),
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_every_bucket_agrees_with_its_points(
    database: Database,
    seed: int,
    sizes: list[list[list[int]]],
    asked: list[tuple[int | None, int | None, int, series_query.Attempts]],
) -> None:
    stored = {}
    for job_sizes in sizes:
        job_id = str(uuid.uuid4())
        stored[job_id] = plant(database, job_id, random.Random(f"{seed} {len(stored)}"), job_sizes)
    for from_step, to_step, max_points, attempts in asked:
        with database.read_series() as session:
            found = series_query.read_jobs(
                session,
                list(stored),
                from_step=from_step,
                to_step=to_step,
                max_points=max_points,
                attempts=attempts,
            )
        assert list(found) == list(stored)
        for job_id, points in stored.items():
            expected = {name: wanted(points, name, from_step, to_step, attempts) for name in NAMES}
            assert sum(map(len, expected.values())) == len(found[job_id])
            for name in NAMES:
                drawn = [curve for curve in found[job_id] if curve.name == name]
                for curve, inside in zip(drawn, expected[name], strict=True):
                    check(curve, inside, max_points)


@pytest.fixture
def long(database: Database) -> Callable[..., series_query.SeriesData]:
    """Reader of one series of 5,000 points."""
    plant(database, "long", random.Random(1), [[1]])
    records = [StepValues(step, float(step), {"long": float(step)}) for step in range(1, 5001)]
    with database.series() as session:
        assert series.append(
            session,
            assignment_id="long-1",
            token="token",
            offset_before=1,
            offset_after=2,
            records=records,
        )

    def read(**options: int) -> series_query.SeriesData:
        with database.read_series() as session:
            (curve,) = series_query.read(session, "long", names=["long"], **options)  # type: ignore[arg-type] # names of bounds
        return curve

    return read


@pytest.mark.parametrize("max_points", [3, 9, 10, 78, 100, 157, 1000, 4999, 5000])
def test_the_number_of_buckets_is_near_the_requested_one(
    long: Callable[..., series_query.SeriesData], max_points: int
) -> None:
    found = len(long(max_points=max_points).step)
    assert max_points * 0.9 <= found <= max_points


def test_a_coarse_chart_opens_only_chunks_that_are_cut_or_have_no_summary(
    long: Callable[..., series_query.SeriesData], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[bytes] = []
    monkeypatch.setattr(
        series_query, "unpack", lambda packed: opened.append(packed) or unpack(packed)
    )
    assert len(long(max_points=5).step) == 5
    assert not opened
    long(max_points=5000 // SUMMARY_POINTS - 1)
    assert len(opened) == 1  # the last 392 points, which have no summary yet
    long(max_points=5, from_step=700, to_step=4000)
    assert len(opened) == 3  # the two chunks that the bounds cut


def test_a_full_chunk_without_a_summary_is_opened(
    database: Database, long: Callable[..., series_query.SeriesData]
) -> None:
    before = long(max_points=100)
    with database.series() as session:
        count = select(func.count()).where(SeriesChunkRow.summary.is_not(None))
        assert session.execute(count).scalar_one() == 5000 // 512
        forget = update(SeriesChunkRow).where(SeriesChunkRow.seq.in_([0, 512, 2048]))
        session.execute(forget.values(summary=None))
    after = long(max_points=100)
    assert after.count == before.count
    assert (min(after.min), max(after.max), after.step[-1]) == (1.0, 5000.0, 5000)
