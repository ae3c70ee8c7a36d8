"""Code archives over HTTP: stored once, checked first, with limits for train jobs."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor

import pytest

from lockstep.api.jobs.uploads import Uploads
from tests.api.conftest import SCRIPT, TRAIN, Api, problem
from tests.harness.builders import code, digest


@pytest.fixture
def api(unchanged_api: Api) -> Api:
    return unchanged_api


def put(api: Api, archive: bytes, media_type: str = "application/gzip"):  # type: ignore[no-untyped-def]  # httpx2's
    return api.http.put(
        f"/v1/uploads/{digest(archive)}", content=archive, headers={"Content-Type": media_type}
    )


def test_an_archive_is_kept_once_and_found_again(api: Api) -> None:
    archive = code(["once.py", "pkg/again.py"])
    sent = {"sha256": digest(archive), "bytes": len(archive), "files": 2}
    first, again = put(api, archive), put(api, archive)
    assert (first.status_code, first.json()) == (201, {**sent, "created": True})
    assert (again.status_code, again.json()) == (200, {**sent, "created": False})
    assert api.http.get(f"/v1/uploads/{digest(archive)}").json() == {**sent, "created": False}
    assert (api.store / f"uploads/{digest(archive)}.tar.gz").read_bytes() == archive


def test_another_api_finds_a_stored_archive(api: Api) -> None:
    archive = code(["shared.py"])
    put(api, archive)
    found = Uploads(api.blobs).find(digest(archive))
    assert found is not None
    assert found.top_level == ["shared.py"]


def test_an_archive_that_is_not_there_is_not_found(api: Api) -> None:
    problem(api.http.get(f"/v1/uploads/{'0' * 64}"), 404, "not_found")


def test_the_same_archive_sent_many_times_at_once_is_kept(api: Api) -> None:
    archive = code([f"many_{n}.py" for n in range(50)])
    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(lambda _: put(api, archive).status_code, range(12)))
    assert set(statuses) <= {200, 201}
    assert 201 in statuses
    assert not [name for name in api.uploads() if ".part" in name]


def test_a_job_may_name_an_uploaded_archive(api: Api) -> None:
    archive = code(["train.py"])
    put(api, archive)
    assert api.submit({**SCRIPT, "code": {"upload": digest(archive)}}).status_code == 201


@pytest.mark.parametrize(
    "name", ["engine/model.py", "domain.py", "storage/__init__.py", "lockstep.py"]
)
def test_a_job_may_bring_modules_of_any_name(api: Api, name: str) -> None:
    archive = code(["my_task.py", name])
    assert put(api, archive).status_code == 201
    train = {**TRAIN["train"], "task": "my_task.py:Mine"}
    assert (
        api.submit({**TRAIN, "train": train, "code": {"upload": digest(archive)}}).status_code
        == 201
    )
    assert api.submit({**SCRIPT, "code": {"upload": digest(archive)}}).status_code == 201


def test_another_media_type_is_refused_before_the_body_is_read(api: Api) -> None:
    found = problem(put(api, b"{}", "application/json"), 415, "media_type")
    assert "application/gzip" in found["detail"]


def test_a_full_disk_is_reported_and_leaves_no_file(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = api.uploads()
    monkeypatch.setattr(type(api.blobs), "put_file", full)
    found = problem(put(api, code(["no_room.py"])), 507, "storage_full")
    assert "free space" in found["next_step"]
    assert api.uploads() == before
