"""A running job whose files are kept: real databases, store and folder; no agent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from lockstep.domain.life.attempt import AssignmentFile
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.reading import read_spec
from lockstep.storage.attempts import events, kept_files
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.attempts.kept_files import KeptSet, Round
from lockstep.storage.db.database import Database
from lockstep.storage.db.file_tables import KeptFileRow, KeptRoundRow
from lockstep.storage.objects.blobs import BlobStore
from lockstep.worker.folders import Folder
from lockstep.worker.upload.kept import restoring, rounds
from lockstep.worker.upload.kept.rounds import KeptFilesUploader
from lockstep.worker.upload.stream import Stream
from tests.storage import scenes

SCRIPT = {
    "kind": "script",
    "script": {"command": ["true"]},
    "train": None,
    "resources": {"gpus": 1},
}


class Job:
    """A running job with its folder, as an agent has it."""

    def __init__(self, database: Database, blobs: BlobStore, folder: Path, **spec: Any) -> None:
        self.database, self.blobs, self.top = database, blobs, folder
        self.document = {**SCRIPT, **spec}
        scenes.add_node(database)
        self.job_id = scenes.submit(database, **self.document)
        self.events: list[tuple[str, str]] = []
        self.now = 0.0
        self.monkeypatch = pytest.MonkeyPatch()
        self.begin()

    def begin(self, code: Callable[[Path], None] = lambda _code: None) -> None:
        """Start an attempt; ``code`` writes the unpacked code."""
        self.claim: Claim = scenes.start(self.database, self.job_id)
        self.folder = Folder(self.top / self.claim.assignment_id)
        self.folder.create()
        self.work = self.folder.file("code")
        self.work.mkdir()
        code(self.work)
        self.bring()
        self.restart()

    def bring(self) -> None:
        spec = read_spec(scenes.document(**self.document))
        restoring.bring(self.folder, self.claim, spec, self.database, self.blobs)

    def restart(self) -> None:
        """Begin as a new agent does."""
        claim = self.claim
        assignment = AssignmentFile.model_construct(
            spec=read_spec(scenes.document(**self.document)), node_rank=claim.node_rank
        )
        stream = Stream(claim.assignment_id, claim.job_id, claim.attempt_number, claim.token)
        self.files = KeptFilesUploader(
            self.database,
            self.blobs,
            self.folder,
            stream,
            assignment,
            report=lambda kind, message, _data: self.events.append((kind, message)),
            every_seconds=60,
            clock=lambda: self.now,
        )

    def end(self, reason: Reason = Reason.LOST) -> None:
        scenes.end(self.database, self.claim, reason)
        scenes.release(self.database, self.claim)

    def write(self, path: str, content: str | bytes = "x", *, age_seconds: float = 0.0) -> Path:
        target = self.work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def round(self, *, last: bool = False) -> None:
        self.now += 60
        while self.files.step(last):
            pass

    def rest(self) -> None:
        """Let all files be still. A change's time cannot be set."""
        self.monkeypatch.setattr(rounds, "STILL_SECONDS", 0.0)

    @property
    def kept(self) -> dict[str, bytes]:
        """Path and contents of what is kept."""
        with self.database.read_jobs() as session:
            found = kept_files.of_job(session, self.job_id)
        return {each.name: self.blobs.read(each.file.location) for each in found}

    @property
    def restored(self) -> str:
        """Message of the event of the last restore."""
        with self.database.read_jobs() as session:
            found = events.page(session, self.job_id, order="newest", limit=9)
        return next(each.message for each in found if each.kind == "files_restored")

    def set_back(self, backup: KeptSet) -> None:
        """Set the rows back, as a restore of the database does."""
        with self.database.jobs() as session:
            for row in (KeptFileRow, KeptRoundRow):
                session.execute(delete(row).where(row.job_id == self.job_id))
            claim = self.claim
            changes = Round(0, [*backup.files.values()], [], complete=False, age_seconds=0.0)
            kept_files.publish(session, claim.assignment_id, claim.token, changes)

    @property
    def stored(self) -> list[str]:
        """Keys of contents in the store."""
        found = self.blobs.find(f"files/{self.job_id}")
        return [key for key in found if not key.endswith("/index.json")]
