"""Git repositories: a ref resolves as in git, and a commit's files are its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.domain import limits
from lockstep.storage.objects import repositories
from lockstep.storage.objects.repositories import RepositoryError, RepositoryUnreachableError
from tests.harness.builders import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def test_branches_tags_and_head_resolve_as_in_git(repository: Repository) -> None:
    first = repository.commit(train="1")
    repository.git("tag", "light")
    repository.git("tag", "--annotate", "heavy", "--message", "x")
    second = repository.commit(train="2")
    repository.git("branch", "side/way", first)
    expected = {
        "HEAD": second,
        "main": second,
        "refs/heads/main": second,
        "light": first,
        "heavy": first,
        "side/way": first,
    }
    assert {ref: repositories.commit_of(repository.url, ref) for ref in expected} == expected
    assert repository.git("rev-parse", "heavy") != first, (
        "a tag with a message is an object of its own"
    )


def test_a_tag_takes_precedence_over_a_branch_as_in_git(
    repository: Repository,
) -> None:
    first = repository.commit(train="1")
    repository.git("tag", "both")
    second = repository.commit(train="2")
    repository.git("branch", "both", second)
    assert (
        repositories.commit_of(repository.url, "both")
        == first
        == repository.git("rev-parse", "both")
    )


def test_a_name_is_not_taken_for_the_end_of_another(repository: Repository) -> None:
    repository.commit(train="1")
    repository.git("branch", "ada/fix")
    with pytest.raises(RepositoryError, match="no branch or tag 'fix'"):
        repositories.commit_of(repository.url, "fix")


def test_a_full_commit_id_is_accepted_without_a_request() -> None:
    assert repositories.commit_of("https://nowhere.invalid/x", "0" * 40) == "0" * 40


def test_a_repository_without_answer_is_reported_with_gits_reason(tmp_path: Path) -> None:
    with pytest.raises(RepositoryUnreachableError, match="does not appear to be a git repository"):
        repositories.commit_of(f"file://{tmp_path}/none", "main")


def test_another_transport_is_refused_by_git_itself(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with pytest.raises(RepositoryUnreachableError, match="transport 'ext' not allowed"):
        repositories.commit_of(f"ext::touch {mark}", "main")
    assert not mark.exists()


def test_a_commit_without_a_ref_is_fetched_without_its_history(
    repository: Repository, tmp_path: Path
) -> None:
    first = repository.commit(train="1", gone="x")
    (repository.folder / "gone.py").unlink()
    repository.commit(train="2")
    for number in range(2):
        target = tmp_path / f"code{number}"
        repositories.bring(repository.url, first, target)
        assert {path.name: path.read_text() for path in target.iterdir()} == {
            "train.py": "1",
            "gone.py": "x",
        }
        repository.git("config", "uploadpack.allowAnySHA1InWant", "false")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_missing_commit_is_a_permanent_error(repository: Repository, tmp_path: Path) -> None:
    repository.commit(train="1")
    with pytest.raises(RepositoryError, match="has no commit 0000"):
        repositories.bring(repository.url, "0" * 40, tmp_path / "code")
    assert not (tmp_path / "code").exists()


@pytest.mark.parametrize(
    ("limit", "value"), [("UPLOAD_FILES_MAX", 1), ("UPLOAD_UNPACKED_BYTES_MAX", 5)]
)
def test_a_commit_over_the_limit_is_refused_before_it_is_written(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    found = repository.commit(train="123", more="456")
    monkeypatch.setattr(limits, limit, value)
    with pytest.raises(RepositoryError, match=str(value)):
        repositories.bring(repository.url, found, tmp_path / "code")
    assert not (tmp_path / "code").exists()


def test_a_filter_or_hook_of_the_repository_runs_nothing(
    repository: Repository, tmp_path: Path
) -> None:
    hook = repository.folder / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    (repository.folder / ".gitattributes").write_text("*.py filter=evil\n")
    found = repository.commit(train="1")
    repositories.bring(repository.url, found, tmp_path / "code")
    assert (tmp_path / "code/train.py").read_text() == "1"
    assert not (tmp_path / "ran").exists()
