"""Deletion of kept files beyond their retention, in a thread: a store may hang.

Not here: the deletion itself (``storage.jobs.retention``).
"""

from __future__ import annotations

import threading

import structlog

from lockstep.storage.db.database import Database
from lockstep.storage.jobs import retention
from lockstep.storage.objects.blobs import BlobStore

log = structlog.get_logger("scheduler")


class KeptFilesRetention:
    """Thread that looks for due files at intervals. Several schedulers may run one each."""

    def __init__(self, database: Database, blobs: BlobStore, *, every_seconds: float):
        self._database = database
        self._blobs = blobs
        self._every_seconds = every_seconds
        self._thread = threading.Thread(target=self._run, name="kept-files", daemon=True)
        self._ended = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the deletion that runs now; does not wait for it."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._every_seconds):
            try:
                self._expire()
            except Exception as error:  # noqa: BLE001 -- database or store is away: the next time
                log.warning("kept files are not deleted yet", error=repr(error))

    def _expire(self) -> None:
        with self._database.read_jobs() as session:
            due = retention.due_files(session)
        for one in due:
            if self._ended.is_set():
                return
            if retention.expire_files(self._database, self._blobs, one):
                log.info("expired", job=one.job_id, what=one.what, days=one.days)
