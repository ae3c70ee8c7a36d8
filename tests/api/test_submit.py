"""Submits: the answer, the stored rows, and the same job for a repeated submit."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lockstep.api.app import create_app
from lockstep.broker.messages import Message, WakeScheduler
from lockstep.broker.publisher import Publisher
from tests.api.conftest import SCRIPT, TOKEN, TRAIN, Api, problem, settings_for
from tests.harness.builders import code, digest
from tests.harness.clients import Client
from tests.harness.processes import until


def test_a_submitted_job_is_queued_and_has_a_location(api: Api) -> None:
    response = api.submit(TRAIN)
    job = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == f"/v1/jobs/{job['id']}"
    assert (job["state"], job["name"], job["version"]) == ("queued", "gpt", 1)
    assert job["plan"] == {
        "batch_size": 64,
        "micro_batch_size": 8,
        "accumulation_steps": 4,
        "world_size": 2,
        "tensor": 1,
        "pipeline": 1,
        "copies": 2,
        "blocks": None,
        "steps": 200,
        "memory": None,
    }
    assert job["plan_sentence"] == "64 = 2 ranks × 8 samples × 4 accumulation steps"
    assert job["created_at"].endswith("Z")
    assert api.http.get(response.headers["location"]).json() == job


def test_the_submitted_document_comes_back_as_it_was_sent(api: Api) -> None:
    document = {**TRAIN, "labels": {"team": "größe ✓"}, "env": {"Z": "1", "A": "2"}}
    raw = json.dumps(document, ensure_ascii=False)
    sent = api.http.post(
        "/v1/jobs", content=raw.encode(), headers={"Content-Type": "application/json"}
    )
    read = api.http.get(f"/v1/jobs/{sent.json()['id']}").json()["spec"]
    assert (
        json.dumps(read, ensure_ascii=False) == raw
    )  # the order of the fields is kept, and no defaults are added


def test_row_and_event_are_written_together_and_the_scheduler_is_notified(api: Api) -> None:
    job_id = api.job_id({**SCRIPT, "labels": {"team": "a"}})
    assert api.rows() == {"jobs": 1, "job_labels": 1, "events": 1, "idempotency_keys": 0}
    events = api.http.get(f"/v1/jobs/{job_id}/events").json()["items"]
    assert [(event["kind"], event["actor"]) for event in events] == [("submitted", "ada")]
    assert api.notifications.sent == [WakeScheduler()]


def test_without_any_registered_node_a_job_waits_with_a_reason(api: Api) -> None:
    job = api.submit({**TRAIN, "resources": {"gpus": 64}}).json()
    assert job["state"] == "queued"
    assert job["reason"] == "no node is registered yet"


def test_a_repeat_with_the_same_key_is_the_same_job(api: Api) -> None:
    first = api.submit(SCRIPT, **{"Idempotency-Key": "k1"})
    again = api.http.post(
        "/v1/jobs",
        content=json.dumps(dict(reversed(SCRIPT.items())), indent=2),
        headers={"Idempotency-Key": "k1", "Content-Type": "application/json; charset=utf-8"},
    )
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    assert again.headers["idempotent-replay"] == "true"
    assert "idempotent-replay" not in first.headers
    assert api.rows()["jobs"] == 1


def test_a_repeat_answers_even_when_the_submit_would_be_refused_now(api: Api) -> None:
    archive = code()
    api.http.put(
        f"/v1/uploads/{digest(archive)}",
        content=archive,
        headers={"Content-Type": "application/gzip"},
    )
    spec = {**SCRIPT, "resources": {"gpus": 8}, "code": {"upload": digest(archive)}}
    first = api.submit(spec, **{"Idempotency-Key": "k1"})
    api.register(devices=1)
    for file in api.store.rglob("*.tar.gz"):
        file.unlink()
    assert api.submit(spec).status_code == 422
    again = api.submit(spec, **{"Idempotency-Key": "k1"})
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


def test_a_key_used_for_another_body_is_a_conflict(api: Api) -> None:
    first = api.submit(SCRIPT, **{"Idempotency-Key": "k1"}).json()["id"]
    found = problem(
        api.submit({**SCRIPT, "name": "other"}, **{"Idempotency-Key": "k1"}), 409, "conflict"
    )
    assert found["detail"] == f"the idempotency key 'k1' was used for job {first} with another body"
    assert found["next_step"] == "Send the same body again, or use a new key for a new job."
    assert api.rows()["jobs"] == 1


def test_a_key_that_is_no_key_is_refused(api: Api) -> None:
    for key in ("x" * 201, "two words", ""):
        found = problem(api.submit(SCRIPT, **{"Idempotency-Key": key}), 422, "invalid")
        assert found["errors"][0]["pointer"] == "/header/idempotency-key"
    assert api.rows()["jobs"] == 0


def test_many_repeats_at_once_are_one_job(api: Api) -> None:
    with ThreadPoolExecutor(8) as pool:
        responses = list(
            pool.map(lambda _: api.submit(SCRIPT, **{"Idempotency-Key": "same"}), range(24))
        )
    assert {response.json()["id"] for response in responses} == {responses[0].json()["id"]}
    assert sorted(response.status_code for response in responses) == [200] * 23 + [201]
    assert api.rows() == {"jobs": 1, "job_labels": 0, "events": 1, "idempotency_keys": 1}


def test_many_different_submits_at_once_are_all_kept(api: Api) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda n: api.job_id({**SCRIPT, "name": f"job-{n}"}), range(40)))
    assert len(ids) == 40
    assert api.rows()["jobs"] == api.rows()["events"] == 40


def test_without_a_broker_a_submit_is_answered_at_once(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    senders: set[str] = set()
    send = Publisher._send

    def noted(publisher: Publisher, message: Message) -> None:
        senders.add(threading.current_thread().name)
        send(publisher, message)

    monkeypatch.setattr(Publisher, "_send", noted)
    publisher = Publisher(f"redis+socket://{tmp_path}/nobody.sock")
    try:
        app = create_app(settings_for(api.urls, api.store), api.database, api.blobs, publisher)
        with Client(app, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
            statuses = [http.post("/v1/jobs", json=SCRIPT).status_code for _ in range(10)]
            until(lambda: senders, 60, "a message that is sent")
    finally:
        publisher.close()
        # Its remaining messages must not reach the next test.
        until(
            lambda: "publisher" not in {thread.name for thread in threading.enumerate()},
            60,
            "the publisher's end",
        )
    assert statuses == [201] * 10
    assert senders == {"publisher"}  # no request thread tries to connect to the broker
