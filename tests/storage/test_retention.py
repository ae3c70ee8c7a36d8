"""Points and lines with limited retention: time of the deletion, remaining data, and events."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select, update

from lockstep.domain.life.attempt import LogRecord
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.training.metrics import StepValues
from lockstep.domain.views import LogLine
from lockstep.storage.attempts import events
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.db.file_tables import RetentionRow
from lockstep.storage.db.tables import EventRow, JobRow
from lockstep.storage.jobs import change_feed, removal, retention
from lockstep.storage.jobs.retention import DAY_SECONDS, DueDeletion
from lockstep.storage.logs import log_pages, logs
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.series import series, series_query, tails
from tests.storage import scenes

STEPS = 1_500
LINES = 700


def wrote(database: Database, *, line_count: int = LINES, **changes: Any) -> Claim:
    """Create a running job that has written three chunks of points and two of lines."""
    claim = scenes.run(database, **changes)
    with database.series() as session:
        assert series.append(
            session,
            assignment_id=claim.assignment_id,
            token=claim.token,
            offset_before=0,
            offset_after=9,
            records=[
                StepValues(step, float(step), {"train/loss": 1.0 / step})
                for step in range(1, STEPS + 1)
            ],
        )
        assert logs.append(
            session,
            assignment_id=claim.assignment_id,
            token=claim.token,
            offset_before=(0, 0),
            offset_after=(0, 6),
            records=[
                LogRecord(time=1.0, rank=0, stream="stdout", text=f"line {n}")
                for n in range(line_count)
            ],
        )
    return claim


def ended(database: Database, days_ago: float = 0.0, **changes: Any) -> Claim:
    """Create such a job that ended this long ago."""
    claim = wrote(database, **changes)
    scenes.end(database, claim, Reason.SUCCEEDED)
    scenes.seal(database, claim)
    scenes.release(database, claim)
    age(database, claim, days_ago)
    return claim


def age(database: Database, claim: Claim, days: float) -> None:
    with database.jobs() as session:
        earlier = {"finished_at": JobRow.finished_at - days * DAY_SECONDS}
        session.execute(update(JobRow).where(JobRow.id == claim.job_id).values(earlier))


def due(database: Database) -> list[DueDeletion]:
    with database.read_jobs() as session:
        return retention.due(session) + retention.due_files(session)


def points(database: Database, claim: Claim) -> dict[str, int]:
    with database.read_series() as session:
        return {curve.name: curve.count for curve in series_query.read(session, claim.job_id)}


def lines(database: Database, claim: Claim) -> list[LogLine]:
    with database.read_series() as session:
        return log_pages.page(session, claim.job_id, limit=1_000).lines


def mark(database: Database, claim: Claim) -> int:
    with database.look_series() as look:
        return change_feed.counts(look, [claim.job_id])[claim.job_id]


def told(database: Database, claim: Claim) -> list[tuple[str, dict[str, Any]]]:
    with database.read_jobs() as session:
        found = session.scalars(
            select(EventRow).where(EventRow.job_id == claim.job_id, EventRow.kind == "expired")
        )
        return [(event.message, event.data) for event in found]


def test_each_is_due_in_its_time_and_only_after_the_end(database: Database) -> None:
    asked = {"retention": {"metrics_days": 2, "logs_days": 5}}
    claim = ended(database, 1.99, **asked)
    assert due(database) == []
    age(database, claim, 0.02)
    metrics, both = (
        DueDeletion(claim.job_id, "metrics", 2),
        [DueDeletion(claim.job_id, "logs", 5), DueDeletion(claim.job_id, "metrics", 2)],
    )
    assert due(database) == [metrics]
    age(database, claim, 3)
    assert due(database) == both


def test_a_job_that_has_not_ended_keeps_everything(database: Database) -> None:
    claim = wrote(database, retention={"logs_days": 1})
    with database.jobs() as session:
        old = {"created_at": 0.0, "started_at": 0.0}
        session.execute(update(JobRow).where(JobRow.id == claim.job_id).values(old))
    assert due(database) == []


def test_without_a_limit_everything_is_kept(database: Database) -> None:
    ended(database, 36_500)
    assert due(database) == []


def test_points_go_and_the_last_values_stay(database: Database) -> None:
    claim = ended(database, 3, retention={"metrics_days": 2})
    other = ended(database, 3)
    before = mark(database, claim)
    (one,) = due(database)
    assert retention.expire(database, one)
    assert points(database, claim) == {}
    assert points(database, other) == {"train/loss": STEPS}
    assert len(lines(database, claim)) == LINES
    with database.read_series() as session:
        assert series.latest(session, [claim.job_id]) == {claim.job_id: {"train/loss": 1.0 / STEPS}}
        assert series.progress(session, [claim.job_id])[claim.job_id].step == STEPS
    assert mark(database, claim) > before
    message = (
        "its points were deleted: 2 days have passed since the job's end "
        "(retention.metrics_days: 2)"
    )
    assert told(database, claim) == [(message, {"what": "metrics", "days": 2})]
    assert due(database) == []


def test_one_line_in_place_of_the_deleted_ones_explains_the_deletion(database: Database) -> None:
    claim = ended(database, 1.5, retention={"logs_days": 1})
    (one,) = due(database)
    assert retention.expire(database, one)
    (left,) = lines(database, claim)
    text = (
        f"… {LINES} lines deleted: a day has passed since the job's end (retention.logs_days: 1) …"
    )
    assert (left.line, left.attempt, left.rank, left.stream, left.text) == (
        LINES - 1,
        1,
        -1,
        "launcher",
        text,
    )
    assert points(database, claim) == {"train/loss": STEPS}
    with database.read_series() as session:
        last = log_pages.page(session, claim.job_id, limit=10, from_end=True)
        assert [line.text for line in last.lines] == [text]
        assert log_pages.at_end(session, claim.job_id, last.next_cursor)


def test_a_single_line_is_not_called_lines(database: Database) -> None:
    claim = ended(database, 9, line_count=1, retention={"logs_days": 7})
    assert retention.expire(database, *due(database))
    (left,) = lines(database, claim)
    assert left.text == (
        "… 1 line deleted: 7 days have passed since the job's end (retention.logs_days: 7) …"
    )


def test_a_repeated_expiry_has_one_event(database: Database) -> None:
    claim = ended(database, 9, retention={"logs_days": 1})
    (one,) = due(database)
    assert scenes.at_once(*[lambda: retention.expire(database, one)] * 2).count(True) == 1
    assert not retention.expire(database, one)
    assert len(told(database, claim)) == 1
    assert len(lines(database, claim)) == 1


def test_an_interrupted_expiry_continues(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "CHUNKS_AT_ONCE", 1)
    claim = ended(database, 9, retention={"metrics_days": 1})
    (one,) = due(database)
    turns = iter([True, False])
    assert not retention.expire(database, one, lambda: next(turns))
    assert 0 < points(database, claim)["train/loss"] < STEPS
    assert told(database, claim) == []
    assert due(database) == [one]
    assert retention.expire(database, one)
    assert points(database, claim) == {}
    assert len(told(database, claim)) == 1


def test_an_open_chart_continues(database: Database) -> None:
    claim = ended(database, 9, retention={"metrics_days": 1})
    with database.read_series() as session:
        _curves, cursor, _complete = tails.read(session, claim.job_id, since=None)
    (one,) = due(database)
    assert retention.expire(database, one)
    with database.read_series() as session:
        found, _cursor, complete = tails.read(session, claim.job_id, since=cursor)
    assert (found, complete) == ([], True)


def test_a_deleted_job_is_not_due_any_more(database: Database, tmp_path: Any) -> None:
    claim = ended(database, 9, retention={"metrics_days": 1, "logs_days": 1, "files_days": 1})
    assert len(due(database)) == 3
    scenes.remove(database, BlobStore(str(tmp_path / "store")), claim.job_id)
    assert due(database) == []
    with database.read_jobs() as session:
        assert session.scalars(select(RetentionRow)).all() == []
        assert events.page(session, claim.job_id, limit=10) == []
