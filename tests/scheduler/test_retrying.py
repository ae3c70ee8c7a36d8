"""Retries of a job, from the end of one attempt to the claim of the next, on both databases."""

from __future__ import annotations

from typing import Any

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.life.retrying import FRUITLESS_MAX
from lockstep.domain.training.plan import BatchPlan
from lockstep.storage.attempts import attempts, checkpoints
from lockstep.storage.attempts.attempts import Claim
from tests.scheduler.world import World

TRAIN: dict[str, Any] = {
    "kind": "train",
    "script": None,
    "train": {"task": "image_classification", "batch": {"size": 64, "micro_size": 4}, "steps": 100},
}


def end(world: World, claim: Claim, reason: Reason, **details: object) -> None:
    with world.database.jobs() as session:
        outcome = Outcome.of(reason, f"it ended: {reason}", node=claim.node_name, **details)
        assert attempts.end(
            session, claim.assignment_id, claim.token, outcome, timings=world.timings
        )
        assert attempts.release(session, claim.assignment_id, claim.node_name)


def next_claim(world: World, job: str) -> Claim:
    world.past_backoff(job)
    assert world.run_one().placed == 1
    return world.claim(job)


def test_a_job_that_ran_out_of_memory_resumes_with_smaller_micro_batches(
    world: World,
) -> None:
    world.node("n", 2)
    job = world.submit(2, retry={"max": 0}, **TRAIN)
    plans = []
    for _ in range(3):
        claim = next_claim(world, job)
        assert claim.plan is not None
        plans.append(BatchPlan.model_validate(claim.plan))
        end(world, claim, Reason.OUT_OF_MEMORY)
    assert [plan.sentence() for plan in plans] == [
        "64 = 2 ranks × 4 samples × 8 accumulation steps",
        "64 = 2 ranks × 2 samples × 16 accumulation steps",
        "64 = 2 ranks × 1 sample × 32 accumulation steps",
    ]
    assert world.state(job) is JobState.FAILED


def test_a_job_that_stops_its_own_launcher_backs_off_and_then_ends(
    world: World,
) -> None:
    world.node("n")
    job = world.submit()
    for number in range(FRUITLESS_MAX):
        end(world, next_claim(world, job), Reason.SHUTDOWN)
        if number == 10:
            world.run_one()
            waits = world.job(job).wait_reason
            assert waits is not None
            assert waits.startswith("retries in ")
    assert (world.state(job), world.job(job).attempt_count) == (JobState.FAILED, FRUITLESS_MAX)


def test_a_daily_failure_is_retried_while_new_checkpoints_are_kept(
    world: World,
) -> None:
    world.node("n")
    job = world.submit(retry={"max": 1}, **TRAIN)
    for day in range(1, 6):
        claim = next_claim(world, job)
        with world.database.jobs() as session:
            assert checkpoints.publish(
                session,
                claim.assignment_id,
                claim.token,
                step=10 * day,
                location=f"c{day}",
                bytes=1,
                sha256="0" * 64,
                final=False,
            )
        end(world, claim, Reason.KILLED, last_step=10 * day + 5)
        assert (world.state(job), world.job(job).charged_attempts) == (JobState.QUEUED, 1)
    end(world, next_claim(world, job), Reason.KILLED, last_step=70)
    assert world.state(job) is JobState.FAILED
