"""Take a job's series to an MLflow tracking server: one run, with the spec as its parameters.

MLflow's own client is used, imported only here; the extra ``mlflow`` brings it.

Not here: the command (``cli.jobs.export``), and how every point is fetched
(``client.files.export``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from lockstep.client.errors import ClientError
from lockstep.client.files.export import every_point
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.packages import with_extra

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.views import JobView

JOB_TAG: Final = "lockstep.job_id"
METRICS_PER_REQUEST: Final = 1_000
PARAMS_PER_REQUEST: Final = 100
PARAM_CHARS_MAX: Final = 500
"""MLflow's own limits of one ``log_batch``, the last in its older versions."""
_STATUS: Final = {
    JobState.SUCCEEDED: "FINISHED",
    JobState.FAILED: "FAILED",
    JobState.CANCELLED: "KILLED",
}


def to_mlflow(client: Client, job: JobView, names: list[str], uri: str) -> tuple[str, int]:
    """Write a run into the experiment of the job's project.

    Earlier exports of the job are deleted once it is whole.

    Returns
    -------
    tuple of str and int
        The run's id, and how many points it has.

    Raises
    ------
    ClientError
        If MLflow is not installed, or refuses.
    """
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise ClientError(
            f"an export to MLflow needs its client, which is not installed here ({error})",
            next_step=f"{with_extra('mlflow')}, or pip install mlflow-skinny",
        ) from None
    try:
        return _write(MlflowClient(tracking_uri=uri), client, job, names)
    except MlflowException as error:
        raise ClientError(f"MLflow at {uri} refused the export: {error}") from error


def _write(mlflow: Any, client: Client, job: JobView, names: list[str]) -> tuple[str, int]:
    from mlflow.entities import Metric, Param

    found = mlflow.get_experiment_by_name(job.project)
    experiment = mlflow.create_experiment(job.project) if found is None else found.experiment_id
    before = mlflow.search_runs([experiment], filter_string=f"tags.`{JOB_TAG}` = '{job.id}'")
    started = job.started_at or job.created_at
    tags = {JOB_TAG: job.id, "lockstep.state": job.state.value}
    run = mlflow.create_run(
        experiment, start_time=_milliseconds(started.timestamp()), tags=tags, run_name=job.name
    )
    params = (Param(name, value[:PARAM_CHARS_MAX]) for name, value in _flat(job.spec))
    while told := list(islice(params, PARAMS_PER_REQUEST)):
        mlflow.log_batch(run.info.run_id, params=told)
    count = 0
    points = (point for name in names for point in every_point(client, job.id, name))
    metrics = (
        Metric(each.name, each.value, _milliseconds(each.time), each.step) for each in points
    )
    while some := list(islice(metrics, METRICS_PER_REQUEST)):
        mlflow.log_batch(run.info.run_id, metrics=some)
        count += len(some)
    if job.state in _STATUS and job.finished_at is not None:
        mlflow.set_terminated(
            run.info.run_id, _STATUS[job.state], _milliseconds(job.finished_at.timestamp())
        )
    for each in before:
        mlflow.delete_run(each.info.run_id)
    return run.info.run_id, count


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Return the leaves of a spec by dotted name.

    The job's environment is left out: it may hold secrets.
    """
    if isinstance(value, dict) and name != "env":
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif value is not None and name != "env":
        yield name, str(value)
