"""Tables of the files that jobs keep and of retentions, in the jobs database.

Not here: their contents (``storage.objects.blobs``), and the statements
(``storage.attempts.kept_files``).
"""

from __future__ import annotations

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from lockstep.domain.limits import KEPT_PATH_CHARS_MAX
from lockstep.storage.db.columns import BigInt, LongText, Word
from lockstep.storage.db.tables import JobId, JobsBase


class KeptFileRow(JobsBase):
    """A file that a job wrote, as it was stored last."""

    __tablename__ = "kept_files"
    __table_args__ = (Index("ix_kept_files_job_id_path", "job_id", "path"),)

    job_id: Mapped[JobId] = mapped_column(primary_key=True)
    node_rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    path: Mapped[str] = mapped_column(String(KEPT_PATH_CHARS_MAX), primary_key=True)
    """Below the working folder of its node."""
    sha256: Mapped[Word]
    bytes: Mapped[BigInt]
    modified_at: Mapped[float]
    executable: Mapped[bool]
    attempt: Mapped[int]
    """The one that wrote it."""
    location: Mapped[LongText]
    """Key of its contents in the blob store. It is never used again for others."""


class KeptRoundRow(JobsBase):
    """Last round in which the files of one node rank were stored."""

    __tablename__ = "kept_rounds"

    job_id: Mapped[JobId] = mapped_column(primary_key=True)
    node_rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    revision: Mapped[BigInt]
    """Counts the changes of its rows in ``kept_files``."""
    attempt: Mapped[int]
    complete: Mapped[bool]
    """True if this was the round after the end of the attempt's processes."""
    as_of: Mapped[float]
    """Beginning of the last round, on the database's clock."""


class RetentionRow(JobsBase):
    """Retention that a job requested. The row is deleted with the data."""

    __tablename__ = "retentions"

    job_id: Mapped[JobId] = mapped_column(primary_key=True)
    what: Mapped[str] = mapped_column(String(16), primary_key=True)
    """``metrics`` or ``logs``."""
    days: Mapped[int]


class FileRetentionRow(JobsBase):
    """Retention of kept files that a job requested. The row is deleted with the files.

    Not a row of ``retentions``: a scheduler of the version before takes all but points for lines.
    """

    __tablename__ = "file_retentions"

    job_id: Mapped[JobId] = mapped_column(primary_key=True)
    days: Mapped[int]
