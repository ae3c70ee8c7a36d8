"""Deletions in the store, in a thread: a store may hang.

Kept files beyond their retention, and jobs whose deletion was interrupted.

Not here: the deletions themselves (``storage.jobs.retention``, ``storage.jobs.removal``).
"""

from __future__ import annotations

import threading

import structlog

from lockstep.storage.db.database import Database
from lockstep.storage.jobs import removal, retention
from lockstep.storage.objects.blobs import BlobStore

log = structlog.get_logger("scheduler")


class StoreDeletions:
    """Thread that looks for due deletions at intervals. Several schedulers may run one each."""

    def __init__(self, database: Database, blobs: BlobStore, *, every_seconds: float):
        self._database = database
        self._blobs = blobs
        self._every_seconds = every_seconds
        self._thread = threading.Thread(target=self._run, name="deletions", daemon=True)
        self._ended = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the deletion that runs now; does not wait for it."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._every_seconds):
            try:
                self.delete_due()
            except Exception as error:  # noqa: BLE001 -- database or store is away: the next time
                log.warning("files are not deleted yet", error=repr(error))

    def delete_due(self) -> None:
        """Delete what is due now, until the thread is stopped."""
        with self._database.read_jobs() as session:
            due = retention.due_files(session)
            marked = removal.marked(session)
        for job_id in marked:
            if not self._ended.is_set() and removal.finish(self._database, self._blobs, job_id):
                log.info("finished the deletion of a job", job=job_id)
        for one in due:
            if not self._ended.is_set() and retention.expire_files(
                self._database, self._blobs, one
            ):
                log.info("expired", job=one.job_id, what=one.what, days=one.days)
