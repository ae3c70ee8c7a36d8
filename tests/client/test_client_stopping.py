"""``cancel``, ``pause``, ``resume`` and ``requeue`` of several jobs."""

from __future__ import annotations

from lockstep.domain.life.lifecycle import JobState
from tests.client import examples
from tests.client.server import ReplayServer, problem
from tests.client.terminal import CommandLine


def test_an_ended_job_does_not_keep_the_others_running(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    ids = {name: f"{examples.ID[:-1]}{name}" for name in "abc"}
    for name in "ac":
        refused = problem(409, "conflict", f"{name} has ended")
        server.on("POST", f"/v1/jobs/{ids[name]}/cancel", refused)
        server.on("GET", f"/v1/jobs/{ids[name]}", examples.succeeded())
    server.on("POST", f"/v1/jobs/{ids['b']}/cancel", examples.job(JobState.CANCELLED))
    said = lockstep("cancel", *ids.values())
    assert (said.code, said.out.split("  ")[-1]) == (1, "cancelled\n")
    assert [line for line in said.err.splitlines() if "ended" in line] == [
        "a has ended",
        "lockstep: c has ended",
    ]


def test_cancel_can_wait_until_nothing_runs(lockstep: CommandLine, server: ReplayServer) -> None:
    job = f"/v1/jobs/{examples.ID}"
    stopping = examples.job(JobState.RUNNING, intent="cancel")
    server.on("GET", "/v1/jobs/a", examples.job())
    server.on("POST", f"{job}/cancel", stopping)
    server.on("GET", job, stopping, examples.job(JobState.CANCELLED))
    said = lockstep("cancel", "a", "--wait")
    assert (said.code, said.out.split("  ")[-1]) == (0, "cancelled\n")
