"""Effect of the end of an attempt on its job, on both databases."""

from __future__ import annotations

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.life.retrying import FRUITLESS_MAX
from lockstep.domain.training.plan import BatchPlan
from lockstep.storage.attempts import attempts, checkpoints, events
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from tests.storage import scenes


def keep(database: Database, claimed: Claim, step: int) -> None:
    with database.jobs() as session:
        assert checkpoints.publish(
            session,
            claimed.assignment_id,
            claimed.token,
            step=step,
            location=f"c/{step}",
            bytes=1,
            sha256="0" * 64,
            final=False,
        )


def again(database: Database, claimed: Claim, reason: Reason, **details: object) -> Claim:
    """End an attempt for a reason that is retried, and claim the next one."""
    assert scenes.end(database, claimed, reason, **details)
    scenes.release(database, claimed)
    scenes.skip_backoff(database, claimed.job_id)
    return scenes.start(database, claimed.job_id)


def outcome_of(database: Database, job_id: str) -> Outcome:
    return Outcome.model_validate(scenes.job_of(database, job_id).outcome)


SCRIPT = {"kind": "script", "script": {"command": ["true"]}, "train": None}


# -- progress
# --------------------------------------------------------------------------------------------------


def test_a_checkpoint_published_since_the_last_failure_starts_the_count_afresh(
    database: Database,
) -> None:
    claimed = scenes.run(database, retry={"max": 1})
    for step in (50, 100, 150):
        keep(database, claimed, step)
        claimed = again(database, claimed, Reason.KILLED)
        job = scenes.job_of(database, claimed.job_id)
        assert (job.charged_attempts, job.progress_step) == (1, step)
    scenes.end(database, claimed, Reason.KILLED)
    assert scenes.state_of(database, claimed.job_id) is JobState.FAILED


def test_steps_that_no_checkpoint_kept_do_not_help_a_train_job(database: Database) -> None:
    claimed = scenes.run(database, retry={"max": 1})
    claimed = again(database, claimed, Reason.KILLED, last_step=10)
    scenes.end(database, claimed, Reason.KILLED, last_step=19)
    assert scenes.state_of(database, claimed.job_id) is JobState.FAILED


def test_the_progress_of_a_script_comes_from_its_metrics(database: Database) -> None:
    claimed = scenes.run(database, retry={"max": 1}, **SCRIPT)
    for last_step in (10, 20, 30):
        claimed = again(database, claimed, Reason.KILLED, last_step=last_step)
    scenes.end(database, claimed, Reason.KILLED, last_step=30)
    assert scenes.state_of(database, claimed.job_id) is JobState.FAILED


def test_a_retry_is_explained_in_the_event_and_in_the_jobs_outcome(database: Database) -> None:
    claimed = scenes.run(database, retry={"max": 2}, **SCRIPT)
    claimed = again(database, claimed, Reason.KILLED, last_step=10)
    assert outcome_of(database, claimed.job_id).message == "it ended: killed; retry 1 of 2"
    claimed = again(database, claimed, Reason.KILLED, last_step=20)
    with database.read_jobs() as session:
        messages = [
            event.message
            for event in events.page(session, claimed.job_id, limit=100)
            if event.kind == "requeued"
        ]
    expected = (
        "it ended: killed; retry 1 of 2: the count is reset, because the job advanced from step "
        "10 to step 20"
    )
    assert messages[-1] == outcome_of(database, claimed.job_id).message == expected


def test_a_job_whose_budget_is_used_up_has_that_message(database: Database) -> None:
    claimed = scenes.run(database, retry={"max": 0})
    scenes.end(database, claimed, Reason.KILLED)
    message = outcome_of(database, claimed.job_id).message
    assert (
        message
        == "it ended: killed; not tried again: an attempt got no further, and retry.max is 0"
    )


# -- spinning
# --------------------------------------------------------------------------------------------------


def test_a_job_that_repeatedly_stops_its_own_launcher_is_given_up(database: Database) -> None:
    claimed = scenes.run(database)
    for _ in range(FRUITLESS_MAX - 1):
        claimed = again(database, claimed, Reason.SHUTDOWN)
    scenes.end(database, claimed, Reason.SHUTDOWN)
    job = scenes.job_of(database, claimed.job_id)
    assert (job.state, job.charged_attempts, job.attempt_count) == (
        JobState.FAILED,
        0,
        FRUITLESS_MAX,
    )
    assert "30 attempts in a row ended early" in outcome_of(database, claimed.job_id).message


# -- the job's own fault
# -------------------------------------------------------------------------------------------


def test_failures_on_three_nodes_after_one_step_end_the_job(
    database: Database,
) -> None:
    claimed = scenes.run(database, retry={"max": 9})
    for node in ("n1", "n2"):
        claimed = again(database, claimed, Reason.HOST_OUT_OF_MEMORY, node=node, last_step=7)
    scenes.end(database, claimed, Reason.HOST_OUT_OF_MEMORY, node="n3", last_step=7)
    job = scenes.job_of(database, claimed.job_id)
    assert (job.state, job.reason, job.stuck_nodes) == (
        JobState.FAILED,
        "host_out_of_memory",
        ["n1", "n2", "n3"],
    )
    told = outcome_of(database, claimed.job_id)
    assert "failed on 3 nodes (n1, n2, n3) after the same step" in told.message
    assert "after step 7" in told.advice


# -- memory
# --------------------------------------------------------------------------------------------------


def test_out_of_memory_halves_the_micro_batch_down_to_one_sample(
    database: Database,
) -> None:
    claimed = scenes.run(database, retry={"max": 0})  # 64 in micro-batches of 8 on 2 ranks
    sizes = []
    while scenes.state_of(database, claimed.job_id) is not JobState.FAILED:
        assert claimed.plan is not None
        plan = BatchPlan.model_validate(claimed.plan)
        sizes.append((plan.batch_size, plan.micro_batch_size, plan.accumulation_steps))
        scenes.end(database, claimed, Reason.OUT_OF_MEMORY)
        scenes.release(database, claimed)
        scenes.skip_backoff(database, claimed.job_id)
        if scenes.state_of(database, claimed.job_id) is JobState.QUEUED:
            claimed = scenes.start(database, claimed.job_id)
    assert sizes == [(64, 8, 4), (64, 4, 8), (64, 2, 16), (64, 1, 32)]
    with database.read_jobs() as session:
        told = [
            event.message
            for event in events.page(session, claimed.job_id, limit=100)
            if event.kind == "plan"
        ]
    assert told[0] == (
        "out of memory: the next attempt runs micro-batches of 4 instead of 8; the batch stays 64"
    )
    assert len(told) == 3


def test_the_plan_that_the_ranks_settled_is_the_one_that_is_halved(database: Database) -> None:
    claimed = scenes.run(database)
    settled = {
        "batch_size": 64,
        "micro_batch_size": 6,
        "accumulation_steps": 6,
        "world_size": 2,
        "samples": 1797,
    }
    with database.jobs() as session:
        assert attempts.settle_plan(session, claimed.assignment_id, claimed.token, settled)
    next_one = again(database, claimed, Reason.OUT_OF_MEMORY)
    assert next_one.plan is not None
    assert (next_one.plan["micro_batch_size"], next_one.plan["samples"]) == (3, 1797)
    assert scenes.job_of(database, claimed.job_id).plan == next_one.plan


def test_a_script_that_runs_out_of_memory_fails(database: Database) -> None:
    claimed = scenes.run(database, **SCRIPT)
    scenes.end(database, claimed, Reason.OUT_OF_MEMORY)
    assert scenes.state_of(database, claimed.job_id) is JobState.FAILED


def test_a_micro_batch_that_was_never_settled_cannot_be_halved(database: Database) -> None:
    """With micro_size: auto, the search itself ran out of memory at one sample."""
    train = {
        "task": "image_classification",
        "batch": {"size": 64, "micro_size": "auto"},
        "steps": 20,
    }
    claimed = scenes.run(database, train=train)
    scenes.end(database, claimed, Reason.OUT_OF_MEMORY)
    assert scenes.state_of(database, claimed.job_id) is JobState.FAILED
