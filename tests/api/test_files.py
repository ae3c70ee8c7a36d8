"""Kept files over HTTP: the list, one file as an attachment, and deletion."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from urllib.parse import quote

import pytest

from lockstep.domain.life.outcomes import Reason
from lockstep.storage.attempts import kept_files
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.attempts.kept_files import KeptFile, Round, RoundResult
from tests.api.conftest import Api, problem
from tests.storage import scenes

PAGE = b"<script>alert(1)</script>"
NAMES = ("a b/ü#?.html", "ckpt.pt", "logs/a.txt", "logs/c.bin", "out/ckpt.pt")


@pytest.fixture
def claim(api: Api) -> Claim:
    """Claim a job with five files of the same content."""
    made = scenes.run(api.database, name="first")
    place = f"files/{made.job_id}/1/{made.assignment_id}"
    sha256 = hashlib.sha256(PAGE).hexdigest()
    put = [
        KeptFile(path, sha256, len(PAGE), 1e9, False, 1, f"{place}/{number}")
        for number, path in enumerate(NAMES)
    ]
    for each in put:
        api.blobs.write(each.location, PAGE)
    with api.database.jobs() as session:
        changes = Round(0, put, [], complete=False, age_seconds=12.0)
        stored = kept_files.publish(session, made.assignment_id, made.token, changes)
        assert stored is RoundResult.YES
    return made


def test_the_list_has_pages_patterns_and_a_tag(api: Api, claim: Claim) -> None:
    address = f"/v1/jobs/{claim.job_id}/files"
    answer = api.http.get(address, params={"limit": 2})
    found = answer.json()
    assert [one["path"] for one in found["items"]] == list(NAMES[:2])
    assert (found["total"], found["total_bytes"]) == (5, 5 * len(PAGE))
    rest = api.http.get(address, params={"cursor": found["next_cursor"]}).json()
    assert [one["path"] for one in rest["items"]] == list(NAMES[2:])
    assert rest["next_cursor"] is None
    stored_at = datetime.fromisoformat(found["as_of"])
    assert 12 <= (datetime.now(UTC) - stored_at).total_seconds() < 60
    for match, expected in (
        (["*.pt"], ["ckpt.pt", "out/ckpt.pt"]),
        (["/ckpt.pt"], ["ckpt.pt"]),
        (["logs/", "!*.txt"], ["logs/c.bin"]),
        (["logs/c.bin"], ["logs/c.bin"]),
        (["nope"], []),
    ):
        found = api.http.get(address, params={"match": match}).json()
        assert [one["path"] for one in found["items"]] == expected
    same = api.http.get(address, headers={"If-None-Match": answer.headers["etag"]})
    assert same.status_code == 304
    problem(api.http.get(address, params={"match": "!"}), 422, "invalid")


@pytest.mark.parametrize("path", NAMES)
def test_a_file_is_an_attachment_in_a_sandbox(api: Api, claim: Claim, path: str) -> None:
    address = f"/v1/jobs/{claim.job_id}/files/{quote(path)}"
    answer = api.http.get(address)
    assert answer.content == PAGE
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    disposition = answer.headers["content-disposition"]
    assert disposition.startswith("attachment; filename")
    assert disposition.isascii()
    part = api.http.get(address, headers={"Range": "bytes=8-"})
    assert (part.status_code, part.content) == (206, PAGE[8:])
    tag = {"If-None-Match": answer.headers["etag"]}
    assert api.http.get(address, headers=tag).status_code == 304


def test_what_is_missing_or_damaged_is_named(api: Api, claim: Claim) -> None:
    address = f"/v1/jobs/{claim.job_id}/files"
    for path, words in (("out", "has no file 'out'"), ("../../jobs", "Not Found"), ("", "")):
        answer = api.http.get(f"{address}/{quote(path, safe='')}")
        assert answer.status_code == 404, path
        assert words in answer.text or path == "../../jobs"
    place = f"files/{claim.job_id}/1/{claim.assignment_id}"
    api.blobs.write(f"{place}/1", b"short")
    api.blobs.delete_files([f"{place}/2"])
    for name, words in (("ckpt.pt", "has damaged contents of"), ("logs/a.txt", "no longer has")):
        detail = problem(api.http.get(f"{address}/{name}"), 404, "not_found")["detail"]
        assert words in detail


def test_deleted_files_leave_the_list_and_the_store(api: Api, claim: Claim) -> None:
    address = f"/v1/jobs/{claim.job_id}/files"
    refused = problem(api.http.delete(address, params={"match": "*.pt"}), 409, "conflict")
    assert refused["next_step"] == "delete them once it has ended or is paused"
    scenes.end(api.database, claim, Reason.SUCCEEDED)
    problem(api.http.delete(address), 422, "invalid")
    heir = scenes.submit(api.database, continues=claim.job_id)
    held = problem(api.http.delete(address, params={"match": "*.pt"}), 409, "conflict")
    assert f"({heir}) has not ended and starts from" in held["detail"]
    api.http.post(f"/v1/jobs/{heir}/cancel")
    answer = api.http.delete(address, params={"match": ["*.pt", "logs/"]})
    assert answer.json() == {"files": 4, "bytes": 4 * len(PAGE)}
    found = api.http.get(address).json()
    assert [one["path"] for one in found["items"]] == [NAMES[0]]
    assert len(api.blobs.find(f"files/{claim.job_id}")) == 1
    assert api.http.delete(address, params={"match": "*.pt"}).json() == {"files": 0, "bytes": 0}
