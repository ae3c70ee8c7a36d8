"""Kept files over the client: the list, downloads that stay in their folder, deletion."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lockstep.client.api import Client
from lockstep.client.errors import ClientError, NotFoundError
from lockstep.client.files import kept
from lockstep.client.files.checkpoints import DigestMismatchError
from lockstep.client.files.kept import FetchedFiles, UnsafePathError
from lockstep.domain.file_views import KeptFilesPage, KeptFileView
from tests.client.server import Answer, ReplayServer, problem

FILES = "/v1/jobs/tiny/files"
BIG = bytes(range(256)) * 9_000


def listed(path: str, content: bytes = b"x", *, executable: bool = False) -> KeptFileView:
    return KeptFileView(
        path=path,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        modified_at=datetime(2026, 11, 20, tzinfo=UTC),
        executable=executable,
        attempt=1,
    )


def page(*files: KeptFileView, cursor: str | None = None) -> KeptFilesPage:
    return KeptFilesPage(
        items=list(files), next_cursor=cursor, total=len(files), total_bytes=0, as_of=None
    )


def body(content: bytes, *, start: int = 0, cut: int | None = None) -> Answer:
    tag = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
    return Answer(206 if start else 200, content[start:], tag, cut=cut)


def fetch(server: ReplayServer, folder: Path) -> tuple[FetchedFiles, list[Path]]:
    wrote: list[Path] = []
    with Client(server.url, "t", patience_seconds=0) as client:
        found = kept.fetch(client, "tiny", (), folder, begins=lambda _: None, wrote=wrote.append)
    return found, wrote


def test_the_list_has_all_pages_of_the_pattern(server: ReplayServer) -> None:
    server.on("GET", FILES, page(listed("a"), listed("b"), cursor="b"), page(listed("c")))
    with Client(server.url, "t") as client:
        assert [file.path for file in client.files("tiny", ["*.pt", "out/"]).items] == [*"abc"]
    asked = server.requests("GET", FILES)
    assert [each.query["match"] for each in asked] == [["*.pt", "out/"]] * 2
    assert [each.query.get("cursor") for each in asked] == [None, ["b"]]


def test_a_download_is_verified_resumed_and_not_repeated(
    server: ReplayServer, tmp_path: Path
) -> None:
    server.on(
        "GET", FILES, page(listed("out/a b?.pt", BIG), listed("go.sh", b"#!", executable=True))
    )
    server.on(
        "GET",
        f"{FILES}/out/a%20b%3F.pt",
        body(BIG, cut=1_500_000),
        body(BIG, start=1_500_000),
    )
    server.on("GET", f"{FILES}/go.sh", body(b"#!"))
    model, script = tmp_path / "down/out/a b?.pt", tmp_path / "down/go.sh"
    assert fetch(server, tmp_path / "down") == (FetchedFiles(2, 0), [model, script])
    assert model.read_bytes() == BIG
    assert model.stat().st_mtime == datetime(2026, 11, 20, tzinfo=UTC).timestamp()
    assert (bool(model.stat().st_mode & 0o100), bool(script.stat().st_mode & 0o100)) == (0, 1)
    asked = len(server.asked)
    assert fetch(server, tmp_path / "down") == (FetchedFiles(0, 2), [])
    assert len(server.asked) == asked + 1
    model.write_bytes(BIG[:-1] + b"x")
    server.on("GET", f"{FILES}/out/a%20b%3F.pt", body(BIG))
    assert fetch(server, tmp_path / "down") == (FetchedFiles(1, 1), [model])
    assert model.read_bytes() == BIG


@pytest.mark.parametrize(
    "path",
    [
        "../outside", "a/../../outside", "a/..", "..", ".", "", "/etc/outside", "//outside",
        "a//b", "a/./b", "a/", "a\0b",
    ],
)  # fmt: skip
def test_a_path_that_leads_out_of_the_folder_is_refused_by_name(
    server: ReplayServer, tmp_path: Path, path: str
) -> None:
    server.on("GET", FILES, page(listed("fine"), listed(path)))
    server.on("GET", f"{FILES}/fine", body(b"x"))
    with pytest.raises(UnsafePathError) as refused:
        fetch(server, tmp_path / "in/down")
    assert refused.value.message.startswith(f"the server lists {path!r}, which is not a path below")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_through_a_link(server: ReplayServer, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "down").mkdir()
    (tmp_path / "down/out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "down/b").symlink_to(tmp_path / "elsewhere/b")
    for path in ("out/a", "b"):
        server.on("GET", FILES, page(listed(path)))
        with pytest.raises(UnsafePathError, match="is a link, and nothing is written through"):
            fetch(server, tmp_path / "down")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_damaged_and_missing_contents_leave_the_old_file_and_the_others_arrive(
    server: ReplayServer, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"old")
    server.on("GET", FILES, page(listed("a"), listed("b"), listed("c")))
    server.on("GET", f"{FILES}/a", Answer(200, b"y", {"ETag": f'"{listed("a").sha256}"'}))
    server.on("GET", f"{FILES}/b", problem(404, "not_found", "no longer has the contents"))
    server.on("GET", f"{FILES}/c", body(b"x"))
    with pytest.raises(DigestMismatchError, match="'a' arrived damaged"):
        fetch(server, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old", "c": b"x"}
    server.on("GET", f"{FILES}/a", body(b"x"))
    with pytest.raises(NotFoundError, match="no longer has the contents"):
        fetch(server, tmp_path)


def test_a_file_that_the_job_replaces_meanwhile_arrives_as_it_is_now(
    server: ReplayServer, tmp_path: Path
) -> None:
    server.on("GET", FILES, page(listed("a", b"old"), listed("b")), page(listed("a", b"new")))
    server.on("GET", f"{FILES}/a", body(b"new"))
    server.on("GET", f"{FILES}/b", problem(404, "not_found", "job tiny has no file 'b'"))
    assert fetch(server, tmp_path) == (FetchedFiles(1, 0), [tmp_path / "a"])
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_in_the_way_is_named(server: ReplayServer, tmp_path: Path) -> None:
    server.on("GET", FILES, page(listed("a")))
    (tmp_path / "a").mkdir()
    with pytest.raises(ClientError, match="a is a folder here and a file of the job"):
        fetch(server, tmp_path)
