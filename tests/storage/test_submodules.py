"""Submodules of a git repository are fetched by the rules of their parent, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.storage.objects import repositories
from lockstep.storage.objects.repositories import RepositoryError, RepositoryUnreachableError
from tests.harness.builders import Repository


def _with_submodule(parent: Repository, inner: Repository, address: str, path: str = "lib") -> str:
    parent.git("-c", "protocol.file.allow=always", "submodule", "add", inner.url, path)
    parent.git("config", "--file", ".gitmodules", f"submodule.{path}.url", address)
    return parent.commit()


def test_submodules_of_submodules_are_fetched_at_their_commits(tmp_path: Path) -> None:
    top, middle, inner = (Repository(tmp_path / name) for name in ("top", "middle", "inner"))
    inner.commit(deep="1")
    middle.commit(half="1")
    _with_submodule(middle, inner, "../inner", "a/deep")
    top.commit(train="1")
    commit = _with_submodule(top, middle, middle.url)
    inner.commit(deep="2")
    middle.commit(half="2")
    repositories.bring(top.url, commit, tmp_path / "code")
    assert (tmp_path / "code/lib/half.py").read_text() == "1"
    assert (tmp_path / "code/lib/a/deep/deep.py").read_text() == "1"
    assert not list((tmp_path / "code").rglob(".git"))


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("ext::touch mark", "has the address 'ext::touch mark'"),
        ("/etc", "has the address '/etc'"),
        ("https://ada:secret1@host/x", "contains a password"),
    ],
)
def test_a_forbidden_address_is_refused_with_the_name_of_the_submodule(
    tmp_path: Path, address: str, told: str
) -> None:
    top, inner = Repository(tmp_path / "top"), Repository(tmp_path / "inner")
    inner.commit(deep="1")
    commit = _with_submodule(top, inner, address)
    with pytest.raises(RepositoryError, match=f"submodule 'lib' of .*{told}"):
        repositories.bring(top.url, commit, tmp_path / "code")
    assert not (tmp_path / "code").exists()


def test_a_submodule_without_answer_is_a_temporary_error_with_its_name(tmp_path: Path) -> None:
    top, inner = Repository(tmp_path / "top"), Repository(tmp_path / "inner")
    inner.commit(deep="1")
    commit = _with_submodule(top, inner, f"file://{tmp_path}/gone")
    with pytest.raises(RepositoryUnreachableError, match=r"submodule 'lib' of .*top: git fetch"):
        repositories.bring(top.url, commit, tmp_path / "code")


def test_a_relative_address_starts_at_the_parents() -> None:
    absolute = repositories._absolute
    assert absolute("https://host/a/b.git", "../c.git") == "https://host/a/c.git"
    assert absolute("git@host:a/b.git", "../../x/c.git") == "git@host:x/c.git"
    assert absolute("https://host/a/b", "./c") == "https://host/a/b/c"


def test_content_that_git_keeps_elsewhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    (tmp_path / "a.bin").symlink_to(".git/annex/objects/x/y")
    (tmp_path / "train.py").write_text("pass")
    told = repositories.elsewhere(tmp_path)
    assert told.startswith("a.bin, w.bin are pointers to content that git keeps elsewhere")
    (tmp_path / "a.bin").unlink()
    (tmp_path / "w.bin").unlink()
    assert repositories.elsewhere(tmp_path) == ""
