"""Limits of projects, of people in them, and of the service, at a submit and a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.life.outcomes import Reason
from lockstep.storage.people.limits import ServiceLimits
from tests.api.conftest import SCRIPT, Api, problem
from tests.api.test_people import made, program, send
from tests.storage import scenes
from tests.storage.scenes import at_once


def test_limits_of_a_project_point_into_the_spec(api: Api) -> None:
    limits = {"gpus_per_job_max": 2, "queued_max": 1, "priority_max": 50, "timeout_max_seconds": 60}
    made(send(api, "POST", "/v1/projects", {"name": "nlp", "limits": limits}))
    spec = {**SCRIPT, "project": "nlp", "resources": {"gpus": 3}, "priority": 51}
    for path in ("/v1/jobs", "/v1/jobs/plan"):
        found = problem(send(api, "POST", path, spec), 422, "invalid")
        assert {error["pointer"] for error in found["errors"]} == {
            "/resources/gpus",
            "/priority",
            "/timeout_seconds",
        }
    default = {**dict.fromkeys(limits), "queued_max": 1, "timeout_default_seconds": 30}
    made(send(api, "PATCH", "/v1/projects/nlp", {"limits": default}), 200)
    job = made(send(api, "POST", "/v1/jobs", {**SCRIPT, "project": "nlp"}))
    spec = send(api, "GET", f"/v1/jobs/{job['id']}/spec").json()["spec"]
    assert spec["timeout_seconds"] == 30
    shown = send(api, "GET", f"/v1/jobs/{job['id']}").json()
    assert shown["limit"] == {"seconds": 30, "source": "project"}
    late = {**SCRIPT, "project": "nlp", "stop_grace_seconds": 30}
    for path in ("/v1/jobs", "/v1/jobs/plan"):
        (error,) = problem(send(api, "POST", path, late), 422, "invalid")["errors"]
        assert error["pointer"] == "/stop_grace_seconds"
        assert error["message"] == "expected less than the job's time limit, 30 s, got 30 s"
    for path in ("/v1/jobs", "/v1/jobs/plan"):
        full = problem(send(api, "POST", path, {**SCRIPT, "project": "nlp"}), 409, "conflict")
        assert full["detail"] == "1 jobs of project nlp wait, and the limit is 1"


def test_a_person_has_limits_in_a_project(api: Api) -> None:
    limits = {"queued_per_user_max": 1, "gpus_per_user_max": 2}
    made(send(api, "POST", "/v1/projects", {"name": "nlp", "limits": limits}))
    secrets = []
    for name in ("ci", "cd"):
        _, secret = program(api, name)
        made(send(api, "PUT", f"/v1/projects/nlp/members/{name}", {"role": "member"}), 200)
        secrets.append(secret)
    spec = {**SCRIPT, "project": "nlp"}
    for secret in secrets:
        made(send(api, "POST", "/v1/jobs", spec, token=secret))
        full = problem(send(api, "POST", "/v1/jobs", spec, token=secret), 409, "conflict")
        assert full["detail"].endswith("in project nlp wait, and the limit is 1")
    large = {**spec, "resources": {"gpus": 3}}
    found = problem(send(api, "POST", "/v1/jobs/plan", large), 422, "invalid")
    assert found["errors"][0]["message"] == (
        "project nlp allows at most 2 devices of one person in use at one time, got 3"
    )


@pytest.mark.parametrize(
    ("service", "own", "project", "expected"),
    [
        ({}, None, None, None),
        ({}, 9, 5, (9, "job")),
        ({"timeout_default_seconds": 7}, None, 5, (5, "project")),
        ({"timeout_default_seconds": 7}, None, None, (7, "service")),
        ({"timeout_max_seconds": 6, "timeout_default_seconds": 7}, None, None, (6, "service")),
    ],
)
def test_a_time_limit_says_where_it_comes_from(
    api: Api,
    service: dict[str, float],
    own: float | None,
    project: float | None,
    expected: tuple[float, str] | None,
) -> None:
    api.http.app.state.parts = replace(  # type: ignore[attr-defined]  # set by the app
        api.http.app.state.parts,  # type: ignore[attr-defined]
        limits=ServiceLimits(
            service.get("timeout_default_seconds"), service.get("timeout_max_seconds")
        ),
    )
    limits = {"timeout_default_seconds": project}
    made(send(api, "POST", "/v1/projects", {"name": "nlp", "limits": limits}))
    spec = {**SCRIPT, "project": "nlp", "timeout_seconds": own}
    found = None if expected is None else dict(zip(("seconds", "source"), expected, strict=True))
    assert made(send(api, "POST", "/v1/jobs/plan", spec), 200)["limit"] == found
    job = made(send(api, "POST", "/v1/jobs", spec))
    assert job["limit"] == found
    assert send(api, "GET", f"/v1/jobs/{job['id']}").json()["limit"] == found


def test_a_team_has_a_default_time_limit_and_a_person_alone_has_none(api: Api) -> None:
    assert made(send(api, "POST", "/v1/jobs", SCRIPT))["limit"] is None
    made(send(api, "POST", "/v1/projects", {"name": "nlp"}))
    program(api)
    made(send(api, "PUT", "/v1/projects/nlp/members/ci", {"role": "member"}), 200)
    job = made(send(api, "POST", "/v1/jobs", SCRIPT))
    assert job["limit"] == {"seconds": 86_400, "source": "service"}
    longest = {"limits": {"timeout_max_seconds": 60}}
    made(send(api, "PATCH", "/v1/projects/nlp", longest), 200)
    job = made(send(api, "POST", "/v1/jobs", {**SCRIPT, "project": "nlp"}))
    assert job["limit"] == {"seconds": 60, "source": "service"}


@pytest.mark.parametrize("limit", ["queued_max", "queued_per_user_max"])
def test_many_submits_at_once_keep_the_limit_of_waiting_jobs(api: Api, limit: str) -> None:
    made(send(api, "POST", "/v1/projects", {"name": "nlp", "limits": {limit: 3}}))
    submits = [lambda: send(api, "POST", "/v1/jobs", {**SCRIPT, "project": "nlp"}).status_code] * 8
    assert sorted(at_once(*submits)) == [201] * 3 + [409] * 5


@pytest.mark.parametrize("limit", ["queued_max", "queued_per_user_max"])
def test_resumes_keep_the_limit_of_waiting_jobs_and_returns_from_devices_do_not(
    api: Api, limit: str
) -> None:
    made(send(api, "POST", "/v1/projects", {"name": "nlp", "limits": {limit: 1}}))
    spec, paused = {**SCRIPT, "project": "nlp"}, []
    for _ in range(3):
        paused.append(made(send(api, "POST", "/v1/jobs", spec))["id"])
        made(send(api, "POST", f"/v1/jobs/{paused[-1]}/pause"), 202)
    resumes = [
        lambda job_id=job_id: send(api, "POST", f"/v1/jobs/{job_id}/resume").status_code
        for job_id in paused
    ]
    codes = at_once(*resumes)
    assert sorted(codes) == [200, 409, 409]
    scenes.add_node(api.database)
    claim = scenes.claimed_on(api.database, paused[codes.index(200)])
    send(api, "POST", f"/v1/jobs/{claim.job_id}/pause")
    made(send(api, "POST", "/v1/jobs", spec))
    found = problem(send(api, "POST", f"/v1/jobs/{claim.job_id}/resume"), 409, "conflict")
    assert found["detail"].endswith("wait, and the limit is 1")
    made(send(api, "POST", f"/v1/jobs/{claim.job_id}/requeue"), 202)
    scenes.end(api.database, claim, Reason.REQUEUED)
    assert scenes.state_of(api.database, claim.job_id) is JobState.QUEUED
