"""Answers when a part below the api is broken: a reason and advice, never an internal message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from lockstep.api.app import create_app
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import jobs, listing
from lockstep.storage.objects.blobs import BlobStore
from tests.api.conftest import SCRIPT, TOKEN, Api, Notifications, problem, settings_for
from tests.api.test_auth import OPEN
from tests.harness.builders import code, digest
from tests.harness.clients import Client
from tests.harness.databases import Urls, full
from tests.harness.drills import Drill
from tests.harness.processes import until

NOBODY: dict[str, Urls] = {
    # Port 9 of loopback has no listener, so a connection is refused at once.
    "postgresql": ("postgresql+psycopg://u@127.0.0.1:9/x", "postgresql+psycopg://u@127.0.0.1:9/x"),
    "sqlite": (
        "sqlite:////proc/no/such/folder/jobs.db",
        "sqlite:////proc/no/such/folder/series.db",
    ),
}


@contextmanager
def serving_without_a_database(kind: str, store: object) -> Iterator[Client]:
    database = Database(*NOBODY[kind])
    settings = settings_for(NOBODY[kind], store)  # type: ignore[arg-type]  # a Path
    app = create_app(settings, database, BlobStore(str(store)), Notifications())
    try:
        with Client(app, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
            yield http
    finally:
        database.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_unavailable_database_is_503_with_retry_after(kind: str, tmp_path: object) -> None:
    with serving_without_a_database(kind, tmp_path) as http:
        for response in (
            http.post("/v1/jobs", json=SCRIPT),
            http.get("/v1/jobs"),
            http.get("/v1/jobs/last"),
        ):
            found = problem(response, 503, "unavailable")
            assert response.headers["retry-after"] == "2"
            assert found["detail"].startswith("the jobs database does not answer")
            assert found["next_step"].startswith("Try again in a few seconds")
        ready = http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
        assert "does not answer" in ready.json()["checks"]["database"]
        assert http.get("/livez").status_code == 200


def test_a_database_that_comes_back_is_used_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_arguments: object, **_more: object) -> None:
        raise LockstepError(ErrorCode.UNAVAILABLE, "the jobs database does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(jobs, "create", away)
        problem(api.submit(), 503, "unavailable")
    assert api.rows()["jobs"] == 0
    assert api.submit().status_code == 201


def test_a_full_disk_refuses_the_submit_and_writes_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object, **_more: object) -> None:
        raise LockstepError(
            ErrorCode.STORAGE_FULL, "the disk of the jobs database is full; nothing was written"
        )

    monkeypatch.setattr(jobs, "create", full)
    refused = api.submit()
    assert problem(refused, 507, "storage_full")["detail"].endswith("nothing was written")
    assert refused.headers["retry-after"] == "60"
    assert api.rows()["jobs"] == 0
    assert not api.notifications.sent


@pytest.mark.row
def test_a_disk_that_fills_up_keeps_accepted_submits_and_no_others(api: Api, drill: Drill) -> None:
    drill.begin("F19", "the disk fills up under submits")
    spec = {**SCRIPT, "env": {"PADDING": "x" * 2_000}}
    accepted = []
    with full(api.database._jobs):
        for number in range(200):
            response = api.submit(spec, **{"Idempotency-Key": f"key-{number}"})
            if response.status_code != 201:
                break
            accepted.append(response.json()["id"])
        problem(response, 507, "storage_full")
        drill.injected += 1
        assert response.headers["retry-after"] == "60"
        assert api.http.get("/v1/jobs").status_code == 200, "what is there can still be read"
        for job_id in accepted:
            assert api.http.get(f"/v1/jobs/{job_id}").status_code == 200
    assert api.rows()["jobs"] == api.rows()["idempotency_keys"] == len(accepted)
    assert len(api.notifications.sent) == len(accepted)
    again = api.submit(spec, **{"Idempotency-Key": f"key-{len(accepted)}"})
    assert again.status_code == 201, "with room again the same request is accepted"
    listed = {job["id"] for job in api.http.get("/v1/jobs?limit=500").json()["items"]}
    drill.lost, drill.doubled = (
        len({*accepted} - listed),
        len(listed) - len({*accepted, again.json()["id"]}),
    )
    assert listed == {*accepted, again.json()["id"]}


def test_a_defect_gives_the_caller_an_id_and_the_log_the_cause(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*_arguments: object, **_more: object) -> None:
        raise RuntimeError("secret detail of line 42")

    monkeypatch.setattr(listing, "places", defect)
    with structlog.testing.capture_logs() as lines:
        response = api.http.get("/v1/jobs", headers={"X-Request-Id": "trace-7"})
    found = problem(response, 500, "internal")
    assert response.headers["x-request-id"] == "trace-7"
    assert "trace-7" in found["next_step"]
    assert "secret" not in response.text
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert line["request_id"] == "trace-7"
    assert "secret detail" in str(line["exc_info"])


def test_every_response_carries_a_request_id_and_odd_ones_are_replaced(api: Api) -> None:
    for address in ("/livez", "/", "/v1/jobs", "/nowhere", "/openapi.json"):
        assert (
            api.http.get(address, headers={"X-Request-Id": "mine-1"}).headers["x-request-id"]
            == "mine-1"
        )
        odd = api.http.get(address, headers={"X-Request-Id": "a b\tc" * 40}).headers["x-request-id"]
        assert len(odd) == 36


def test_ready_without_a_broker_is_degraded_and_still_ready(api: Api) -> None:
    def store_is_checked() -> bool:
        return not api.http.get("/readyz").json()["checks"]["store"].startswith("does not answer")

    until(
        store_is_checked,
        60,
        "the check of the store, which may take longer than a request on a busy machine",
    )
    ready = api.http.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
    assert ready.json()["checks"] == {
        "broker": "does not answer; jobs are accepted and start later",
        "database": "ok",
        "scheduler": (
            "has not completed a cycle yet; jobs are accepted and start after its next cycle"
        ),
        "store": "ok",
    }


def test_a_database_of_another_version_is_not_ready(tmp_path: object) -> None:
    urls = (f"sqlite:///{tmp_path}/jobs.db", f"sqlite:///{tmp_path}/series.db")
    database = Database(*urls)
    app = create_app(
        settings_for(urls, tmp_path), database, BlobStore(str(tmp_path)), Notifications()
    )  # type: ignore[arg-type]
    try:
        with Client(app) as http:
            ready = http.get("/readyz")
    finally:
        database.close()
    assert ready.status_code == 503
    assert ready.json()["checks"]["database"].startswith("the jobs database has no Lockstep tables")
    assert ready.json()["checks"]["database"].endswith("with: lockstep migrate")


def test_a_missing_store_is_named_only_to_callers_with_a_token(api: Api) -> None:
    api.store.rmdir()
    signed_out = api.http.get("/readyz", headers={"Authorization": ""})
    liar = api.http.get("/readyz", headers={"Authorization": "Bearer not-a-token-of-this-service"})
    known = api.http.get("/readyz")
    assert {answer.status_code for answer in (signed_out, liar, known)} == {200}
    assert signed_out.json() == liar.json()
    assert signed_out.json()["status"] == "degraded"
    assert signed_out.json()["checks"]["store"].startswith("not usable")
    assert str(api.store) not in signed_out.text
    assert (
        known.json()["checks"]["store"]
        == f"{api.store} cannot be written: No such file or directory"
    )


def test_an_unavailable_database_is_not_described_without_a_token(tmp_path: object) -> None:
    with serving_without_a_database("postgresql", tmp_path) as http:
        signed_out = http.get("/readyz", headers={"Authorization": ""})
    assert signed_out.status_code == 503
    assert signed_out.json()["checks"]["database"].startswith("does not answer")
    for detail in ("127.0.0.1", "localhost", "port", "user", "connection"):
        assert detail not in signed_out.text


def test_code_for_a_read_only_store_is_refused_with_a_reason(api: Api) -> None:
    archive = code(["train.py"])
    api.store.rmdir()
    api.store.write_text("not a folder")
    sent = api.http.put(
        f"/v1/uploads/{digest(archive)}",
        content=archive,
        headers={"Content-Type": "application/gzip"},
    )
    found = problem(sent, 503, "unavailable")
    assert found["detail"] == "the store cannot be written: Not a directory; nothing was kept"
    assert "LOCKSTEP_STORE" in found["next_step"]
    assert sent.headers["retry-after"] == "60"


def test_the_description_names_every_error_as_a_problem(api: Api) -> None:
    document = api.http.get("/openapi.json").json()
    assert json.dumps(document)
    assert {"JobSpec", "JobView", "Problem", "BatchPlan"} <= set(document["components"]["schemas"])
    assert "HTTPValidationError" not in document["components"]["schemas"]
    (scheme,) = document["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if not path.startswith("/v1"):
                continue
            assert bool(operation["security"]) != ((method.upper(), path) in OPEN)
            errors = {
                status: found for status, found in operation["responses"].items() if status >= "400"
            }
            assert {"401", "422", "429", "500", "503"} <= set(errors)
            for status, found in errors.items():
                (media, content), *more = found["content"].items()
                assert (media, more) == ("application/problem+json", [])
                assert content["schema"] == {"$ref": "#/components/schemas/Problem"}
                assert content["example"]["status"] == int(status)
                assert ("Retry-After" in found["headers"]) == (status in {"429", "503", "507"})


def test_every_reference_of_the_description_leads_somewhere_and_its_examples_are_accepted(
    api: Api,
) -> None:
    document = api.http.get("/openapi.json").json()
    references = {part.split('"')[0] for part in json.dumps(document).split('"#/components/')[1:]}
    there = {f"{kind}/{name}" for kind, each in document["components"].items() for name in each}
    assert {"schemas", "headers"} <= {each.split("/")[0] for each in references}
    assert references <= there
    body = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"] == {"$ref": "#/components/schemas/JobSpec"}
    archive = code(["train.py"])
    kind = {"Content-Type": "application/gzip"}
    api.http.put(f"/v1/uploads/{digest(archive)}", content=archive, headers=kind)
    for example in body["examples"].values():
        spec = {**example["value"], "code": {"upload": digest(archive)}}
        assert api.submit(spec).status_code == 201
