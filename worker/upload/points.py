"""Upload of points from one file into the series database, with its warnings.

Not here: exactly-once delivery (``worker.upload.file_uploader``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lockstep.domain.training import metrics
from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.storage.db.database import Database
from lockstep.storage.series import series
from lockstep.worker.folders import Folder
from lockstep.worker.upload.file_uploader import FileUploader, Offset, Record
from lockstep.worker.upload.metric_warnings import METRICS_FILE, QuotaWarnings, Repeats
from lockstep.worker.upload.stream import Stream


class PointsUploader(FileUploader[Offset, Record]):
    """File with points. Points beyond the job's limits are reported once."""

    def __init__(
        self,
        database: Database,
        folder: Folder,
        stream: Stream,
        warn: Callable[[str], None],
        *,
        repeats: Repeats | None = None,
    ):
        super().__init__(database, folder, stream, warn)
        self._quota_warnings = QuotaWarnings(warn)
        self._repeats = repeats

    def _append_points(
        self,
        records: Sequence[metrics.StepValues],
        *,
        before: int,
        after: int,
        source: str | None = None,
        defined: Mapping[str, SeriesDefinition] = series.NO_DEFINITIONS,
        file: str = METRICS_FILE,
    ) -> bool:
        """See ``series.append``. ``file`` names the records' file for warnings."""
        noted: list[series.OverLimit] = []
        try:
            with self._database.series() as session:
                accepted = series.append(
                    session,
                    assignment_id=self._stream.assignment_id,
                    token=self._stream.token,
                    offset_before=before,
                    offset_after=after,
                    records=records,
                    source=source,
                    defined=defined,
                    left_out=noted.append,
                )
        finally:
            # Also where the answer of the commit was lost; if there was none, the same will be left
            # out again.
            self._quota_warnings.report(noted)
        if accepted and self._repeats is not None:
            self._repeats.note(records, file)
        return accepted

    def _set_back(self) -> None:
        if self._repeats is not None:
            self._repeats.forget()
