"""The ledger of device use, and averages over it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from sqlalchemy import select, update

from lockstep.domain.life.held_time import StepRange
from lockstep.domain.life.outcomes import Reason
from lockstep.storage.attempts import attempts, ledger
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.control import usage
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import LedgerRow
from lockstep.storage.db.tables import AssignmentRow, AttemptRow
from lockstep.storage.objects.blobs import BlobStore
from tests.storage import scenes

NOW = 1.75e9
DAY = 86_400.0


def lived(
    database: Database,
    *,
    placed: float = NOW - 100,
    running: float | None = NOW - 90,
    ended: float = NOW - 20,
    released: float | None = NOW - 10,
    devices: int = 2,
    project: str = "default",
) -> Claim:
    """Create a job whose assignment has these times."""
    scenes.add_node(database)
    job_id = scenes.submit(database, project=project)
    claim = scenes.start(database, job_id, tuple(range(devices)))
    scenes.end(database, claim, Reason.SUCCEEDED)
    scenes.seal(database, claim)
    assert scenes.release(database, claim)
    with database.jobs() as session:
        part = update(AssignmentRow).where(AssignmentRow.id == claim.assignment_id)
        session.execute(part.values(created_at=placed, ended_at=ended, released_at=released))
        attempt = update(AttemptRow).where(AttemptRow.job_id == job_id)
        session.execute(attempt.values(running_at=running, ended_at=ended))
    return claim


def account(database: Database) -> int:
    """Add what is due to the ledger; return the number of assignments."""
    with database.jobs() as session:
        found = ledger.due(session)
        ledger.add(session, found, {})
        return len(found)


def rows(database: Database) -> list[LedgerRow]:
    with database.read_jobs() as session:
        return list(session.scalars(select(LedgerRow).order_by(LedgerRow.placed_at)))


def average(database: Database, **options: float) -> dict[tuple[str, str], float]:
    with database.read_jobs() as session:
        return usage.average(session, NOW, **options)


def test_parts_of_random_lives_add_up(database: Database) -> None:
    rng = random.Random(7)
    for _life in range(8):
        placed, running, ended, released = sorted(NOW - rng.random() * 1e6 for _ in range(4))
        lived(database, placed=placed, running=running, ended=ended, released=released)
    assert account(database) == 8
    for row in rows(database):
        held = (row.released_at - row.placed_at) * row.devices
        assert row.productive + row.repeated + row.idle == pytest.approx(held, rel=0, abs=1e-6)
        assert row.devices == 2
        assert row.productive > 0
    assert account(database) == 0


def test_a_row_says_who_used_which_devices(database: Database) -> None:
    claim = lived(database, project="nlp", devices=3)
    with database.jobs() as session:
        (one,) = ledger.due(session)
        again = one._replace(attempt=3)
        steps = {(claim.job_id, 1): StepRange(1, 70), (claim.job_id, 3): StepRange(51, 150)}
        ledger.add(session, [again], steps)
    (row,) = rows(database)
    assert (row.job_name, row.project, row.actor, row.node_name, row.device_type, row.devices) == (
        "digits", "nlp", "ada", "n1", "cpu", 3,
    )  # fmt: skip
    assert (row.productive, row.repeated, row.idle) == pytest.approx((168.0, 42.0, 60.0))


def test_a_part_of_a_gang_waits_for_the_end_of_the_attempt(database: Database) -> None:
    first, second = scenes.gang(database)
    with database.jobs() as session:
        assert attempts.mark_running(session, first.assignment_id, first.token)
    scenes.end(database, first, Reason.SUCCEEDED)
    assert scenes.release(database, first)
    assert account(database) == 0
    scenes.end(database, second, Reason.SUCCEEDED)
    assert account(database) == 1
    assert scenes.release(database, second)
    assert account(database) == 1
    with database.read_jobs() as session:
        attempt = session.scalars(select(AttemptRow)).one()
        ends = dict(session.execute(select(AssignmentRow.id, AssignmentRow.ended_at)).all())
    for row in rows(database):
        ended = min(ends[row.assignment_id] or NOW, attempt.ended_at or NOW)
        assert row.productive == pytest.approx(ended - (attempt.running_at or NOW), abs=1e-6)


def test_a_job_that_is_deleted_before_the_cycle_keeps_its_use(
    database: Database, tmp_path: Path
) -> None:
    claim = lived(database)
    blobs = BlobStore(str(tmp_path))
    with database.read_jobs() as session:
        read_before = ledger.due(session)
    scenes.remove(database, blobs, claim.job_id)
    with database.jobs() as session:
        ledger.add(session, read_before, {})
    (row,) = rows(database)
    assert (row.job_id, row.productive, row.idle) == (claim.job_id, 140.0, 40.0)


def test_two_writers_at_once_add_each_row_once(database: Database) -> None:
    for _job in range(5):
        lived(database)
    with database.read_jobs() as session:
        found = ledger.due(session)

    def add(order: int) -> None:
        with database.jobs() as session:
            ledger.add(session, found[::order], {})

    scenes.at_once(lambda: add(1), lambda: add(-1), lambda: add(1))
    assert len(rows(database)) == 5
    assert account(database) == 0


def test_a_writer_that_dies_before_its_commit_leaves_the_use_to_the_next(
    database: Database,
) -> None:
    lived(database)
    before = average(database)

    def die() -> None:
        with database.jobs() as session:
            ledger.add(session, ledger.due(session), {})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        die()
    assert rows(database) == []
    assert average(database) == before
    assert account(database) == 1
    assert average(database) == pytest.approx(before)


def test_an_average_is_the_integral_of_the_weights(database: Database) -> None:
    rng = random.Random(3)
    half_life, spells = 0.5 * DAY, []
    for life in range(6):
        placed, released = sorted(NOW - rng.random() * 7 * DAY for _ in range(2))
        spells.append((placed, released))
        lived(database, placed=placed, ended=released, released=released, devices=3)
        if life == 3:
            account(database)
    lived(database, placed=NOW - 6 * DAY, released=None, devices=3)  # has not released its devices
    spells.append((NOW - 6 * DAY, NOW))
    step, integral = 20.0, 0.0
    for index in range(int(10 * half_life / step)):
        at = NOW - (index + 0.5) * step
        used = 3 * sum(placed <= at < released for placed, released in spells)
        integral += used * 2 ** ((at - NOW) / half_life) * step
    expected = integral * 0.6931471805599453 / half_life
    found = average(database, half_life_seconds=half_life)
    assert found == {("default", "ada"): pytest.approx(expected, rel=1e-3)}


def test_constant_use_is_its_number_of_devices(database: Database) -> None:
    lived(database, placed=NOW - 1_000 * DAY, released=None, devices=4, project="a")
    lived(database, placed=NOW - 50 * DAY, ended=NOW - 21 * DAY, released=NOW - 21 * DAY)
    account(database)
    assert average(database) == {("a", "ada"): pytest.approx(4, rel=1e-3)}
    assert average(database, half_life_seconds=60) == {("a", "ada"): pytest.approx(4, rel=1e-3)}
