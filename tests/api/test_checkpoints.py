"""Checkpoints over HTTP: the list, the best one, whole and partial files, and starting from one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from lockstep.domain.life.manifest import Manifest, ManifestFile
from lockstep.domain.life.outcomes import Reason
from lockstep.storage.attempts import checkpoints
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from tests.api.conftest import TRAIN, Api, problem
from tests.harness.builders import put_tree
from tests.storage import scenes

CONTENT = bytes(range(256)) * 9_000
"""2.3 MB: several chunks."""


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def publish(
    database: Database,
    blobs: BlobStore,
    claim: Claim,
    folder: Path,
    step: int,
    value: float | None = None,
) -> None:
    """Publish a real checkpoint in the store, with its row."""
    made = folder / f"step-{step:08d}"
    made.mkdir(parents=True)
    files = {"state.safetensors": CONTENT + str(step).encode(), "spec.json": b"{}"}
    for name, content in files.items():
        (made / name).write_bytes(content)
    described = {
        name: ManifestFile(bytes=len(each), sha256=digest(each)) for name, each in files.items()
    }
    manifest = Manifest(step=step, files=described).model_dump_json().encode()
    (made / "manifest.json").write_bytes(manifest)
    key = f"jobs/{claim.job_id}/{claim.attempt_number}/step-{step:08d}"
    put_tree(blobs, made, key)
    with database.jobs() as session:
        assert checkpoints.publish(
            session,
            claim.assignment_id,
            claim.token,
            step=step,
            location=key,
            bytes=sum(map(len, files.values())) + len(manifest),
            sha256=digest(manifest),
            final=False,
            value=value,
        )


@pytest.fixture
def claim(api: Api, tmp_path: Path) -> Claim:
    """Claim a job with checkpoints of steps 10, 20 and 30, of which 20 is the best."""
    made = scenes.run(api.database, name="first")
    for step, value in ((10, 0.7), (20, 0.5), (30, 0.6)):
        publish(api.database, api.blobs, made, tmp_path / "made", step, value)
    return made


def test_the_list_marks_the_best_checkpoint(api: Api, claim: Claim) -> None:
    found = api.http.get(f"/v1/jobs/{claim.job_id}/checkpoints").json()["items"]
    assert [(one["step"], one["value"], one["best"]) for one in found] == [
        (30, 0.6, False),
        (20, 0.5, True),
        (10, 0.7, False),
    ]


@pytest.mark.parametrize(("which", "step"), [("10", 10), ("last", 30), ("best", 20)])
def test_one_checkpoint_has_its_files_with_their_digests(
    api: Api, claim: Claim, which: str, step: int
) -> None:
    found = api.http.get(f"/v1/jobs/first/checkpoints/{which}").json()
    assert (found["step"], found["best"]) == (step, step == 20)
    assert [file["name"] for file in found["files"]] == [
        "state.safetensors",
        "spec.json",
        "manifest.json",
    ]
    state, _, manifest = found["files"]
    assert (state["bytes"], state["sha256"]) == (
        len(CONTENT) + 2,
        digest(CONTENT + str(step).encode()),
    )
    assert manifest["sha256"] == found["sha256"]
    assert sum(file["bytes"] for file in found["files"]) == found["bytes"]


def test_every_file_arrives_as_it_was_written(api: Api, claim: Claim) -> None:
    address = f"/v1/jobs/{claim.job_id}/checkpoints/20"
    for file in api.http.get(address).json()["files"]:
        answer = api.http.get(f"{address}/files/{file['name']}")
        assert answer.status_code == 200
        assert digest(answer.content) == file["sha256"]
        assert answer.headers["etag"] == f'"{file["sha256"]}"'
        assert int(answer.headers["content-length"]) == file["bytes"] == len(answer.content)
        assert answer.headers["content-type"] == "application/octet-stream"
        again = api.http.get(
            f"{address}/files/{file['name']}", headers={"If-None-Match": answer.headers["etag"]}
        )
        assert (again.status_code, again.content) == (304, b"")


def test_a_broken_download_resumes_if_the_file_is_the_same(api: Api, claim: Claim) -> None:
    address = f"/v1/jobs/{claim.job_id}/checkpoints/20/files/state.safetensors"
    whole = CONTENT + b"20"
    tag = f'"{digest(whole)}"'
    rest = api.http.get(address, headers={"Range": "bytes=2000000-", "If-Range": tag})
    assert (rest.status_code, rest.content) == (206, whole[2_000_000:])
    assert rest.headers["content-range"] == f"bytes 2000000-{len(whole) - 1}/{len(whole)}"
    assert int(rest.headers["content-length"]) == len(whole) - 2_000_000
    other = api.http.get(address, headers={"Range": "bytes=2000000-", "If-Range": '"another"'})
    assert (other.status_code, other.content) == (200, whole)
    for odd in ("bytes=5-9", "bytes=-5", "lines=1-", "bytes=1-,5-"):
        assert api.http.get(address, headers={"Range": odd}).status_code == 200
    beyond = api.http.get(address, headers={"Range": f"bytes={len(whole)}-"})
    found = problem(beyond, 416, "range")
    assert found["detail"] == (
        f"state.safetensors has {len(whole)} bytes; the requested range starts at byte {len(whole)}"
    )
    assert beyond.headers["content-range"] == f"bytes */{len(whole)}"


def test_two_attempts_that_saved_the_same_step_are_distinguished(
    api: Api, claim: Claim, tmp_path: Path
) -> None:
    scenes.end(api.database, claim, Reason.KILLED)
    scenes.release(api.database, claim)
    scenes.skip_backoff(api.database, claim.job_id)
    publish(
        api.database,
        api.blobs,
        scenes.start(api.database, claim.job_id),
        tmp_path / "again",
        20,
        0.9,
    )
    address = f"/v1/jobs/{claim.job_id}/checkpoints/20"
    found = {
        attempt: api.http.get(address, params={"attempt": attempt}).json() for attempt in (1, 2)
    }
    assert [(found[attempt]["attempt"], found[attempt]["best"]) for attempt in (1, 2)] == [
        (1, True),
        (2, False),
    ]
    assert api.http.get(address).json()["attempt"] == 2
    problem(api.http.get(address, params={"attempt": 3}), 404, "not_found")
    for attempt in (1, 2):
        answer = api.http.get(f"{address}/files/manifest.json", params={"attempt": attempt})
        assert digest(answer.content) == found[attempt]["sha256"]


@pytest.mark.parametrize(
    ("rest", "detail", "next_step"),
    [
        ("/40", "has no checkpoint of step 40", "it has checkpoints of the steps 30, 20, 10"),
        (
            "/20/files/model.safetensors",
            "has no file 'model.safetensors'",
            "it has state.safetensors, spec.json, manifest.json",
        ),
        ("/20/files/..%2F..%2Fjobs.db", "no route for GET", "/docs"),
    ],
)
def test_a_missing_checkpoint_is_named_with_the_existing_ones(
    api: Api, claim: Claim, rest: str, detail: str, next_step: str
) -> None:
    found = problem(api.http.get(f"/v1/jobs/{claim.job_id}/checkpoints{rest}"), 404, "not_found")
    assert detail in found["detail"]
    assert next_step in found["next_step"]


def test_a_job_without_values_has_no_best(api: Api, tmp_path: Path) -> None:
    made = scenes.run(api.database)
    found = problem(api.http.get(f"/v1/jobs/{made.job_id}/checkpoints/best"), 404, "not_found")
    assert "no best checkpoint: keep_best is not set" in found["detail"]
    publish(api.database, api.blobs, made, tmp_path / "made", 10)
    assert api.http.get(f"/v1/jobs/{made.job_id}/checkpoints").json()["items"][0]["best"] is False
    problem(api.http.get(f"/v1/jobs/{made.job_id}/checkpoints/best"), 404, "not_found")


@pytest.mark.parametrize("which", ["newest", "-1", "1e3", "99999999999"])
def test_a_checkpoint_is_named_by_its_step_last_or_best(api: Api, claim: Claim, which: str) -> None:
    problem(api.http.get(f"/v1/jobs/{claim.job_id}/checkpoints/{which}"), 422, "invalid")


def test_missing_and_damaged_files_of_the_store_are_reported(api: Api, claim: Claim) -> None:
    address = f"/v1/jobs/{claim.job_id}/checkpoints"
    stored = api.store / f"jobs/{claim.job_id}/1"
    (stored / "step-00000010/state.safetensors").unlink()
    found = problem(api.http.get(f"{address}/10/files/state.safetensors"), 404, "not_found")
    assert (
        "state.safetensors of the checkpoint of step 10 is no longer in the store"
        in found["detail"]
    )
    (stored / "step-00000020/manifest.json").write_text("{")
    found = problem(api.http.get(f"{address}/20"), 404, "not_found")
    assert (
        "is damaged in the store: its manifest.json differs from the published one"
        in found["detail"]
    )


@pytest.mark.parametrize("stored", [CONTENT[:1_000_000], CONTENT + b"10 and more", b""])
def test_a_file_of_another_size_is_reported_as_damaged_before_any_byte(
    api: Api, claim: Claim, stored: bytes
) -> None:
    (api.store / f"jobs/{claim.job_id}/1/step-00000010/state.safetensors").write_bytes(stored)
    address = f"/v1/jobs/{claim.job_id}/checkpoints/10/files"
    sizes = f"its state.safetensors has {len(stored)} bytes; the manifest has {len(CONTENT) + 2}"
    for asked in ({}, {"Range": "bytes=1000000-"}):
        found = problem(
            api.http.get(f"{address}/state.safetensors", headers=asked), 404, "not_found"
        )
        assert found["detail"] == f"the checkpoint of step 10 is damaged in the store: {sizes}"
        assert found["next_step"] == "use another checkpoint; lockstep ckpt ls lists them"
    assert api.http.get(f"{address}/spec.json").content == b"{}"


def test_files_need_a_token(api: Api, claim: Claim) -> None:
    address = f"/v1/jobs/{claim.job_id}/checkpoints/20/files/state.safetensors"
    problem(
        api.http.get(address, headers={"Authorization": "Bearer wrong"}), 401, "unauthenticated"
    )


# --- starting from a checkpoint


def starting_from(source: str) -> dict[str, Any]:
    return {**TRAIN, "train": {**TRAIN["train"], "init_from": source}}


@pytest.mark.parametrize("which", ["", "@10", "@best"])
def test_a_job_that_starts_from_another_keeps_its_full_id(
    api: Api, claim: Claim, which: str
) -> None:
    wanted = f"job:{claim.job_id}{which}"
    answer = api.submit(starting_from(f"job:first{which}"))
    assert answer.status_code == 201, answer.text
    assert answer.json()["spec"]["train"]["init_from"] == f"job:first{which}", "as it was written"
    assert scenes.job_of(api.database, answer.json()["id"]).spec["train"]["init_from"] == wanted
    planned = api.http.post("/v1/jobs/plan", json=starting_from(f"job:first{which}"))
    assert planned.json()["spec"]["train"]["init_from"] == wanted


@pytest.mark.parametrize(
    ("source", "message", "next_step"),
    [
        ("job:nobody", "no job", ""),
        (
            "job:first@15",
            "has no checkpoint of step 15",
            "it has checkpoints of the steps 30, 20, 10",
        ),
        ("job:empty", "has no checkpoint", "wait until the job has saved one"),
        ("job:empty@best", "has no best checkpoint", "wait until the job has saved one"),
    ],
)
def test_a_source_that_is_not_there_is_refused_and_nothing_is_written(
    api: Api, claim: Claim, source: str, message: str, next_step: str
) -> None:
    api.job_id({"name": "empty", "kind": "script", "script": {"command": ["/srv/x.py"]}})
    before = api.rows()
    for address in ("/v1/jobs", "/v1/jobs/plan"):
        found = problem(api.http.post(address, json=starting_from(source)), 422, "invalid")
        (error,) = found["errors"]
        assert (error["pointer"], error["value"]) == ("/train/init_from", source)
        assert message in error["message"]
        assert next_step in error["next_step"]
    assert api.rows() == before


def test_a_repeat_answers_with_its_job_after_the_source_was_deleted(api: Api, claim: Claim) -> None:
    first = api.submit(starting_from("job:first@10"), **{"Idempotency-Key": "k"})
    with api.database.jobs() as session:
        checkpoints.prune(session, claim.job_id, 1)
    again = api.submit(starting_from("job:first@10"), **{"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
