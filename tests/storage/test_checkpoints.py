"""A job's checkpoints: retention, resolution of a name, and first weights from another job."""

from __future__ import annotations

import math

import pytest

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.init_from import JobCheckpoint
from lockstep.storage.attempts import checkpoints
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from tests.storage import scenes

TRAIN = {"task": "causal_lm", "batch": {"size": 4, "micro_size": 2}, "steps": 10}


def publish(database: Database, claimed: Claim, step: int, value: float | None = None) -> None:
    with database.jobs() as session:
        assert checkpoints.publish(
            session,
            claimed.assignment_id,
            claimed.token,
            step=step,
            location=f"jobs/{claimed.job_id}/{claimed.attempt_number}/step-{step:08d}",
            bytes=10,
            sha256="0" * 64,
            final=False,
            value=value,
        )
        checkpoints.prune(session, claimed.job_id, keep_last=2)


def steps(database: Database, job_id: str) -> list[int]:
    with database.read_jobs() as session:
        return [row.step for row in checkpoints.of_job(session, job_id)]


def again(database: Database, claimed: Claim) -> Claim:
    """Start the next attempt of a job."""
    scenes.end(database, claimed, Reason.KILLED)
    scenes.release(database, claimed)
    scenes.skip_backoff(database, claimed.job_id)
    return scenes.start(database, claimed.job_id)


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([3.0, 1.0, 2.0, 4.0], [4, 3, 2]),
        ([1.0, 1.0, 1.0, 1.0], [4, 3, 1]),
        ([math.nan, None, -math.inf, None], [4, 3]),
        ([5.0, math.nan, 4.0, None], [4, 3]),
    ],
)
def test_the_best_outlives_the_newest_and_of_equals_the_earliest(
    database: Database, values: list[float | None], kept: list[int]
) -> None:
    claimed = scenes.run(database)
    for step, value in enumerate(values, start=1):
        publish(database, claimed, step, value)
    assert steps(database, claimed.job_id) == kept


def test_the_best_of_an_earlier_attempt_stays(database: Database) -> None:
    claimed = scenes.run(database)
    publish(database, claimed, 10, 0.5)
    publish(database, claimed, 20, 0.7)
    claimed = again(database, claimed)
    for step in (30, 40, 50):
        publish(database, claimed, step, 0.6)
    assert steps(database, claimed.job_id) == [50, 40, 10]


def test_a_name_means_the_newest_a_step_or_the_best(database: Database) -> None:
    claimed = scenes.run(database)
    publish(database, claimed, 10, 0.5)
    publish(database, claimed, 20, 0.7)
    claimed = again(database, claimed)
    publish(database, claimed, 20, 0.8)

    def found(which: int | str | None) -> tuple[int, int] | None:
        with database.read_jobs() as session:
            row = checkpoints.named(session, JobCheckpoint(claimed.job_id, which))  # type: ignore[arg-type]
            return None if row is None else (row.attempt, row.step)

    assert found(None) == (2, 20)
    assert found(20) == (2, 20), "the later attempt's"
    assert found("best") == (1, 10)
    assert found(30) is None


def test_a_checkpoint_of_a_later_attempt_is_newer_also_at_an_earlier_step(
    database: Database,
) -> None:
    """A later attempt goes on from an earlier step if the newest checkpoint is damaged."""
    claimed = scenes.run(database)
    publish(database, claimed, 20)
    claimed = again(database, claimed)
    publish(database, claimed, 10)
    claimed = again(database, claimed)
    assert [one.step for one in claimed.published] == [10, 20]


def test_without_values_there_is_no_best(database: Database) -> None:
    claimed = scenes.run(database)
    publish(database, claimed, 10)
    with database.read_jobs() as session:
        assert checkpoints.best(checkpoints.of_job(session, claimed.job_id)) is None


@pytest.mark.parametrize(("which", "step"), [("", 20), ("@10", 10), ("@best", 10), ("@30", None)])
def test_a_claim_brings_the_other_jobs_checkpoint_to_start_from(
    database: Database, which: str, step: int | None
) -> None:
    source = scenes.run(database)
    publish(database, source, 10, 0.5)
    publish(database, source, 20, 0.7)
    scenes.end(database, source, Reason.SUCCEEDED)
    scenes.release(database, source)
    train = {**TRAIN, "init_from": f"job:{source.job_id}{which}"}
    target = scenes.submit(database, kind="train", script=None, train=train)
    claimed = scenes.start(database, target)
    location = None if step is None else f"jobs/{source.job_id}/1/step-{step:08d}"
    assert (claimed.init, claimed.published) == (location, [])


def test_a_job_that_resumes_does_not_start_from_first_weights(database: Database) -> None:
    source = scenes.run(database)
    publish(database, source, 10)
    scenes.end(database, source, Reason.SUCCEEDED)
    scenes.release(database, source)
    train = {**TRAIN, "init_from": f"job:{source.job_id}"}
    claimed = scenes.start(
        database, scenes.submit(database, kind="train", script=None, train=train)
    )
    assert claimed.init is not None
    publish(database, claimed, 5)
    claimed = again(database, claimed)
    assert ([each.step for each in claimed.published], claimed.init) == ([5], None)
