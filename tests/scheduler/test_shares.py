"""Holds, shares, limits and budgets of a cycle, on both databases, from rows to rows."""

from __future__ import annotations

from typing import Any

import uuid_utils
from sqlalchemy import select

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.scheduling.decide import HOLDS_MAX
from lockstep.domain.scheduling.state import WaitCode
from lockstep.storage.db.clock import now
from lockstep.storage.db.people_tables import LedgerRow, ProjectRow
from lockstep.storage.db.series_tables import ProgressRow
from lockstep.storage.db.tables import JobRow
from tests.scheduler.test_retrying import TRAIN
from tests.scheduler.world import World


def holds(world: World, jobs: list[str]) -> dict[str, tuple[dict[str, Any], float]]:
    rows = [world.job(job) for job in jobs]
    return {row.id: (row.hold, (row.wait_facts or {})["starts_at"]) for row in rows if row.hold}


def project(world: World, name: str, **fields: Any) -> None:
    with world.database.jobs() as session:
        session.add(ProjectRow(name=name, visibility="private", created_at=1.0, **fields))


def used(world: World, name: str, device_hours: float) -> None:
    """Add a use that has just ended to the ledger."""
    with world.database.jobs() as session:
        at = now(session)
        row = LedgerRow(
            **dict.fromkeys(("job_id", "job_name", "node_name", "device_type"), "x"),
            assignment_id=str(uuid_utils.uuid7()),
            attempt=1,
            project=name,
            actor="a",
            devices=10,
            placed_at=at - device_hours * 360,
            released_at=at,
            productive=device_hours * 3_600,
            repeated=0.0,
            idle=0.0,
        )
        session.add(row)


def test_thirty_small_jobs_start_beside_eight_gangs_and_no_hold_moves_later(world: World) -> None:
    for number in range(8):
        world.node(f"n{number}", 4)
    running = [world.submit(4, timeout_seconds=7_200) for _ in range(8)]
    assert world.run_one().placed == len(running)
    for number in range(8):
        world.node(f"n{number}", 8)
    gangs = [world.submit(8) for _ in range(8)]
    assert world.run_one().placed == 0
    first = holds(world, gangs)
    assert list(first) == gangs[:HOLDS_MAX]
    small = [world.submit(timeout_seconds=3_600) for _ in range(30)]
    assert world.run_one().placed == len(small)
    world.submit(priority=100)
    for _ in range(3):
        world.run_one()
        assert holds(world, gangs) == first
    assert {world.job(gang).wait_code for gang in gangs} == {WaitCode.HOLDS, WaitCode.BEHIND}


def test_a_hold_begins_at_the_end_that_the_speed_of_a_job_gives(world: World) -> None:
    world.node("n", 2)
    runs = world.submit(1, **TRAIN)
    world.run_one()
    world.claim(runs)
    with world.database.series() as session:
        at = now(session)
        steps = (world.job(runs).plan or {})["steps"]
        found = {"step": steps // 2, "first_step": 0, "first_time": at - 3_600.0}
        session.merge(ProgressRow(job_id=runs, seq=1, attempt=1, time=at, **found))
    gang = world.submit(2)
    world.run_one()
    facts = world.job(gang).wait_facts or {}
    assert (facts["is_sure"], facts["nodes"]) == (False, ["n"])
    assert 3_500 <= facts["starts_at"] - at <= 3_600 * steps / (steps // 2) - 3_600 + 900


def test_past_use_decides_between_projects_and_weights_count(world: World) -> None:
    world.node("n", 1)
    project(world, "heavy", weight=4.0)
    project(world, "light")
    used(world, "heavy", 200)
    used(world, "light", 100)
    light, heavy = world.submit(project="light"), world.submit(project="heavy")
    world.run_one()
    assert (world.state(heavy), world.state(light)) == (JobState.STARTING, JobState.QUEUED)
    used(world, "heavy", 1_000)
    world.node("m", 1)
    again = world.submit(project="heavy")
    world.run_one()
    assert (world.state(light), world.state(again)) == (JobState.STARTING, JobState.QUEUED)


def test_limits_and_budgets_of_a_project_apply(world: World) -> None:
    world.node("n", 8)
    project(world, "narrow", gpus_max=3)
    project(world, "spent", budget_gpu_hours=10.0, budget_action="hold")
    project(world, "warned", budget_gpu_hours=10.0, budget_action="warn")
    # A consequence that only a newer version knows is taken for the strictest.
    project(world, "newer", budget_gpu_hours=10.0, budget_action="pause")
    for name in ("spent", "warned", "newer"):
        used(world, name, 10)
    for name in ("narrow", "narrow", "spent", "warned", "newer"):
        world.submit(2, project=name)
    world.run_one()
    with world.database.read_jobs() as session:
        rows = session.execute(select(JobRow.project, JobRow.wait_code, JobRow.wait_reason))
        waits = {name: (code, reason) for name, code, reason in rows if code is not None}
    assert waits == {
        "narrow": (
            "limit",
            "project narrow has 2 of at most 3 devices in use, and the job needs 2",
        ),
        **{
            name: ("budget", f"project {name} has used 10 of its 10 device-hours of 30 days")
            for name in ("spent", "newer")
        },
    }
