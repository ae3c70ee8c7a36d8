"""Metric series: stored exactly once, read back unchanged, reduced without losing extremes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, func, select
from sqlalchemy.orm import Session, undefer

from lockstep.domain import limits
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.training.metrics import StepValues, decode, encode
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.db.series_tables import SeriesChunkRow
from lockstep.storage.series import series, series_query, streams
from lockstep.storage.series.series_query import SeriesData
from tests.storage import scenes


class Uploader:
    """Sender that appends batches one after the other, as a node does."""

    def __init__(self, database: Database, claimed: Claim) -> None:
        self.database, self.claimed, self.offset = database, claimed, 0

    def upload(self, records: list[StepValues]) -> bool:
        with self.database.series() as session:
            stored = series.append(
                session,
                assignment_id=self.claimed.assignment_id,
                token=self.claimed.token,
                offset_before=self.offset,
                offset_after=self.offset + 10,
                records=records,
            )
        self.offset += 10 * stored
        return stored


@pytest.fixture
def uploader(database: Database) -> Uploader:
    return Uploader(database, scenes.run(database))


def _loss(*values: float, first: int = 1) -> list[StepValues]:
    return [
        StepValues(step, 1000.0 + step, {"train/loss": value})
        for step, value in enumerate(values, first)
    ]


def _read(uploader: Uploader, **options: object) -> list[SeriesData]:
    with uploader.database.read_series() as session:
        return series_query.read(session, uploader.claimed.job_id, **options)  # type: ignore[arg-type]


def test_points_read_back_as_they_were_sent(uploader: Uploader) -> None:
    assert uploader.upload(
        [
            StepValues(1, 10.5, {"train/loss": 2.5, "custom": 1.0}),
            StepValues(2, 11.5, {"train/loss": 2.25}),
        ]
    )
    custom, loss = _read(uploader)
    assert (custom.name, custom.unit, custom.count, custom.value) == ("custom", "", 1, [1.0])
    assert (loss.name, loss.unit, loss.attempt, loss.count) == ("train/loss", "", 1, 2)
    assert (loss.step, loss.time, loss.value) == ([1, 2], [10.5, 11.5], [2.5, 2.25])
    assert loss.min == loss.max == loss.value


NAMES = st.sampled_from(["train/loss", "eval/loss", "a b-c_d.e/f"])
RECORD = st.builds(
    StepValues,
    st.integers(0, 2**62 - 1),
    st.floats(0, 4e9),
    st.dictionaries(NAMES, st.floats(), min_size=1, max_size=3),
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(RECORD, max_size=40), min_size=1, max_size=6))
def test_every_line_of_a_spool_reads_back_equal(
    database: Database, batches: list[list[StepValues]]
) -> None:
    claimed = _new_claim(database)
    uploader = Uploader(database, claimed)
    for batch in batches:
        spool = "".join(encode(record) + "\n" for record in batch)
        assert uploader.upload(
            [decode(line, now=0.0, default_step=0) for line in spool.splitlines()]
        )
    sent: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    for record in (record for batch in batches for record in batch):
        for name, value in record.values.items():
            sent[name].append((record.step, record.time, value))
    stored = {
        view.name: list(zip(view.step, view.time, view.value, strict=True))
        for view in _read(uploader)
    }
    assert repr(sorted(stored.items())) == repr(sorted(sent.items()))  # NaN != NaN


def _new_claim(database: Database) -> Claim:
    """Return a claim without a job: the series database only checks the stream."""
    with database.read_series() as session:
        number = session.execute(select(func.count()).select_from(streams.StreamRow)).scalar_one()
    name = f"{number:036d}"
    claimed = Claim(
        assignment_id=name,
        token="token",
        job_id=name,
        attempt_id=name,
        attempt_number=1,
        spec={},
        plan=None,
        node_name="n1",
        node_rank=0,
        node_count=1,
        ranks_here=1,
        world_size=1,
        devices=[0],
        device_kind="cpu",
        rendezvous_host="127.0.0.1",
        rendezvous_port=0,
        published=[],
        timeout_left_seconds=None,
    )
    scenes.open_stream(database, claimed)
    return claimed


def test_a_batch_sent_again_is_stored_once(uploader: Uploader) -> None:
    assert uploader.upload(_loss(1.0))
    uploader.offset = 0
    assert not uploader.upload(_loss(1.0))
    uploader.offset = 20
    assert not uploader.upload(_loss(3.0, first=3))  # the one before it is missing
    uploader.offset = 10
    assert uploader.upload(_loss(2.0, first=2))
    [view] = _read(uploader)
    assert view.value == [1.0, 2.0]


def test_a_batch_sent_twice_at_once_is_stored_once(uploader: Uploader) -> None:
    twins = [Uploader(uploader.database, uploader.claimed) for _ in range(4)]
    stored = scenes.at_once(*[lambda twin=twin: twin.upload(_loss(1.0, 2.0)) for twin in twins])
    assert sum(stored) == 1
    assert _read(uploader)[0].count == 2


def test_a_batch_whose_transaction_fails_leaves_no_row(uploader: Uploader) -> None:
    def break_off(_session: object) -> None:
        raise RuntimeError("the connection broke")

    event.listen(Session, "before_commit", break_off)
    try:
        with pytest.raises(RuntimeError):
            uploader.upload(_loss(1.0))
    finally:
        event.remove(Session, "before_commit", break_off)
    assert _read(uploader) == []
    assert uploader.upload(_loss(2.0))
    assert _read(uploader)[0].value == [2.0]


def test_neither_a_stale_token_nor_a_sealed_stream_can_append(uploader: Uploader) -> None:
    uploader.upload(_loss(1.0))
    impostor = Uploader(uploader.database, replace(uploader.claimed, token="stale"))
    impostor.offset = uploader.offset
    assert not impostor.upload(_loss(9.0, first=2))
    assert scenes.seal(uploader.database, uploader.claimed)
    assert not scenes.seal(uploader.database, uploader.claimed)
    assert not uploader.upload(_loss(9.0, first=2))
    assert _read(uploader)[0].value == [1.0]


def _second_attempt(uploader: Uploader) -> Uploader:
    scenes.end(uploader.database, uploader.claimed, Reason.KILLED)
    scenes.release(uploader.database, uploader.claimed)
    return Uploader(uploader.database, scenes.start(uploader.database, uploader.claimed.job_id))


def test_a_new_stream_fences_an_unsealed_old_one(uploader: Uploader) -> None:
    uploader.upload(_loss(1.0))
    new = _second_attempt(uploader)
    assert not uploader.upload(_loss(9.0, first=2))
    assert new.upload(_loss(2.0, first=2))
    with uploader.database.series() as session:
        assert not streams.open_stream(session, scenes.writer_of(uploader.claimed))


def test_a_new_attempt_hides_repeated_steps(uploader: Uploader) -> None:
    uploader.upload(_loss(1.0, 2.0, 3.0, 4.0))
    uploader.upload(
        [StepValues(2, 1.0, {"eval/loss": 5.0}), StepValues(4, 1.0, {"eval/loss": 6.0})]
    )
    new = _second_attempt(uploader)
    evaluated, loss = _read(uploader)
    assert loss.value == [1.0, 2.0, 3.0, 4.0]  # no point is hidden before its replacement exists
    new.upload(_loss(30.0, 40.0, first=3))
    evaluated, loss = _read(uploader)
    assert (loss.step, loss.value, loss.attempt, loss.count) == (
        [1, 2, 3, 4],
        [1.0, 2.0, 30.0, 40.0],
        2,
        4,
    )
    assert evaluated.value == [5.0]


def test_all_attempts_can_be_read_for_themselves(uploader: Uploader) -> None:
    uploader.upload(_loss(1.0, 2.0, 3.0))
    _second_attempt(uploader).upload(_loss(20.0, 30.0, first=2))
    views = _read(uploader, attempts="all")
    assert [(view.attempt, view.step, view.value) for view in views] == [
        (1, [1, 2, 3], [1.0, 2.0, 3.0]),
        (2, [2, 3], [20.0, 30.0]),
    ]


def test_series_are_chosen_by_name_and_step(uploader: Uploader) -> None:
    uploader.upload([StepValues(step, 1.0, {"a": step, "b": -step}) for step in range(1, 2001)])
    [view] = _read(uploader, names=["b"], from_step=500, to_step=1500)
    assert (view.name, view.step, view.count) == ("b", list(range(500, 1501)), 1001)
    assert _read(uploader, names=[]) == []
    assert _read(uploader, names=["c"]) == []
    assert _read(uploader, from_step=2001) == []


def test_many_small_batches_become_few_chunks(uploader: Uploader) -> None:
    for step in range(1, 109):
        uploader.upload(_loss(float(step), first=step))
    with uploader.database.read_series() as session:
        sizes = list(
            session.scalars(select(SeriesChunkRow.point_count).order_by(SeriesChunkRow.seq))
        )
    assert sizes == [64, 32, 8, 4]
    assert _read(uploader)[0].value == [float(step) for step in range(1, 109)]


def test_no_chunk_is_larger_than_the_limit(uploader: Uploader) -> None:
    for size in (700, 100, 900):
        uploader.upload(_loss(*[1.0] * size))
    with uploader.database.read_series() as session:
        sizes = list(session.scalars(select(SeriesChunkRow.point_count)))
    assert max(sizes) == limits.METRIC_POINTS_PER_CHUNK
    assert sum(sizes) == 1700


def _spiky(count: int) -> Iterator[float]:
    for index in range(count):
        yield {1234: 99.0, 2345: -99.0, 3456: math.nan, 4567: math.inf}.get(index, index / count)


@pytest.mark.parametrize("max_points", [1, 7, 100])
def test_spikes_and_nans_remain_in_every_reduction(uploader: Uploader, max_points: int) -> None:
    uploader.upload(_loss(*_spiky(6000)))
    [view] = _read(uploader, max_points=max_points)
    assert view.count == 6000
    assert 1 <= len(view.step) <= max_points
    assert math.inf in view.max
    assert min(view.min) == -99.0
    if max_points > 1:  # one bucket has one largest value, which is the infinite one
        assert max(value for value in view.max if math.isfinite(value)) == 99.0
    assert sum(map(math.isnan, view.value)) == 1
    assert view.step[-1] == 6000


def test_reduction_from_headers_respects_the_bounds(uploader: Uploader) -> None:
    uploader.upload(_loss(*map(float, range(1, 6001))))
    [view] = _read(uploader, from_step=100, to_step=5900, max_points=3)
    assert view.count == 5801
    assert (view.min[0], view.max[-1], view.step[-1]) == (100.0, 5900.0, 5900)


def test_newest_values_and_progress_follow_the_newest_attempt(uploader: Uploader) -> None:
    job_id = uploader.claimed.job_id
    uploader.upload(
        [
            StepValues(5, 50.0, {"train/loss": 1.0}),
            StepValues(6, 60.0, {"train/loss": math.nan, "eval/loss": 2.0}),
        ]
    )
    with uploader.database.read_series() as session:
        first = series.progress(session, [job_id, "unknown"])
        assert series.latest(session, [job_id, "unknown"]) == {
            job_id: {"eval/loss": 2.0, "train/loss": "NaN"}
        }
    assert list(first) == [job_id]
    row = first[job_id]
    assert (row.seq, row.attempt, row.step, row.time, row.first_step, row.first_time) == (
        1,
        1,
        6,
        60.0,
        5,
        50.0,
    )
    _second_attempt(uploader).upload(_loss(3.0, first=4))
    with uploader.database.read_series() as session:
        row = series.progress(session, [job_id])[job_id]
    assert (row.seq, row.attempt, row.step, row.first_step) == (2, 2, 4, 4)


def test_names_beyond_the_limit_are_dropped_and_counted(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "METRIC_NAMES_PER_JOB_MAX", 2)
    uploader.upload([StepValues(1, 1.0, {"a": 1.0, "b": 1.0, "c": 1.0})])
    uploader.upload([StepValues(2, 1.0, {"a": 2.0, "d": 1.0})])
    assert [(view.name, view.count) for view in _read(uploader)] == [("a", 2), ("b", 1)]
    with uploader.database.read_series() as session:
        state = streams.state(session, uploader.claimed.assignment_id)
    assert state is not None
    assert state.points_dropped == 2


def test_a_stream_reports_its_offset(uploader: Uploader) -> None:
    claimed = uploader.claimed
    uploader.upload(_loss(1.0, 2.0))
    with uploader.database.series() as session:
        for expected in (True, False):
            assert expected is streams.advance_events(
                session,
                assignment_id=claimed.assignment_id,
                token=claimed.token,
                offset_before=0,
                offset_after=33,
            )
        state = streams.state(session, claimed.assignment_id)
        assert state is not None
        assert streams.state(session, "unknown") is None
    assert (state.metrics_offset, state.events_offset, state.last_step, state.sealed) == (
        10,
        33,
        2,
        False,
    )
    assert (state.job_id, state.attempt, state.next_line) == (claimed.job_id, 1, 0)


def test_a_chunk_is_compressed_once_it_holds_much(uploader: Uploader) -> None:
    uploader.upload(_loss(*[1.0] * 127))
    uploader.upload(_loss(*[1.0] * 100, first=128))
    uploader.upload(_loss(*[1.0] * 600, first=228))
    with uploader.database.read_series() as session:
        chunks = (
            select(SeriesChunkRow)
            .options(undefer(SeriesChunkRow.points))
            .order_by(SeriesChunkRow.seq)
        )
        sizes = [(chunk.point_count, len(chunk.points)) for chunk in session.scalars(chunks)]
    assert [count for count, _ in sizes] == [512, 315]
    assert all(bytes_ < 6 * count for count, bytes_ in sizes)
    assert _read(uploader)[0].step == list(range(1, 828))


def test_a_job_at_its_limit_of_points_keeps_its_newest_values(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "METRIC_POINTS_PER_JOB_MAX", 3)
    left_out: list[series.OverLimit] = []
    upload = partial(
        series.append, assignment_id=uploader.claimed.assignment_id, token=uploader.claimed.token
    )
    for offset, step in enumerate((1, 4, 7)):
        with uploader.database.series() as session:
            records = _loss(float(step), float(step + 1), math.nan, first=step)
            assert upload(
                session,
                offset_before=offset,
                offset_after=offset + 1,
                records=records,
                left_out=left_out.append,
            )
    assert left_out == [series.OverLimit(3, job_is_full=True)] * 2
    assert _read(uploader)[0].step == [1, 2, 3]
    with uploader.database.read_series() as session:
        assert series.latest(session, [uploader.claimed.job_id])[uploader.claimed.job_id] == {
            "train/loss": "NaN"
        }
        assert (
            series.progress(session, [uploader.claimed.job_id])[uploader.claimed.job_id].step == 9
        )
        state = streams.state(session, uploader.claimed.assignment_id)
    assert state is not None
    assert state.points_dropped == 6
