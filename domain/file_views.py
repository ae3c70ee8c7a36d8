"""Responses about the files that a job keeps."""

from __future__ import annotations

from datetime import datetime

from lockstep.domain.views import Page, View


class KeptFileView(View):
    path: str
    """Below the job's working folder; of further nodes below ``node<N>/``."""
    bytes: int
    sha256: str
    modified_at: datetime
    """By the clock of the node."""
    executable: bool
    attempt: int
    """The one that wrote it."""


class KeptFilesPage(Page[KeptFileView]):
    """One page of a job's files, by path."""

    total: int
    """Files of all pages."""
    total_bytes: int
    as_of: datetime | None
    """Time of the last round in which a node stored its files; null before the first."""


class RemovedFiles(View):
    """Deleted files."""

    files: int
    bytes: int
