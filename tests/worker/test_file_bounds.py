"""Bounds of the files that the service reads from an attempt's folder: at the bound, and past it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import ResultFile
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.engine.launcher.files import read_object
from lockstep.storage.objects.unpublished import UnsafeCheckpointError, manifest_in
from lockstep.system.untrusted import Untrusted
from lockstep.worker.folders import DamagedFileError, Folder


def test_a_result_that_the_disk_cannot_read_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read at the begin of a process's memory fails as one of a broken disk does."""
    monkeypatch.setattr(attempt, "RESULT", "mem")
    with pytest.raises(DamagedFileError, match="Input/output error"):
        Folder(Path(f"/proc/{os.getpid()}")).result()


def test_a_result_has_at_most_its_bytes(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "attempt")
    folder.create()
    result = ResultFile(outcome=Outcome.of(Reason.SUCCEEDED, "done"), ended_at=1.0)
    file = folder.file("result.json")
    file.write_text(result.model_dump_json().ljust(limits.RESULT_BYTES_MAX))
    assert folder.result() == result
    file.write_text(result.model_dump_json().ljust(limits.RESULT_BYTES_MAX + 1))
    with pytest.raises(DamagedFileError):
        folder.result()


def test_the_evidence_of_a_rank_has_at_most_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "rank0.json"
    file.write_text('{"step": 1}'.ljust(limits.EVIDENCE_BYTES_MAX))
    assert read_object(Untrusted(tmp_path), file.name) == {"step": 1}
    file.write_text('{"step": 1}'.ljust(limits.EVIDENCE_BYTES_MAX + 1))
    assert read_object(Untrusted(tmp_path), file.name) is None


@pytest.mark.parametrize("past", [0, 1])
def test_a_checkpoint_has_at_most_its_files_and_its_manifest_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, past: int
) -> None:
    monkeypatch.setattr(limits, "CHECKPOINT_FILES_MAX", 3)
    names = [f"part{number}" for number in range(3 + past)]
    for name in names:
        (tmp_path / name).touch()
    empty = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    document = {"format": 1, "step": 1, "files": dict.fromkeys(names, empty)}
    for size in (limits.MANIFEST_BYTES_MAX, limits.MANIFEST_BYTES_MAX + 1):
        text = json.dumps(document).ljust(size).encode()
        (tmp_path / "manifest.json").write_bytes(text)
        try:
            manifest_in(Untrusted(tmp_path.parent), tmp_path.name, hashlib.sha256(text).hexdigest())
            kept = True
        except UnsafeCheckpointError:
            kept = False
        assert kept == (not past and size == limits.MANIFEST_BYTES_MAX)
