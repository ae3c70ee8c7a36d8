"""Tables by which lists of jobs are filtered and sorted, in the jobs database.

Their rows repeat facts of the job's own row, in a form that both databases can search.

Not here: statements (``storage.jobs``), and metrics (``storage.db.series_tables``).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Index, PrimaryKeyConstraint, String
from sqlalchemy.orm import Mapped, mapped_column

from lockstep.domain.limits import LABEL_KEY_CHARS_MAX, LABEL_VALUE_CHARS_MAX
from lockstep.storage.db.columns import Id
from lockstep.storage.db.tables import JobId, JobsBase

KEY_CHARS_MAX: Final = 200
TEXT_CHARS_MAX: Final = 255


class JobLabelRow(JobsBase):
    """One label of one job: a table, because both databases can then search it by an index."""

    __tablename__ = "job_labels"
    __table_args__ = (Index("ix_job_labels_key_value_job_id", "key", "value", "job_id"),)

    job_id: Mapped[JobId] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(String(LABEL_KEY_CHARS_MAX), primary_key=True)
    value: Mapped[str] = mapped_column(String(LABEL_VALUE_CHARS_MAX))


class JobValueRow(JobsBase):
    """One setting of one job.

    A list reads one setting of all jobs, so the rows of a setting are together, in the order of the
    jobs, and the primary key is the only index. The job has no foreign key, whose check would read
    the rows of all settings: its deletion names the settings.
    """

    __tablename__ = "job_values"
    __table_args__ = (
        PrimaryKeyConstraint("key", "job_id", postgresql_include=["number", "text"]),
        {"sqlite_with_rowid": False},
    )

    key: Mapped[str] = mapped_column(String(KEY_CHARS_MAX))
    """Path of the setting in the spec, such as ``train.optimizer.lr``."""
    job_id: Mapped[str] = mapped_column(Id)
    number: Mapped[float | None]
    """Also of a text that is written as a number."""
    text: Mapped[str | None] = mapped_column(String(TEXT_CHARS_MAX))
    """The first characters; of a number NULL."""
