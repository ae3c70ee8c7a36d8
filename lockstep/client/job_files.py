"""Files that a job keeps, as methods of ``client.api.Client``.

Not here: their places on this machine (``client.files.kept``), checkpoints (``client.api``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import quote

from lockstep.client.references import job_id
from lockstep.client.transport import Transport
from lockstep.domain import limits
from lockstep.domain.file_views import KeptFilesPage, KeptFileView, RemovedFiles


class FilesMethods:
    """Methods about kept files. ``match`` has paths or patterns as in ``.gitignore``."""

    transport: Transport

    def files(self, reference: str, match: Sequence[str] = ()) -> KeptFilesPage:
        """Return the files that a job keeps, by path; those that match, if patterns are given."""
        page = self.files_page(reference, match)
        items = page.items
        while page.next_cursor is not None:
            page = self.files_page(reference, match, cursor=page.next_cursor)
            items += page.items
        return page.model_copy(update={"items": items})

    def files_page(
        self,
        reference: str,
        match: Sequence[str] = (),
        *,
        limit: int = limits.KEPT_FILES_MAX,
        cursor: str | None = None,
    ) -> KeptFilesPage:
        """Return one page of the list. Its totals are of all pages."""
        params = [*_matching(match), ("limit", str(limit))]
        params += [] if cursor is None else [("cursor", cursor)]
        return self.transport.get(_files(reference), KeptFilesPage, params)

    def read_file(
        self, reference: str, file: KeptFileView, take: Callable[[bytes], object]
    ) -> None:
        """Read a file; ``take`` gets its bytes. The caller compares their digest.

        Raises
        ------
        ChangedError
            If the job has stored another file under this path since it was listed.
        """
        path = f"{_files(reference)}/{quote(file.path)}"
        self.transport.download(path, take, size=file.bytes, tag=f'"{file.sha256}"')

    def delete_files(self, reference: str, match: Sequence[str]) -> RemovedFiles:
        """Delete the matching files of a job that is not running."""
        params = _matching(match)
        reference = job_id(self.transport, reference)
        return self.transport.change("DELETE", _files(reference), RemovedFiles, params=params)


def _files(reference: str) -> str:
    return f"/v1/jobs/{quote(reference, safe='')}/files"


def _matching(patterns: Sequence[str]) -> list[tuple[str, str]]:
    return [("match", pattern) for pattern in patterns]
