"""``cancel``, ``pause``, ``resume`` and ``requeue`` of several jobs."""

from __future__ import annotations

from lockstep.domain.life.lifecycle import JobState
from tests.client import examples
from tests.client.server import ReplayServer, problem
from tests.client.terminal import CommandLine


def test_an_ended_job_does_not_keep_the_others_running(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    for name in "ac":
        server.on("POST", f"/v1/jobs/{name}/cancel", problem(409, "conflict", f"{name} has ended"))
        server.on("GET", f"/v1/jobs/{name}", examples.succeeded())
    server.on("POST", "/v1/jobs/b/cancel", examples.job(JobState.CANCELLED))
    said = lockstep("cancel", "a", "b", "c")
    assert (said.code, said.out.split("  ")[-1]) == (1, "cancelled\n")
    assert [line for line in said.err.splitlines() if "ended" in line] == [
        "a has ended",
        "lockstep: c has ended",
    ]
