"""Kept files by the names of the list, over several nodes."""

from __future__ import annotations

from pathlib import Path

from lockstep.storage.attempts import kept_files
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from tests.storage import kept, scenes


def test_each_name_of_the_list_finds_its_file(database: Database, tmp_path: Path) -> None:
    first, second = scenes.gang(database)
    blobs = BlobStore(str(tmp_path / "store"))
    files = {"a": b"1", "node0/a": b"2", "node5/b": b"3", "c\nd": b"4", "node1/a": b"777"}
    kept.store(database, blobs, first, files)
    kept.store(database, blobs, second, {"a": b"55", "x/y\n": b"66"})
    with database.jobs() as session:
        listed = kept_files.of_job(session, first.job_id)
        assert [(each.name, each.file.bytes) for each in listed] == [
            *(("a", 1), ("c\nd", 1), ("node0/a", 1), ("node0/node1/a", 3)),
            *(("node1/a", 2), ("node1/x/y\n", 2), ("node5/b", 1)),
        ]
        for each in listed:
            assert kept_files.named(session, first.job_id, each.name) == each.file
        for name in ("b", "node1/b", "node2/a", "node1/", "c", "x/y\n"):
            assert kept_files.named(session, first.job_id, name) is None
