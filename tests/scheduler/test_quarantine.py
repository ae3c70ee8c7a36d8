"""Nodes on which several jobs fail get no more work. On both databases."""

from __future__ import annotations

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.attempts import attempts, nodes
from lockstep.storage.series import series
from tests.scheduler.world import World


def fail(
    world: World, job: str, reason: Reason, *, node_failed: bool = True, **details: object
) -> str:
    """Claim the job's newest attempt and end it with a failure; return the node's name.

    The agent of the node observes the failure.
    """
    claim = world.claim(job)
    with world.database.jobs() as session:
        outcome = Outcome.of(reason, f"it ended: {reason}", node=claim.node_name, **details)
        part = claim.assignment_id, claim.token
        assert attempts.end(session, *part, outcome, timings=world.timings, node_failed=node_failed)
        assert attempts.release(session, claim.assignment_id, claim.node_name)
    world.past_backoff(job)
    return claim.node_name


def why(world: World, node: str) -> str | None:
    with world.database.read_jobs() as session:
        return next(row.quarantine for row in nodes.all_nodes(session) if row.name == node)


def test_a_node_that_fails_two_jobs_is_quarantined_until_resumed(world: World) -> None:
    world.node("bad", 1)
    first, second, third = (world.submit(retry={"max": 0}) for _ in range(3))
    for job in (first, second):
        world.run_one()
        assert fail(world, job, Reason.STORAGE) == "bad"
    assert world.run_one().quarantined == 1
    assert world.state(third) is JobState.QUEUED
    said = why(world, "bad")
    assert said is not None
    assert first in said
    assert second in said
    assert world.run_one().quarantined == 0
    with world.database.jobs() as session:
        nodes.resume(session, "bad")
    assert world.run_one().placed == 1
    assert why(world, "bad") is None


def test_failures_that_jobs_report_themselves_leave_the_node_in_service(world: World) -> None:
    world.node("n", 1)
    for reason in (
        Reason.STORAGE,
        Reason.STORAGE,
        Reason.LAUNCH_FAILED,
        Reason.DIVERGED,
        Reason.HOST_OUT_OF_MEMORY,
    ):
        job = world.submit(retry={"max": 0})
        world.run_one()
        fail(world, job, reason, node_failed=False)
    assert world.run_one().quarantined == 0
    assert why(world, "n") is None


def test_work_goes_to_the_sound_nodes(world: World) -> None:
    world.node("bad", 1)
    first, second = world.submit(retry={"max": 0}), world.submit(retry={"max": 0})
    for job in (first, second):
        world.run_one()
        fail(world, job, Reason.LAUNCH_FAILED)
    world.run_one()
    world.node("good", 1)
    third = world.submit()
    assert world.run_one().placed == 1
    assert world.assignments(third)[-1].node_name == "good"


def test_a_success_in_between_clears_the_node(world: World) -> None:
    world.node("n", 1)
    for reason in (Reason.STORAGE, Reason.SUCCEEDED, Reason.STORAGE):
        job = world.submit(retry={"max": 0})
        world.run_one()
        fail(world, job, reason)
    assert world.run_one().quarantined == 0


def test_one_job_cannot_put_a_node_into_quarantine(world: World) -> None:
    world.node("n", 1)
    job = world.submit(retry={"max": 9})
    for reason in (Reason.STORAGE, Reason.LAUNCH_FAILED, Reason.STORAGE):
        world.run_one()
        fail(world, job, reason)
    assert world.run_one().quarantined == 0


def test_a_node_that_goes_silent_with_all_its_jobs_is_not_quarantined(world: World) -> None:
    world.node("n", 4)
    jobs = [world.submit() for _ in range(4)]
    world.run_one()
    for job in jobs:
        world.claim(job)
    world.silence("n", 61)
    report = world.run_one()
    assert (report.lost, report.quarantined) == (4, 0)
    assert world.run_one().quarantined == 0


def test_an_outage_of_the_service_quarantines_no_node(world: World) -> None:
    for name in ("a", "b"):
        world.node(name, 2)
    jobs = [world.submit() for _ in range(4)]
    world.run_one()
    for job in jobs:
        world.claim(job)
    for name in ("a", "b"):
        world.silence(name, 300)
    world.no_cycle_for(301)
    assert world.run_one().spared == 4
    # The nodes return with the actions of their launchers: these stopped the ranks at their fences.
    for job in jobs:
        part = world.assignments(job)[-1]
        with world.database.jobs() as session:
            outcome = Outcome.of(
                Reason.CUT_OFF, "the lease was not renewed in time", node=part.node_name
            )
            assert attempts.end(session, part.id, part.token, outcome, timings=world.timings)
    assert world.run_one().quarantined == 0
    assert [world.job(job).charged_attempts for job in jobs] == [0, 0, 0, 0]


def test_nodes_that_are_lost_together_are_not_quarantined(world: World) -> None:
    """The network between them and the database was down, while the scheduler continued."""
    for round_ in range(2):
        for name in ("a", "b"):
            world.node(name, 8)
        jobs = [world.submit() for _ in range(4)]
        world.run_one()
        for job in jobs:
            world.claim(job)
        for name in ("a", "b"):
            world.silence(name, 61)
        assert world.run_one().lost >= 4, round_
        assert world.run_one().quarantined == 0


def test_a_job_that_loses_three_nodes_at_one_step_ends_without_quarantine(
    world: World,
) -> None:
    for name in ("a", "b", "c", "d"):
        world.node(name, 1)
    job = world.submit(retry={"max": 9})
    taken_down = []
    for _ in range(3):
        world.run_one()
        claim = world.claim(job)
        point = StepValues(step=7, time=1.0, values={"train/loss": 1.0})
        with world.database.series() as session:
            assert series.append(
                session,
                assignment_id=claim.assignment_id,
                token=claim.token,
                records=[point],
                offset_before=0,
                offset_after=1,
            )
        taken_down.append(claim.node_name)
        world.silence(claim.node_name, 61)
        assert world.run_one().lost == 1
        world.past_backoff(job)
    row = world.job(job)
    assert (row.state, row.reason) == (JobState.FAILED, "lost")
    assert row.outcome is not None
    assert row.outcome["last_step"] == 7
    assert (
        f"failed on 3 nodes ({', '.join(taken_down)}) after the same step" in row.outcome["message"]
    )
    assert len(set(taken_down)) == 3
    assert all(why(world, name) is None for name in taken_down)
