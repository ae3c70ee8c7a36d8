"""Runs of a verification as jobs of the service.

Every job has a label of this verification. At the end all jobs with the label are deleted, also one
whose submission was interrupted.

Not here: the runs (``domain.verify.runs``), their verdict (``domain.verify.session``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from lockstep.client import short_jobs
from lockstep.client.errors import ClientError, RefusedError, TimedOutError
from lockstep.client.files.checkpoints import MODEL, check_file
from lockstep.domain import limits
from lockstep.domain.life.lifecycle import TERMINAL, JobState
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.init_from import JobCheckpoint
from lockstep.domain.verify.compare import SERIES, Result

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.verify.runs import Run
    from lockstep.domain.views import JobView

LABEL: Final = "verify-run"
"""Label of all jobs of one verification."""
_END_SECONDS: Final = 60.0
"""A cancelled job has ended by then."""


class ServiceRuns:
    """Executes runs by the service.

    Parameters
    ----------
    client : Client
    folder : Path
        For the weights of the runs.
    wait_seconds : float
        Time limit of one run, including its time in the queue.
    keep : bool
        True to leave the jobs in the service.
    say : callable
        Receives one line per run.
    """

    def __init__(
        self,
        client: Client,
        folder: Path,
        *,
        wait_seconds: float,
        keep: bool,
        say: Callable[[str], None],
    ):
        self._client, self._folder, self._say = client, folder, say
        self._wait_seconds, self._keep = wait_seconds, keep
        self._mark = uuid.uuid4().hex
        self._killed: JobCheckpoint | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._keep:
            self.delete()

    def __call__(self, run: Run) -> Result:
        """Make one run.

        Raises
        ------
        ClientError
            If it failed for a reason that is no refusal of the engine.
        """
        document = run.document
        document["labels"][LABEL] = self._mark
        if run.kind == "moved":
            document["train"]["init_from"] = str(self._killed)
        job = self._client.submit(document)
        self._say(f"{run.name}: {job.name} ({job.id})")
        job = short_jobs.ended(self._client, job, self._wait_seconds)
        if job.outcome is not None and job.outcome.reason is Reason.BAD_SPEC:
            return Result(refusal=job.outcome.message)
        if job.state is not JobState.SUCCEEDED:
            raise short_jobs.failure(
                job, run.name, next_step=f"with --keep: lockstep logs {job.id}"
            )
        if run.kind == "killed":
            self._require_killed(run, job)
        return Result(self._series(job), self._weights(job), self._warnings(job))

    def _require_killed(self, run: Run, job: JobView) -> None:
        if job.attempt is None or job.attempt.number == 1:
            raise ClientError(
                f"the run {run.name} was not killed: its engine is of another version"
            )
        self._killed = JobCheckpoint(job.id, run.document["train"]["checkpoint"]["every_steps"])

    def _series(self, job: JobView) -> dict[str, dict[int, float]]:
        series: dict[str, dict[int, float]] = {name: {} for name in SERIES.values()}
        points = min(job.spec["train"]["steps"], limits.SERIES_POINTS_MAX)
        found = self._client.metrics(job.id, names=[*series], max_points=points)
        for each in found.series:
            series[each.name].update(zip(each.step, each.value, strict=True))
        return series

    def _weights(self, job: JobView) -> Path | None:
        found = self._client.checkpoint(job.id)
        path = self._folder / f"{job.id}.safetensors"
        for file in found.files:
            if file.name == MODEL:
                with path.open("wb") as out:
                    check_file(self._client, job.id, found, file, also=out.write)
        return path if path.exists() else None

    def _warnings(self, job: JobView) -> tuple[str, ...]:
        events = self._client.events(job.id)
        return tuple(event.message for event in events if event.kind == "warning")

    def delete(self) -> None:
        """End and delete all jobs of this verification; report those that stay."""
        for job in self._client.jobs(label=(LABEL, self._mark)).items:
            try:
                if job.state not in TERMINAL:
                    self._client.cancel(job.id, now=True)
                    self._client.wait(job.id, _END_SECONDS)
                self._client.delete(job.id)
            except (RefusedError, TimedOutError) as error:
                self._say(f"{job.name} ({job.id}) stays: {error.message}")
