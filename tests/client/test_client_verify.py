"""``lockstep verify``: invalid use, and the cleanup of its jobs after an early end.

Not here: the verdict (``tests.domain.test_verify``), real runs by the service
(``tests.e2e.test_verify``).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.views import JobView, Page
from tests.client import examples
from tests.client.server import Answer, ReplayServer, problem, view
from tests.client.terminal import CommandLine

JOB = f"/v1/jobs/{examples.ID}"


def written(folder: Path) -> str:
    file = folder / "job.json"
    file.write_text(json.dumps(examples.SPEC))
    return str(file)


def serve(server: ReplayServer, job: JobView) -> None:
    """Serve this job for every run."""
    server.on("POST", "/v1/jobs/plan", examples.plan_view())
    server.on("POST", "/v1/jobs", view(job, 201))
    server.on("GET", "/v1/nodes", Page(items=[examples.node()]))
    server.on("GET", "/v1/jobs", examples.listed(items=[job]))
    server.on("GET", JOB, job)
    server.on("POST", f"{JOB}/cancel", job)
    server.on("DELETE", JOB, Answer(204))


def test_a_run_that_fails_ends_it_and_its_jobs_are_deleted(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    serve(server, examples.failed())
    said = lockstep("verify", written(tmp_path))
    assert (said.code, said.out) == (1, "")
    assert "the run 1x8 ended as failed (user_error: rank 1 raised ValueError)" in said.err
    submitted = server.requests("POST", "/v1/jobs")
    assert len(submitted) == len(server.requests("DELETE", JOB)) == 1
    label = submitted[0].json()["labels"]["verify-run"]
    assert server.requests("GET", "/v1/jobs")[0].query["label"] == [f"verify-run={label}"]


def test_its_jobs_stay_on_request(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    serve(server, examples.failed())
    assert lockstep("verify", written(tmp_path), "--keep").code == 1
    assert server.requests("DELETE", JOB) == []


def test_a_run_that_takes_too_long_is_cancelled_and_killed(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    serve(server, examples.job(JobState.RUNNING))
    cancelled = examples.job(JobState.CANCELLED)
    server.on("GET", JOB, *[view(examples.job(JobState.RUNNING))] * 2, view(cancelled))
    said = lockstep("verify", written(tmp_path), "--wait-seconds", "0")
    assert said.code == 124
    queries = [asked.query for asked in server.requests("POST", f"{JOB}/cancel")]
    assert queries == [{}, {"now": ["true"]}]
    assert len(server.requests("DELETE", JOB)) == 1


def test_a_job_that_is_refused_in_every_layout_is_reported(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    refused = Outcome.of(Reason.BAD_SPEC, "loss() is a mean")
    serve(server, examples.job(JobState.FAILED, outcome=refused))
    said = lockstep("verify", written(tmp_path), "--layouts", "1x8,2x4", "-o", "json")
    assert said.code == 1
    found = json.loads(said.out)
    assert [run["refusal"] for run in found["runs"]] == ["loss() is a mean"] * 2
    assert (found["agrees"], found["complete"], found["reference"]) == (False, True, None)


def test_a_layout_that_the_service_refuses_is_refused_before_the_first_run(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    serve(server, examples.succeeded())
    refusal = problem(422, "invalid", "9 devices are asked for, and the largest node has 2")
    server.on("POST", "/v1/jobs/plan", view(examples.plan_view()), refusal)
    said = lockstep("verify", written(tmp_path), "--layouts", "1x8,9x1")
    assert said.code == 1
    assert "9 devices are asked for" in said.err
    assert server.requests("POST", "/v1/jobs") == []


def test_ranks_that_no_node_has_are_left_out_of_the_default_layouts(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    serve(server, examples.failed())
    said = lockstep("verify", written(tmp_path))
    most = len(examples.node().devices)
    assert most == 2
    assert "the largest node has 2 devices, so the layouts are 1x8, 2x4, 2x2" in said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--layouts", "1x8"], "--layouts: expected at least two different layouts"),
        (["--steps", "3"], "--steps: expected at least 4, got 3"),
    ],
)
def test_wrong_use_is_refused(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path, words: list[str], message: str
) -> None:
    said = lockstep("verify", written(tmp_path), *words)
    assert said.code == 2
    assert message in said.err
    assert server.asked == []
