"""Right to open a stream: the jobs database decides, although the other one has the stream (P2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.life.timings import Timings
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.attempts import attempts
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import jobs
from lockstep.storage.series import series, series_query, streams
from lockstep.storage.series.streams import Writer
from tests.storage import scenes


@pytest.fixture
def claimed(database: Database) -> Claim:
    """Return an attempt that has not opened its stream."""
    scenes.add_node(database)
    return _claim(database, scenes.submit(database))


def test_only_the_holder_of_a_claimed_part_is_a_writer(database: Database) -> None:
    scenes.add_node(database)
    placed = scenes.placed_on(database, scenes.submit(database))
    part = placed.assignments[0].assignment_id
    with database.read_jobs() as session:
        assert attempts.writer(session, part, "") is None
    claim = scenes.claim(database, part)
    assert claim is not None
    assert _writer(database, claim) == Writer(part, claim.job_id, 1, claim.token)
    assert _writer(database, replace(claim, token="another")) is None
    assert _writer(database, replace(claim, assignment_id="unknown")) is None
    scenes.end(database, claim, Reason.KILLED)
    assert _writer(database, claim) is None


def test_a_lost_attempt_cannot_open_its_stream_after_the_seal(
    database: Database, claimed: Claim
) -> None:
    """It asked while it had the right, stood still for longer than its lease, and continues."""
    writer = _writer(database, claimed)
    assert writer is not None
    scenes.expire(database, claimed.assignment_id)
    with database.jobs() as session:
        assert attempts.lose(session, claimed.assignment_id, claimed.token, timings=Timings())
    assert scenes.seal(database, claimed)
    assert not _open(database, writer)
    assert not _append(database, claimed)


@pytest.mark.parametrize("opened", [True, False])
def test_a_stream_is_sealed_once_and_stays_sealed(
    database: Database, claimed: Claim, opened: bool
) -> None:
    if opened:
        scenes.open_stream(database, claimed)
    assert scenes.seal(database, claimed)
    assert not scenes.seal(database, claimed)
    assert not _open(database, scenes.writer_of(claimed))
    assert not _append(database, claimed)
    with database.read_series() as session:
        state = streams.state(session, claimed.assignment_id)
        assert streams.sealed(session, [claimed.assignment_id, "unknown"]) == {
            claimed.assignment_id
        }
        assert streams.sealed(session, []) == set()
    assert state is not None
    assert (state.sealed, state.attempt, state.next_line) == (True, 1, 0)


def test_an_opening_and_a_seal_at_once_leave_a_sealed_stream(database: Database) -> None:
    scenes.add_node(database)
    claims = [
        _claim(database, scenes.submit(database, resources={"gpus": 1}), device)
        for device in range(4)
    ]
    for claim in claims:
        scenes.at_once(
            lambda claim=claim: _open(database, scenes.writer_of(claim)),
            lambda claim=claim: scenes.seal(database, claim),
        )
        assert not _append(database, claim)


def test_a_sealed_stream_without_points_hides_no_earlier_attempt(
    database: Database, claimed: Claim
) -> None:
    scenes.open_stream(database, claimed)
    assert _append(database, claimed)
    scenes.end(database, claimed, Reason.KILLED)
    scenes.seal(database, claimed)
    scenes.release(database, claimed)
    second = _claim(database, claimed.job_id)
    scenes.seal(database, second)
    with database.read_series() as session:
        assert [view.value for view in series_query.read(session, claimed.job_id)] == [[1.0]]


def test_an_outdated_decision_places_no_job(database: Database, claimed: Claim) -> None:
    """A scheduler that stood still since then has no information about that attempt's stream."""
    scenes.end(database, claimed, Reason.KILLED)
    scenes.release(database, claimed)
    with database.jobs() as session:
        job = jobs.get(session, claimed.job_id)
        assert job is not None
        decided = (("n1", (0, 1)),)
        assert (
            attempts.place(session, job.id, decided, lease_seconds=60.0, attempts_before=0) is None
        )
        assert (
            attempts.place(session, job.id, decided, lease_seconds=60.0, attempts_before=1)
            is not None
        )


def _claim(database: Database, job_id: str, *devices: int) -> Claim:
    return scenes.claimed_on(database, job_id, devices or (0, 1))


def _writer(database: Database, claimed: Claim) -> Writer | None:
    with database.read_jobs() as session:
        return attempts.writer(session, claimed.assignment_id, claimed.token)


def _open(database: Database, writer: Writer) -> bool:
    with database.series() as session:
        return streams.open_stream(session, writer)


def _append(database: Database, claimed: Claim) -> bool:
    with database.series() as session:
        return series.append(
            session,
            assignment_id=claimed.assignment_id,
            token=claimed.token,
            offset_before=0,
            offset_after=1,
            records=[StepValues(1, 1.0, {"loss": 1.0})],
        )
