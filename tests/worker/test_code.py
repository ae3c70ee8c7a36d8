"""Transfer of a job's code to the node."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from lockstep.domain import limits
from lockstep.domain.spec.job import GitCode, PathCode, UploadedCode
from lockstep.storage.objects.blobs import BlobStore
from lockstep.worker.launch import code
from tests.harness.builders import Repository


def _archive(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def _file(name: str) -> tarfile.TarInfo:
    return tarfile.TarInfo(name)


def _link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    link = tarfile.TarInfo(name)
    link.type = kind
    link.linkname = target
    return link


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(str(tmp_path / "store"))


def _upload(blobs: BlobStore, archive: Path) -> UploadedCode:
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    blobs.put_file(archive, f"uploads/{digest}.tar.gz")
    return UploadedCode(upload=digest)


def test_an_upload_is_unpacked_at_the_target(tmp_path: Path, blobs: BlobStore) -> None:
    archive = _archive(
        tmp_path / "a.tar.gz", [(_file("train.py"), b"print(1)"), (_file("lib/x.py"), b"")]
    )
    code.bring(_upload(blobs, archive), tmp_path / "code", blobs)
    assert (tmp_path / "code/train.py").read_bytes() == b"print(1)"
    assert (tmp_path / "code/lib/x.py").exists()


def test_pointers_in_an_upload_are_named(tmp_path: Path, blobs: BlobStore) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    archive = _archive(tmp_path / "a.tar.gz", [(_file("w.bin"), pointer), (_file("a.py"), b"x")])
    upload = _upload(blobs, archive)
    for _ in range(2):  # a preparation may be repeated
        told = code.bring(upload, tmp_path / "code", blobs)
        assert told.startswith("w.bin is a pointer to content that git keeps elsewhere")
        assert told.endswith("run `git lfs pull` in the folder, and submit it again")


def test_an_interrupted_unpacking_leaves_no_code(tmp_path: Path, blobs: BlobStore) -> None:
    members = [(_file("train.py"), b"half"), (_file("../out.py"), b"")]
    upload = _upload(blobs, _archive(tmp_path / "a.tar.gz", members))
    node = tmp_path / "node"
    node.mkdir()
    with pytest.raises(code.CodeUnavailableError, match="cannot be unpacked"):
        code.bring(upload, node / "code", blobs)
    assert list(node.iterdir()) == []


def test_a_blob_whose_content_differs_from_its_digest_is_refused(
    tmp_path: Path, blobs: BlobStore
) -> None:
    archive = _archive(tmp_path / "a.tar.gz", [(_file("train.py"), b"1")])
    blobs.put_file(archive, f"uploads/{'0' * 64}.tar.gz")
    with pytest.raises(code.CodeUnavailableError, match="damaged: sha256"):
        code.bring(UploadedCode(upload="0" * 64), tmp_path / "code", blobs)
    assert not (tmp_path / "code").exists()


def test_a_missing_upload_is_named(tmp_path: Path, blobs: BlobStore) -> None:
    with pytest.raises(code.CodeUnavailableError, match="no longer in the store"):
        code.bring(UploadedCode(upload="1" * 64), tmp_path / "code", blobs)


@pytest.mark.parametrize(
    "member",
    [
        _file("../out.py"),
        _file("/tmp/lockstep-test-out.py"),
        _link("out", "../../etc"),
        _link("out", "/etc/passwd"),
        _link("out", "../secret", tarfile.LNKTYPE),
        _link("out", "train.py", tarfile.LNKTYPE),
        _link("device", "", tarfile.CHRTYPE),
    ],
    ids=["parent", "absolute", "link-up", "link-absolute", "hardlink-up", "hardlink", "device"],
)
def test_a_member_that_leads_out_is_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    archive = _archive(tmp_path / "a.tar.gz", [(member, b"")])
    target = tmp_path / "inside" / "code"
    target.parent.mkdir()
    with pytest.raises(code.CodeUnavailableError, match="cannot be unpacked: member"):
        code.unpack(archive, target)
    assert not Path("/tmp/lockstep-test-out.py").exists()
    assert not (tmp_path / "inside/out.py").exists()


def test_a_link_that_stays_inside_is_unpacked(tmp_path: Path) -> None:
    members = [
        (_file("pkg/v1/x.py"), b"1"),
        (_link("pkg/latest", "v1"), b""),
        (_link("pkg/v1/up", "../.."), b""),
    ]
    target = tmp_path / "code"
    code.unpack(_archive(tmp_path / "a.tar.gz", members), target)
    assert (target / "pkg/latest/x.py").read_text() == "1"
    assert (target / "pkg/v1/up").resolve() == target


@pytest.mark.parametrize(
    "members",
    [
        [(_file("d/f.py"), b""), (_link("d/up", ".."), b""), (_link("out", "d/up/../x"), b"")],
        [(_link("out", "d/up/../x"), b""), (_file("d/f.py"), b""), (_link("d/up", ".."), b"")],
        [(_file("e/g.py"), b""), (_link("d", "e"), b""), (_file("d/f.py"), b"")],
        [(_file("e"), b""), (_link("d", "e"), b""), (_file("d"), b"written through the link")],
        [(_file("e/g.py"), b""), (_file("d/f.py"), b""), (_link("d", "e"), b"")],
    ],
    ids=["through", "through-later", "behind", "same-name", "behind-later"],
)
def test_no_member_is_reached_through_a_link(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    with pytest.raises(code.CodeUnavailableError, match="cannot be unpacked: member"):
        code.unpack(_archive(tmp_path / "a.tar.gz", members), tmp_path / "code")


@pytest.mark.parametrize(
    "names",
    [("a", "a"), ("a", "./a"), ("a", "a/b"), ("a/b", "a")],
    ids=["twice", "twice by another text", "below a file", "in place of a folder"],
)
def test_a_name_is_used_once(tmp_path: Path, names: tuple[str, ...]) -> None:
    archive = _archive(tmp_path / "a.tar.gz", [(_file(name), b"1") for name in names])
    with pytest.raises(code.CodeUnavailableError, match=r"member '.+' (is twice|makes the same)"):
        code.unpack(archive, tmp_path / "code")


def test_a_file_keeps_no_more_than_the_right_to_run(tmp_path: Path) -> None:
    run, plain = _file("bin/run"), _file("plain")
    run.mode, plain.mode, run.uid = 0o6755, 0o666, 12345
    code.unpack(_archive(tmp_path / "a.tar.gz", [(run, b"x"), (plain, b"")]), tmp_path / "code")
    modes = [(tmp_path / "code" / name).stat() for name in ("bin/run", "plain")]
    assert [stat.S_IMODE(found.st_mode) for found in modes] == [0o700, 0o600]
    assert modes[0].st_uid == os.getuid()


def test_an_archive_that_unpacks_to_too_much_is_refused_by_its_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UPLOAD_UNPACKED_BYTES_MAX", 1000)
    archive = _archive(tmp_path / "a.tar.gz", [(_file("a"), b"0" * 600), (_file("b"), b"0" * 600)])
    with pytest.raises(code.CodeUnavailableError, match="larger than 1000 bytes"):
        code.unpack(archive, tmp_path / "code")
    assert not (tmp_path / "code/b").exists()


def test_an_archive_with_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UPLOAD_FILES_MAX", 2)
    archive = _archive(tmp_path / "a.tar.gz", [(_file(name), b"") for name in "abc"])
    with pytest.raises(code.CodeUnavailableError, match="more than 2 files"):
        code.unpack(archive, tmp_path / "code")


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "a.tar.gz", [(_file("a"), bytes(range(256)) * 100)])
    archive.write_bytes(archive.read_bytes()[:-60])
    with pytest.raises(code.CodeUnavailableError, match="cannot be unpacked"):
        code.unpack(archive, tmp_path / "code")


def test_a_folder_on_the_node_is_used_without_a_copy(tmp_path: Path, blobs: BlobStore) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train.py").write_text("1")
    code.bring(PathCode(path=str(tmp_path / "mine")), tmp_path / "code", blobs)
    assert (tmp_path / "code").resolve() == (tmp_path / "mine").resolve()


def test_a_folder_that_is_not_on_the_node_is_named(tmp_path: Path, blobs: BlobStore) -> None:
    with pytest.raises(code.CodeUnavailableError, match="there is no folder"):
        code.bring(PathCode(path=str(tmp_path / "absent")), tmp_path / "code", blobs)


def test_a_job_without_code_works_in_an_empty_folder(tmp_path: Path, blobs: BlobStore) -> None:
    for _ in range(2):
        code.bring(None, tmp_path / "code", blobs)
    assert list((tmp_path / "code").iterdir()) == []


def test_code_from_git_is_the_commit_of_the_spec(tmp_path: Path, blobs: BlobStore) -> None:
    repository = Repository(tmp_path / "repository")
    first = repository.commit(train="1")
    repository.commit(train="2")
    code.bring(GitCode(git=repository.url, ref=first), tmp_path / "code", blobs)
    assert (tmp_path / "code/train.py").read_text() == "1"


def test_a_missing_commit_is_permanent_and_a_missing_repository_temporary(
    tmp_path: Path, blobs: BlobStore
) -> None:
    repository = Repository(tmp_path / "repository")
    repository.commit(train="1")
    with pytest.raises(code.CodeUnavailableError, match="has no commit"):
        code.bring(GitCode(git=repository.url, ref="0" * 40), tmp_path / "code", blobs)
    with pytest.raises(OSError, match="does not appear to be a git repository"):
        code.bring(GitCode(git=f"{repository.url}-away", ref="0" * 40), tmp_path / "code", blobs)
