"""Code from git: a submit resolves the ref to a commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import SCRIPT, Api, problem
from tests.harness.builders import Repository
from tests.storage import scenes


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def from_git(url: str, **ref: str) -> dict[str, Any]:
    return {**SCRIPT, "code": {"git": url, **ref}}


def test_the_job_keeps_the_commit_that_its_branch_was_at_the_submit(
    api: Api, repository: Repository
) -> None:
    first = repository.commit(train="1")
    document = from_git(repository.url, ref="main")
    answer = api.submit(document)
    assert answer.status_code == 201, answer.text
    second = repository.commit(train="2")
    assert answer.json()["spec"] == document, "as it was written"
    assert scenes.job_of(api.database, answer.json()["id"]).spec["code"] == {
        "git": repository.url,
        "ref": first,
    }
    planned = api.http.post("/v1/jobs/plan", json=from_git(repository.url))
    assert planned.json()["spec"]["code"]["ref"] == second, "HEAD where nothing else is asked for"


def test_a_missing_ref_or_repository_is_refused_and_nothing_is_written(
    api: Api, repository: Repository
) -> None:
    repository.commit(train="1")
    before = api.rows()
    for document, pointer, message in (
        (from_git(repository.url, ref="nope"), "/code/ref", "no branch or tag 'nope'"),
        (from_git(f"{repository.url}-away"), "/code/git", "does not answer"),
    ):
        for address in ("/v1/jobs", "/v1/jobs/plan"):
            found = problem(api.http.post(address, json=document), 422, "invalid")
            (error,) = found["errors"]
            assert error["pointer"] == pointer
            assert message in error["message"]
            assert error["next_step"]
    assert api.rows() == before


def test_a_repeat_answers_with_its_job_without_the_repository(
    api: Api, repository: Repository
) -> None:
    repository.commit(train="1")
    first = api.submit(from_git(repository.url), **{"Idempotency-Key": "k"})
    repository.folder.rename(repository.folder.with_name("elsewhere"))
    again = api.submit(from_git(repository.url), **{"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


def test_a_clone_runs_the_commit_that_the_first_job_ran(api: Api, repository: Repository) -> None:
    first = repository.commit(train="1")
    job_id = api.job_id(from_git(repository.url, ref="main"))
    repository.commit(train="2")
    made = api.http.post(f"/v1/jobs/{job_id}/clone", json={}).json()
    assert scenes.job_of(api.database, made["id"]).spec["code"]["ref"] == first
