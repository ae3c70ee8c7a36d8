"""Cancelling and deleting over HTTP: the answers, and the notifications."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from lockstep.broker.messages import StopAssignment, WakeScheduler
from lockstep.domain.life.outcomes import Reason
from lockstep.scheduler.deletions import StoreDeletions
from lockstep.storage.db.tables import JobRow
from tests.api.conftest import SCRIPT, Api, problem
from tests.storage import scenes


def test_a_queued_job_is_cancelled_at_once(api: Api) -> None:
    job_id = api.job_id()
    answer = api.http.post(f"/v1/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
    events = api.http.get(f"/v1/jobs/{job_id}/events").json()["items"]
    assert (events[-1]["message"], events[-1]["actor"]) == ("cancelled by ada", "ada")


def test_a_cancel_of_a_running_job_notifies_its_nodes(api: Api) -> None:
    claim = scenes.run(api.database)
    job = api.http.post("/v1/jobs/last/cancel").json()
    assert (job["state"], job["intent"]) == ("running", "cancel")
    assert api.notifications.sent == [StopAssignment(claim.assignment_id, "n1"), WakeScheduler()]


def test_a_second_cancel_is_no_error_and_notifies_again(api: Api) -> None:
    scenes.run(api.database)
    first = api.http.post("/v1/jobs/last/cancel")
    again = api.http.post("/v1/jobs/last/cancel")
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json()["version"] == first.json()["version"]


def test_a_job_that_ended_is_not_changed(api: Api) -> None:
    claim = scenes.run(api.database)
    scenes.end(api.database, claim, Reason.SUCCEEDED)
    found = problem(api.http.post(f"/v1/jobs/{claim.job_id}/cancel"), 409, "conflict")
    assert "has already succeeded" in found["detail"]
    assert not api.notifications.sent


def test_a_job_that_is_not_there_cannot_be_cancelled(api: Api) -> None:
    problem(api.http.post("/v1/jobs/nothing-like-it/cancel"), 404, "not_found")


def test_a_job_that_has_ended_is_deleted_and_is_no_more(api: Api) -> None:
    job_id, other = api.job_id(), api.job_id()
    assert (
        "lockstep cancel"
        in problem(api.http.delete(f"/v1/jobs/{job_id}"), 409, "conflict")["next_step"]
    )
    api.http.post(f"/v1/jobs/{job_id}/cancel")
    answer = api.http.delete(f"/v1/jobs/{job_id}")
    assert (answer.status_code, answer.content) == (204, b"")
    for address in ("", "/events", "/metrics", "/logs", "/checkpoints", "/attempts", "/spec"):
        problem(api.http.get(f"/v1/jobs/{job_id}{address}"), 404, "not_found")
    problem(api.http.delete(f"/v1/jobs/{job_id}"), 404, "not_found")
    assert [job["id"] for job in api.http.get("/v1/jobs").json()["items"]] == [other]


def test_a_job_is_paused_resumed_and_requeued_away_from_nodes(api: Api) -> None:
    claim = scenes.run(api.database)
    for name in ("n2", "n3"):
        scenes.add_node(api.database, name)
    address = f"/v1/jobs/{claim.job_id}"
    paused = api.http.post(f"{address}/pause", params={"now": True})
    assert (paused.status_code, paused.json()["intent"]) == (202, "pause")
    assert paused.json()["stop_grace"]["seconds"] == 0
    resumed = api.http.post(f"{address}/resume")
    assert (resumed.status_code, resumed.json()["intent"]) == (200, "requeue")
    scenes.end(api.database, claim, Reason.PAUSED)
    assert api.http.get(address).json()["state"] == "queued"
    again = scenes.start(api.database, scenes.submit(api.database), (2, 3))
    requeue = f"/v1/jobs/{again.job_id}/requeue"
    unknown = problem(api.http.post(requeue, params={"avoid": "n4"}), 422, "invalid")
    assert unknown["detail"] == "there is no node 'n4'"
    assert api.http.post(requeue, params={"avoid": ["n2", "n3"]}).status_code == 202
    assert scenes.job_of(api.database, again.job_id).avoid_nodes == ["n2", "n3"]
    messages = [
        each["message"] for each in api.http.get(f"/v1/jobs/{again.job_id}/events").json()["items"]
    ]
    assert any("ada requested a new start that avoids n2, n3;" in message for message in messages)


@pytest.mark.parametrize("finisher", ["request", "scheduler"])
def test_no_job_begins_from_one_whose_files_are_being_deleted(
    api: Api, monkeypatch: pytest.MonkeyPatch, finisher: str
) -> None:
    job_id = api.job_id()
    api.http.post(f"/v1/jobs/{job_id}/cancel")
    heir, delete = {**SCRIPT, "continues": job_id}, f"/v1/jobs/{job_id}"
    clone = api.job_id(heir)
    assert "has not ended" in problem(api.http.delete(delete), 409, "conflict")["detail"]
    api.http.post(f"/v1/jobs/{clone}/cancel")
    refusals = []

    def killed(_prefix: str) -> None:
        refusals.extend([api.submit(heir), api.http.post(f"/v1/jobs/{clone}/clone")])
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(api.blobs, "delete_tree", killed)
        assert api.http.delete(delete).status_code == 500
    for refused in refusals:
        why = f"job {job_id}, from which the new job begins, is being deleted"
        assert problem(refused, 409, "conflict")["detail"] == why
    assert api.http.get(delete).json()["deleting"]
    deletions = StoreDeletions(api.database, api.blobs, every_seconds=60.0)
    deletions.delete_due()  # this request may be at work still
    assert api.http.get(delete).status_code == 200
    if finisher == "request":
        assert api.http.delete(delete).status_code == 204
    else:
        with api.database.jobs() as session:
            session.execute(update(JobRow).values(deleting_at=JobRow.deleting_at - 301.0))
        deletions.delete_due()
    problem(api.http.get(delete), 404, "not_found")
    assert api.http.get(f"/v1/jobs/{clone}").status_code == 200
    assert len(api.http.get("/v1/audit", params={"action": "job.delete"}).json()["items"]) == 1
