"""Views that are kept for all readers: those of a fresh read, and read once for each change."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy.orm import Session

from lockstep.api.jobs.known_views import KnownViews, Marked
from lockstep.domain.life.lifecycle import TERMINAL
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.rights import EVERY
from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.storage.attempts import attempts
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import listing
from lockstep.storage.series import definitions
from tests.api.conftest import Api
from tests.api.test_reading import record, upload_metrics
from tests.storage import scenes


def answers(api: Api, job_ids: list[str]) -> dict[str, Any]:
    paths = ["/v1/jobs", "/v1/queue"]
    for job_id in job_ids:
        paths += [f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/live?names=train/loss"]
    return {path: api.http.get(path).json() for path in paths}


@pytest.mark.parametrize("seed", range(2))
def test_an_answer_is_that_of_a_fresh_read_after_any_change(api: Api, seed: int) -> None:
    chosen = random.Random(seed)
    scenes.add_node(api.database, devices=8)
    job_ids = [scenes.submit(api.database, name=f"job-{number}") for number in range(4)]
    claims: dict[str, Claim] = {}
    step = 0

    def change(job_id: str) -> None:
        nonlocal step
        claim, what = claims.get(job_id), chosen.random()
        if what < 0.2:
            body = {"note": f"note {what}", "labels": {"seed": f"{what}"}, "starred": what < 0.1}
            answer = api.http.patch(f"/v1/jobs/{job_id}", json=body)
            assert answer.status_code == 200, answer.text
        elif claim is None:
            number = job_ids.index(job_id)
            claims[job_id] = scenes.start(api.database, job_id, (2 * number, 2 * number + 1))
        elif what < 0.3:
            with api.database.jobs() as session:
                attempts.mark_running(session, claim.assignment_id, claim.token)
        elif what < 0.75:
            step += 1
            upload_metrics(api, claim, record(step, what, throughput__samples_per_second=9.0))
        elif what < 0.85:
            with api.database.series() as session:
                direction = chosen.choice(("lower", "higher"))
                found = {"train/loss": SeriesDefinition.model_validate({"direction": direction})}
                definitions.store(session, job_id, found)
            upload_metrics(api, claim, record(step, 1.0))
        elif what < 0.9:
            api.http.post(f"/v1/jobs/{job_id}/cancel")
        else:
            ended = chosen.choice((Reason.SUCCEEDED, Reason.USER_ERROR, Reason.KILLED))
            scenes.end(api.database, claim, ended)
            scenes.release(api.database, claim)
            del claims[job_id]
            if scenes.state_of(api.database, job_id) in TERMINAL:
                job_ids[job_ids.index(job_id)] = scenes.submit(api.database, name="another")

    for _ in range(40):
        change(chosen.choice(job_ids))
        found = answers(api, job_ids)
        api.forget_answers()
        assert found == answers(api, job_ids)


def test_only_what_changed_is_read(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes.add_node(database)
    claims = [
        scenes.start(database, scenes.submit(database), (2 * number, 2 * number + 1))
        for number in range(2)
    ]
    waits = scenes.submit(database)
    ids = [*(claim.job_id for claim in claims), waits]
    read = list[list[str]]()
    rows = listing.rows

    def counted(session: Session, job_ids: Sequence[str]) -> list[JobRow]:
        read.append(list(job_ids))
        return rows(session, job_ids)

    monkeypatch.setattr(listing, "rows", counted)
    views = KnownViews(database)

    def marked(batches: int) -> list[Marked]:
        with database.look_jobs() as look:
            return [Marked(mark, batches) for mark in listing.marks(look, ids)]

    first = views.read(marked(0), among=EVERY)
    assert [view.id for view in first] == ids
    for batches in (0, 1, 1):
        assert views.read(marked(batches), among=EVERY) == first
    with database.jobs() as session:
        assert attempts.mark_running(session, claims[0].assignment_id, claims[0].token)
    assert [view.state for view in views.read(marked(1), among=EVERY)] == [
        "running",
        "starting",
        "queued",
    ]
    assert read == [ids, [waits], [waits], [waits], [ids[0], waits]]
    views.forget()
    # Marks of before a restore, and rows of the backup.
    later = [mark._replace(mark=mark.mark._replace(version=99)) for mark in marked(1)]
    for marks in (later, later, marked(1)):
        views.read(marks, among=EVERY)
    assert read[-3:] == [ids] * 3


def test_a_job_that_is_no_more_or_returns_to_the_queue_is_not_kept(database: Database) -> None:
    claim = scenes.run(database)
    with database.look_jobs() as look:
        marks = [Marked(mark, 0) for mark in listing.marks(look, [claim.job_id])]
    scenes.end(database, claim, Reason.KILLED)
    scenes.release(database, claim)
    views = KnownViews(database)
    for _ in range(2):
        (view,) = views.read(marks, among=EVERY)
        assert view.state == "queued"
    gone = marks[0]._replace(mark=marks[0].mark._replace(id="0190-gone"))
    assert views.read([gone, *marks], among=EVERY) == [view]
