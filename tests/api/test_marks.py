"""Labels, notes and stars of jobs: changed over HTTP, found by filters, and no part of a training."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from lockstep.broker.messages import WakeScheduler
from lockstep.domain import limits
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.rights import EVERY
from lockstep.storage.control import agreed_timings, snapshots
from lockstep.storage.db.listing_tables import JobLabelRow
from lockstep.storage.people import audit
from tests.api.conftest import TRAIN, Api, problem
from tests.storage import scenes


def marked(api: Api, job: str, **changes: Any) -> Any:
    response = api.http.patch(f"/v1/jobs/{job}", json=changes)
    assert response.status_code == 200, response.text
    return response.json()


def found(api: Api, text: str) -> list[str]:
    items = api.http.get("/v1/jobs", params={"filter": text}).json()["items"]
    return [job["id"] for job in items]


def test_marks_are_changed_and_found_and_the_spec_stays(api: Api) -> None:
    job = api.job_id({**TRAIN, "labels": {"team": "vision", "old": "1"}})
    spec = api.http.get(f"/v1/jobs/{job}/spec").json()
    plain = api.job_id(TRAIN)
    view = marked(api, job, labels={"old": None, "set": "mix"}, note="the baseline", starred=True)
    assert view["labels"] == {"team": "vision", "set": "mix"}
    assert (view["note"], view["starred"]) == ("the baseline", True)
    assert found(api, "label:mix starred:yes") == found(api, "label:team=vision") == [job]
    assert found(api, "label:old") == []
    assert found(api, "starred:no") == [plain]
    assert api.http.get(f"/v1/jobs/{job}/spec").json() == spec
    with api.database.read_jobs() as session:
        rows = session.execute(select(JobLabelRow.job_id, JobLabelRow.key, JobLabelRow.value))
        assert set(rows) == {(job, "team", "vision"), (job, "set", "mix")}
    view = marked(api, job, labels={"team": "nlp"})
    assert (view["labels"]["team"], view["note"]) == ("nlp", "the baseline")
    assert marked(api, job, note="", starred=False)["note"] is None


def test_marks_of_an_ended_job_change_its_tag(api: Api) -> None:
    claim = scenes.run(api.database)
    scenes.end(api.database, claim, Reason.SUCCEEDED)
    address = f"/v1/jobs/{claim.job_id}"
    tag = api.http.get(address).headers["etag"]
    marked(api, claim.job_id, starred=True)
    again = api.http.get(address, headers={"If-None-Match": tag})
    assert (again.status_code, again.json()["starred"]) == (200, True)


def test_the_audit_has_what_differs_and_no_repeat(api: Api) -> None:
    job = api.job_id(TRAIN)
    before = marked(api, job, note="a", labels={"k": "v"})
    assert marked(api, job, note="a", labels={"k": "v"})["version"] == before["version"]
    marked(api, job, note="b")
    with api.database.read_jobs() as session:
        rows, _ = audit.page(session, among=EVERY, action="job.mark", limit=9)
    assert [row.detail for row in rows] == [
        {"before": {"note": "a"}, "after": {"note": "b"}},
        {"before": {"labels": {}, "note": None}, "after": {"labels": {"k": "v"}, "note": "a"}},
    ]
    assert {row.target for row in rows} == {job}


def test_a_priority_changes_the_order_of_the_queue_and_not_the_spec(api: Api) -> None:
    first, second = api.job_id(TRAIN), api.job_id(TRAIN)
    spec = api.http.get(f"/v1/jobs/{second}/spec").json()
    api.notifications.sent.clear()
    view = marked(api, second, priority=80)
    assert (view["priority"], view["version"]) == (80, 2)
    assert api.notifications.sent == [WakeScheduler()]
    marked(api, second, priority=80)
    assert api.notifications.sent == [WakeScheduler()]
    assert [job["id"] for job in api.http.get("/v1/queue").json()["items"]] == [second, first]
    assert api.http.get(f"/v1/jobs/{second}/spec").json() == spec
    event = api.http.get(f"/v1/jobs/{second}/events").json()["items"][-1]
    assert (event["kind"], event["data"]) == ("priority", {"before": 50, "after": 80})
    scenes.add_node(api.database)
    with api.database.read_jobs() as session:
        rows = snapshots.read(session, agreed_timings.read(session))
    assert {job.id: job.priority for job in rows.queue} == {first: 50, second: 80}


def test_a_priority_keeps_the_limit_of_the_project(api: Api) -> None:
    nlp = {"name": "nlp", "limits": {"priority_max": 60}}
    assert api.http.post("/v1/projects", json=nlp).status_code == 201
    job = api.job_id({**TRAIN, "project": "nlp", "priority": 55})
    refused = problem(api.http.patch(f"/v1/jobs/{job}", json={"priority": 61}), 422, "invalid")
    assert refused["errors"][0]["pointer"] == "/priority"
    assert marked(api, job, priority=60)["priority"] == 60
    lower = {"limits": {"priority_max": 40}}
    assert api.http.patch("/v1/projects/nlp", json=lower).status_code == 200
    assert marked(api, job, priority=50)["priority"] == 50


def test_an_ended_job_keeps_its_priority(api: Api) -> None:
    claim = scenes.run(api.database)
    scenes.end(api.database, claim, Reason.SUCCEEDED)
    refused = api.http.patch(f"/v1/jobs/{claim.job_id}", json={"priority": 80, "note": "x"})
    problem(refused, 409, "conflict")
    assert api.http.get(f"/v1/jobs/{claim.job_id}").json()["note"] is None


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"priority": 101}, "/priority"),
        ({"priority": True}, "/priority"),
        ({"lables": {}}, "/lables"),
        ({"labels": {"k": 1}}, "/labels/k"),
        ({"labels": {"k": "v" * 256}}, "/labels/k"),
        ({"note": "n" * 2_001}, "/note"),
        ({"note": "a\0b"}, "/note"),
        ({"starred": "maybe"}, "/starred"),
        ({"labels": {f"k{number}": "v" for number in range(65)}}, "/labels"),
    ],
    ids=["priority", "no-number", "field", "value", "long", "note", "nul", "star", "many"],
)
def test_wrong_marks_are_refused_and_nothing_is_written(
    api: Api, changes: dict[str, Any], pointer: str
) -> None:
    job = api.job_id(TRAIN)
    refused = problem(api.http.patch(f"/v1/jobs/{job}", json=changes), 422, "invalid")
    assert refused["errors"][0]["pointer"] == pointer
    view = api.http.get(f"/v1/jobs/{job}").json()
    assert (view["labels"], view["note"], view["version"]) == ({}, None, 1)
    assert limits.LABELS_PER_JOB_MAX == 64
