"""Totals of device use by project, person and day."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from sqlalchemy import update

from lockstep.domain.people_views import UsageBy
from lockstep.domain.rights import EVERY, Within
from lockstep.storage.control import usage
from lockstep.storage.control.usage import Total
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import JobRow
from tests.storage.test_ledger import DAY, account, lived

BEGIN = 20_000 * DAY
"""Midnight."""


def totals(
    database: Database,
    by: UsageBy,
    since: float = BEGIN,
    until: float = BEGIN + 5 * DAY,
    among: Within = EVERY,
    project: str | None = None,
) -> list[Total]:
    with database.read_jobs() as session:
        return usage.totals(session, by, since, until, among=among, project=project)


def test_totals_are_those_of_a_count_by_hand(database: Database) -> None:
    rng = random.Random(5)
    since, until = BEGIN + 0.3 * DAY, BEGIN + 3.6 * DAY
    expected: dict[UsageBy, dict[str | float, list[float]]] = {
        by: defaultdict(lambda: [0.0, 0.0]) for by in UsageBy
    }
    for life in range(12):
        at = sorted(BEGIN - DAY + rng.random() * 6 * DAY for _ in range(4))
        project, person = rng.choice(["nlp", "vision"]), rng.choice(["ada", "bob"])
        last = None if life == 11 else at[3]
        claim = lived(
            database, placed=at[0], running=at[1], ended=at[2], released=last, project=project
        )
        with database.jobs() as session:
            job = update(JobRow).where(JobRow.id == claim.job_id)
            session.execute(job.values(actor=person))
        if life == 8:
            account(database)
        released = until if last is None else last
        ran = max(0.0, min(at[2], released) - at[1]) / (released - at[0])
        for day in range(20_000, 20_006):
            held = min(until, released, (day + 1) * DAY) - max(since, at[0], day * DAY)
            if held > 0:
                names = {UsageBy.PROJECT: project, UsageBy.USER: person, UsageBy.DAY: day * DAY}
                for by, name in names.items():
                    expected[by][name][0] += 2 * held
                    expected[by][name][1] += 2 * held * ran
    for by in UsageBy:
        found = totals(database, by, since, until)
        assert {one.name: [one.allocated, one.productive] for one in found} == {
            name: pytest.approx(parts, abs=1e-3) for name, parts in expected[by].items()
        }
        order = [one.name if by is UsageBy.DAY else -one.allocated for one in found]
        assert order == sorted(order)  # type: ignore[type-var]


def test_a_job_counts_once_in_each_row(database: Database) -> None:
    lived(database, placed=BEGIN + 0.5 * DAY, ended=BEGIN + 2 * DAY, released=BEGIN + 2 * DAY)
    lived(database, placed=BEGIN + 1.5 * DAY, ended=BEGIN + 1.6 * DAY, released=BEGIN + 1.6 * DAY)
    account(database)
    (total,) = totals(database, UsageBy.PROJECT)
    assert total.jobs == 2
    assert [(one.name, one.jobs) for one in totals(database, UsageBy.DAY)] == [
        (BEGIN, 1),
        (BEGIN + DAY, 2),
    ]
    assert totals(database, UsageBy.DAY, BEGIN + 3 * DAY) == []


def test_a_reader_sees_the_use_of_some_projects_only(database: Database) -> None:
    for project in ("nlp", "vision"):
        lived(database, placed=BEGIN, ended=BEGIN + 9, released=BEGIN + 9, project=project)
    account(database)
    lived(database, placed=BEGIN, ended=BEGIN + 9, released=BEGIN + 9, project="vision")
    own = Within(frozenset({"nlp"}))
    assert [one.name for one in totals(database, UsageBy.PROJECT)] == ["vision", "nlp"]
    assert [one.name for one in totals(database, UsageBy.PROJECT, among=own)] == ["nlp"]
    (person,) = totals(database, UsageBy.USER, among=own)
    assert person.allocated == pytest.approx(18)
    assert totals(database, UsageBy.DAY, among=own, project="vision") == []
    (day,) = totals(database, UsageBy.DAY, project="vision")
    assert day.allocated == pytest.approx(36)
