"""Clones of a job: the same spec with changes, checked and repeated like every submit."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from lockstep.api.jobs.cloning import cloned
from lockstep.broker.messages import WakeScheduler
from lockstep.domain.life.outcomes import Reason
from lockstep.storage.attempts import checkpoints
from lockstep.storage.db.tables import JobRow
from tests.api.conftest import SCRIPT, TRAIN, Api, problem
from tests.harness.builders import code, digest
from tests.storage import scenes


def _clone(
    api: Api, reference: str, changes: dict[str, Any] | None = None, **headers: str
) -> httpx2.Response:
    body = {} if changes is None else {"set": changes}
    return api.http.post(f"/v1/jobs/{reference}/clone", json=body, headers=headers)


def test_a_clone_is_a_new_job_with_the_same_document(api: Api) -> None:
    first = api.job_id({**TRAIN, "labels": {"team": "a"}})
    api.notifications.sent.clear()
    response = _clone(api, first)
    made = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == f"/v1/jobs/{made['id']}"
    assert made["id"] != first
    spec = api.http.get(f"/v1/jobs/{first}").json()["spec"]
    assert made["spec"] == {**spec, "project": "default"}
    assert made["labels"] == {"team": "a"}
    assert api.notifications.sent == [WakeScheduler()]
    events = api.http.get(f"/v1/jobs/{made['id']}/events").json()["items"]
    assert [event["kind"] for event in events] == ["submitted", "cloned"]
    assert events[1]["message"] == f"cloned from gpt ({first}), nothing changed"


def test_changes_replace_whole_values_and_leave_the_first_job_alone(api: Api) -> None:
    first = api.job_id(TRAIN)
    changes = {
        "/train/steps": None,
        "/train/epochs": 3,
        "/train/optimizer": {"name": "sgd", "lr": 0.1},
        "/labels/team": "b",
    }
    made = _clone(api, "last", changes).json()
    assert made["spec"]["train"] == {
        **TRAIN["train"],
        "steps": None,
        "epochs": 3,
        "optimizer": {"name": "sgd", "lr": 0.1},
    }
    assert made["labels"] == {"team": "b"}
    assert api.http.get(f"/v1/jobs/{first}").json()["spec"] == TRAIN
    events = api.http.get(f"/v1/jobs/{made['id']}/events").json()["items"]
    assert events[1]["message"].endswith(
        "; changed: train.steps, train.epochs, train.optimizer, labels.team"
    )


def test_no_body_at_all_clones_too(api: Api) -> None:
    job = api.job_id()
    assert api.http.post(f"/v1/jobs/{job}/clone").status_code == 201


def test_a_repeat_with_the_same_key_gives_the_same_clone(api: Api) -> None:
    api.job_id()
    first = _clone(api, "last", {"/priority": 60}, **{"Idempotency-Key": "k"})
    again = _clone(api, "last", {"/priority": 60}, **{"Idempotency-Key": "k"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotent-replay"] == "true"
    problem(_clone(api, "last", {"/priority": 61}, **{"Idempotency-Key": "k"}), 409, "conflict")
    assert api.rows()["jobs"] == 2


def test_a_key_is_not_shared_by_clones_of_two_jobs(api: Api) -> None:
    first, second = api.job_id(), api.job_id()
    assert _clone(api, first, {}, **{"Idempotency-Key": "k"}).status_code == 201
    problem(_clone(api, second, {}, **{"Idempotency-Key": "k"}), 409, "conflict")


def test_the_code_archive_is_used_again(api: Api) -> None:
    archive = code()
    api.http.put(
        f"/v1/uploads/{digest(archive)}",
        content=archive,
        headers={"Content-Type": "application/gzip"},
    )
    api.job_id({**SCRIPT, "code": {"upload": digest(archive)}})
    before = api.uploads()
    assert _clone(api, "last").json()["spec"]["code"] == {"upload": digest(archive)}
    assert api.uploads() == before


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"set": {"/train/optimiser": 1}}, "/train/optimiser"),
        ({"set": {"/train/batch/size": -1}}, "/train/batch/size"),
        ({"set": {"train.steps": 5}}, "/set/train.steps"),
        ({"set": {"/script/command/7": "x"}}, "/script/command/7"),
        ({"set": []}, "/set"),
        ({"sets": {}}, "/sets"),
        ([], ""),
    ],
)
def test_a_wrong_change_is_named_and_nothing_is_written(
    api: Api, body: object, pointer: str
) -> None:
    spec = SCRIPT if "script" in pointer else TRAIN
    job = api.job_id(spec)
    before = api.rows()
    found = problem(api.http.post(f"/v1/jobs/{job}/clone", json=body), 422, "invalid")
    assert found["errors"][0]["pointer"] == pointer
    assert api.rows() == before


@pytest.mark.parametrize(
    ("body", "what"),
    [(b'{"set": ', "not JSON"), (b'{"set": {"/priority": ' + b"1" * 31 + b"}}", "has 31 digits")],
)
def test_an_invalid_body_is_refused_with_the_fields_of_a_clone(
    api: Api, body: bytes, what: str
) -> None:
    job = api.job_id()
    refused = api.http.post(
        f"/v1/jobs/{job}/clone", content=body, headers={"Content-Type": "application/json"}
    )
    found = problem(refused, 400, "malformed")
    assert what in found["detail"]
    assert "or {} for the same job again" in found["next_step"]


def test_a_clone_of_nothing_is_not_found(api: Api) -> None:
    problem(_clone(api, "gone"), 404, "not_found")


def test_a_clone_keeps_the_source_of_the_weights_unless_it_is_changed() -> None:
    asked = {**TRAIN, "train": {**TRAIN["train"], "init_from": "job:last"}}
    settled = {"train": {**TRAIN["train"], "init_from": "job:0199@50"}}
    source = JobRow(id="x", name="gpt", document=asked, spec=settled)
    assert cloned(source, {}).document["train"]["init_from"] == "job:0199@50"
    assert cloned(source, {"/train/init_from": None}).document["train"]["init_from"] is None
    assert asked["train"]["init_from"] == "job:last"


def test_a_job_continues_one_that_has_ended(api: Api) -> None:
    first = api.job_id({**TRAIN, "name": "first"})
    for reference, words in ((first, "is queued; only an ended job"), ("nope", "no job")):
        (error,) = problem(_clone(api, first, {"/continues": reference}), 422, "invalid")["errors"]
        assert error["pointer"] == "/continues"
        assert words in error["message"]
    api.http.post(f"/v1/jobs/{first}/cancel")
    script = problem(api.submit({**SCRIPT, "continues": first}), 422, "invalid")["errors"][0]
    assert script["message"] == f"job {first} is of kind train, and this one of kind script"
    made = _clone(api, first, {"/continues": "first", "/train/steps": 400}).json()
    assert scenes.job_of(api.database, made["id"]).spec["continues"] == first
    refused = problem(api.http.delete(f"/v1/jobs/{first}"), 409, "conflict")["detail"]
    assert refused.startswith(f"first ({made['id']}) has not ended and starts from")
    assert api.http.get(f"/v1/jobs/{first}").json()["state"] == "cancelled"


def test_a_clone_continues_the_job_of_its_source(api: Api) -> None:
    first = api.job_id({**TRAIN, "name": "first"})
    api.http.post(f"/v1/jobs/{first}/cancel")
    heir = api.job_id({**TRAIN, "continues": "first"})
    api.http.post(f"/v1/jobs/{api.job_id({**TRAIN, 'name': 'first'})}/cancel")
    made = _clone(api, heir, {}).json()["id"]
    assert scenes.job_of(api.database, made).spec["continues"] == first


def test_the_first_attempt_resumes_from_the_former_job(api: Api) -> None:
    former = scenes.run(api.database)
    with api.database.jobs() as session:
        at = {"step": 20, "location": "jobs/x/1/step-20", "bytes": 1, "sha256": "a" * 64}
        assert checkpoints.publish(session, former.assignment_id, former.token, **at, final=False)
    scenes.end(api.database, former, Reason.USER_ERROR)
    scenes.release(api.database, former)
    claim = scenes.start(api.database, scenes.submit(api.database, continues=former.job_id))
    assert claim.published == []
    assert [one.location for one in claim.inherited] == ["jobs/x/1/step-20"]
    with api.database.jobs() as session:
        own = {**at, "location": "jobs/y/1/step-20"}
        assert checkpoints.publish(session, claim.assignment_id, claim.token, **own, final=False)
    scenes.end(api.database, claim, Reason.LOST)
    scenes.release(api.database, claim)
    again = scenes.start(api.database, claim.job_id)
    assert [one.location for one in again.published] == ["jobs/y/1/step-20"]
    assert again.inherited == []


def test_a_job_that_never_ran_hands_on_the_checkpoint_that_it_continues(api: Api) -> None:
    former = scenes.run(api.database)
    with api.database.jobs() as session:
        at = {"step": 20, "location": "jobs/x/1/step-20", "bytes": 1, "sha256": "a" * 64}
        assert checkpoints.publish(session, former.assignment_id, former.token, **at, final=False)
    scenes.end(api.database, former, Reason.USER_ERROR)
    scenes.release(api.database, former)
    between = scenes.submit(api.database, continues=former.job_id)
    api.http.post(f"/v1/jobs/{between}/cancel")
    claim = scenes.start(api.database, scenes.submit(api.database, continues=between))
    assert claim.former == [between, former.job_id]
    assert [one.location for one in claim.inherited] == ["jobs/x/1/step-20"]
    refused = problem(api.http.delete(f"/v1/jobs/{former.job_id}"), 409, "conflict")["detail"]
    assert "starts from checkpoints or files of" in refused
