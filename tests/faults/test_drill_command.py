"""``lockstep drill`` against a real service: it ends the named target, and its report is correct.

Not here: its refusals, and the text of its report (``tests/client/test_client_drill.py``).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockstep.client.drills.report import PROGRAMS, DrillReport, Fault
from tests.harness.drills import Drill
from tests.harness.service import Service, service

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def lockstep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    yield from service(tmp_path_factory.mktemp("drilled"), LOCKSTEP_CPU_SLOTS="2")


def drilled(lockstep: Service, fault: Fault, *, steps: int) -> DrillReport:
    """Return the report of one drill, which must pass."""
    done = lockstep.run(
        "drill", fault, "--steps", str(steps), "--within-seconds", "120", "--json", timeout=570
    )
    assert done.returncode == 0, done.stdout + done.stderr + lockstep.service_logs()
    assert f"drill-{fault}-disturbed" in done.stderr
    report = DrillReport.model_validate_json(done.stdout)
    assert report.held
    assert (report.steps, report.steps_lost, report.steps_doubled, report.processes_left) == (
        steps,
        0,
        0,
        0,
    )
    assert (report.attempts, report.different) == (1 if fault in PROGRAMS else 2, [])
    for job_id in (report.undisturbed, report.disturbed):
        job = lockstep.job(job_id)
        assert (job["state"], job["labels"]["drill"]) == ("succeeded", fault)
    return report


# Two trainings and a service: two minutes that the other drills of a rank do not need.
@pytest.mark.drill
@pytest.mark.timeout(600)
def test_a_drill_kills_a_rank_and_shows_that_nothing_came_of_it(lockstep: Service) -> None:
    report = drilled(lockstep, "rank", steps=120)
    events = lockstep.events(report.disturbed)
    assert any("SIGKILL" in event["message"] for event in events)
    assert not any("SIGKILL" in event["message"] for event in lockstep.events(report.undisturbed))


@pytest.mark.drill
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("number", "fault", "detection", "recovery"),
    [
        ("F2", "launcher", 2.0, 15.0),
        # From the kill to the next stored step, with the program's start beside two busy ranks. The
        # limit of five seconds for the adoption by an agent is measured from its return, in
        # ``test_ranks``.
        ("F3", "agent", None, 15.0),
        ("F33", "api", None, 15.0),
        ("F7", "broker", None, 5.0),
        ("F25", "scheduler", None, 15.0),
    ],
)
def test_a_drill_of_each_program_holds(
    lockstep: Service,
    drill: Drill,
    number: str,
    fault: Fault,
    detection: float | None,
    recovery: float,
) -> None:
    drill.begin(number, f"lockstep drill {fault}", detection=detection, recovery=recovery)
    before = lockstep.program(PROGRAMS[fault]) if fault in PROGRAMS else None
    report = drilled(lockstep, fault, steps=400)
    drill.injected += 1
    if before is not None:
        assert lockstep.program(PROGRAMS[fault]).pid != before.pid
    for seen, seconds in (
        (drill.detections, report.noticed_seconds),
        (drill.recoveries, report.recovered_seconds),
    ):
        assert seconds is not None
        seen.append(seconds)
