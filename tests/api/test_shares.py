"""Shares of projects, and why a job waits, for readers of some projects."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.storage.jobs.waiting import Waiting, set_waiting
from lockstep.storage.people import projects
from tests.api.conftest import SCRIPT, Api
from tests.api.test_access import Team
from tests.api.test_people import made, send
from tests.storage import scenes


@pytest.fixture
def team(api: Api) -> Team:
    return Team(api)


def test_weights_divide_the_ready_devices_among_the_projects_with_jobs(team: Team) -> None:
    team.api.register("node-a", 6)
    with team.api.database.jobs() as session:
        projects.ensure(session, "idle")
    made(send(team.api, "PATCH", "/v1/projects/nlp", {"weight": 2}), 200)
    found = team.ask("admin", "GET", "/v1/shares").json()
    shown = {each["project"]: each for each in found["items"]}
    assert found["devices"] == 6
    assert {name: each["entitled"] for name, each in shown.items()} == {
        "default": None,
        "idle": None,
        "nlp": 4.0,
        "vision": 2.0,
    }
    assert shown["nlp"]["people"] == [{"user": "ada", "in_use": 0, "average": 0.0, "queued": 1}]
    mine = team.ask("member", "GET", "/v1/shares").json()["items"]
    assert {each["project"]: each["entitled"] for each in mine} == {"default": None, "nlp": 4.0}


def test_use_is_that_of_now_and_of_the_last_days(api: Api) -> None:
    claim = scenes.run(api.database)
    (share,) = (
        each
        for each in api.http.get("/v1/shares").json()["items"]
        if each["project"] == scenes.job_of(api.database, claim.job_id).project
    )
    assert (share["in_use"], share["queued"], share["weight"]) == (2, 0, 1.0)
    assert 0 <= share["average"] < 0.01


def test_why_names_the_jobs_ahead_that_the_reader_may_read_and_counts_all(team: Team) -> None:
    own, foreign = team.job("nlp"), team.waiting["vision"]
    ahead = team.waiting["nlp"]
    facts = {"job": foreign, "needs": 1}
    reason = f"behind job {foreign}, which needs the same devices"
    with team.api.database.jobs() as session:
        set_waiting(
            session,
            {
                foreign: Waiting(1, "waits for a free device", "behind", {"job": None}),
                ahead: Waiting(2, reason, "behind", facts),
                own: Waiting(3, reason, "behind", facts),
            },
        )
    found: dict[str, Any] = team.ask("member", "GET", f"/v1/jobs/{own}/why").json()
    assert foreign not in str(found)
    assert found["queue"]["reason"] == (
        "behind a job of another project, which needs the same devices"
    )
    assert ([each["id"] for each in found["ahead"]], found["ahead_count"]) == ([ahead], 2)
    assert found["start"].startswith("no start is known: ")
    whole = team.ask("admin", "GET", f"/v1/jobs/{own}/why").json()
    assert [each["id"] for each in whole["ahead"]] == [foreign, ahead]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("needs", "it starts once such a node is ready"),
        ("budget", "it starts once less was used in the last 30 days, or the budget is raised"),
        ("a code of a newer version", "the scheduler has not processed it yet"),
    ],
)
def test_why_says_why_no_start_is_known(api: Api, code: str, words: str) -> None:
    job = api.job_id()
    with api.database.jobs() as session:
        set_waiting(session, {job: Waiting(1, "waits", code, {})})
    found = api.http.get(f"/v1/jobs/{job}/why").json()
    assert found["start"] == f"no start is known: {words}"


@pytest.mark.parametrize(
    ("place", "code", "facts", "words"),
    [
        (201, "behind", {"job": None}, "starts are predicted for the first 200 jobs"),
        (199, "behind", {"job": None}, "after the 200 jobs and 100 times of a prediction"),
        (1, "limit", {"needs": 8, "gpus_max": 4}, "it can never start: it needs 8 devices"),
        (1, "limit", {"needs": 4, "gpus_max": 4}, "enough of those devices are given back"),
    ],
)
def test_a_bound_is_named_as_the_reason(
    api: Api, place: int, code: str, facts: dict[str, Any], words: str
) -> None:
    job = api.job_id()
    with api.database.jobs() as session:
        set_waiting(session, {job: Waiting(place, "waits", code, facts)})
    assert words in api.http.get(f"/v1/jobs/{job}/why").json()["start"]


def test_the_start_of_a_hold_is_the_one_that_its_reason_names(api: Api) -> None:
    job = api.job_id()
    facts = {"starts_at": 4_070_908_800, "is_sure": True, "nodes": ["n"], "needs": 2, "type": "cpu"}
    with api.database.jobs() as session:
        set_waiting(session, {job: Waiting(1, "holds n", "holds", facts)})
    found = api.http.get(f"/v1/jobs/{job}/why").json()
    assert found["start"] == "it starts about 2099-01-01 00:00 UTC"
    assert found["queue"]["estimated_start"] == "2099-01-01T00:00:00Z"


def test_a_job_that_does_not_wait_has_no_reason(api: Api) -> None:
    claim = scenes.run(api.database)
    found = api.http.get(f"/v1/jobs/{claim.job_id}/why").json()
    assert (found["state"], found["queue"], found["start"]) == ("running", None, None)
    assert api.http.post("/v1/jobs", json=SCRIPT).status_code == 201
