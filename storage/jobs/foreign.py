"""Ids and texts that mention jobs, without the jobs that their reader may not read.

Reasons and events are stored for all readers, and name other jobs as ``job ID`` or ``NAME (ID)``.

Not here: finding jobs (``storage.jobs.jobs``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from lockstep.domain.rights import Within
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs.columns import readable

OTHER: Final = "a job of another project"
_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_MENTION: Final = re.compile(rf"[^\s(]+ \(({_ID.pattern})\)|(?:job )?({_ID.pattern})")


class Mentions:
    """Jobs that a response mentions, for a reader of some projects.

    Parameters
    ----------
    session : Session
    texts : iterable of str or None
        All texts and ids of the response: their jobs are looked up at once.
    among : Within
        Projects that the reader may read.
    """

    def __init__(self, session: Session, texts: Iterable[str | None], *, among: Within):
        self._hides = among.projects is not None
        ids = (
            {each for text in texts if text for each in _ID.findall(text)} if self._hides else set()
        )
        self._readable: set[str] = set()
        if ids:
            found = select(JobRow.id).where(readable(among), JobRow.id.in_(ids))
            self._readable = set(session.scalars(found))

    def job_id(self, job_id: str | None) -> str | None:
        """Return an id, or None for a job that the reader may not read."""
        return job_id if not self._hides or job_id in self._readable else None

    def text(self, text: str) -> str:
        """Return a text with ``OTHER`` in place of each job that the reader may not read."""
        return _MENTION.sub(self._written, text) if self._hides else text

    def _written(self, mention: re.Match[str]) -> str:
        return mention[0] if (mention[1] or mention[2]) in self._readable else OTHER
