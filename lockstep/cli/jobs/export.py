"""``export``: a job's series where other programs read them.

Not here: reading and writing them (``client.files.export``, ``client.files.mlflow_export``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lockstep.cli.common import Connection, JobName, Names, names_in, say
from lockstep.client.errors import ClientError, ExitCode


def export(
    job: JobName,
    destination: str,
    /,
    *,
    to: Literal["tensorboard", "csv", "parquet", "mlflow"],
    names: Names = None,
    connection: Connection = Connection(),
) -> ExitCode:
    """Write every point of a job's series elsewhere.

    Lockstep export JOB --to tensorboard DIR, csv FILE, parquet FILE or mlflow URI.

    Parameters
    ----------
    destination
        A folder, in which the job becomes a run of its own (tensorboard); a file (csv, parquet);
        the address of a tracking server or store, where it becomes a run in the experiment of its
        project (mlflow). An earlier export of the same job is replaced.
    to
        tensorboard: event files for `tensorboard --logdir DIR`, values as 32-bit floats; csv and
        parquet: one line or row per point, the latter needs the package pyarrow; mlflow: a run with
        the spec as its parameters, which needs the package mlflow-skinny.
    names
        Only these series, separated by commas; may be given several times.
    """
    from lockstep.client.files import export as exporting

    wanted = names_in(names)
    with connection.client() as client:
        found = client.job(job)
        there = exporting.names_of(client, found.id)
        missing = [name for name in wanted if name not in there]
        if missing:
            raise ClientError(
                f"job {job} has no points of {', '.join(missing)}",
                next_step=f"lockstep metrics {job} -o name lists the series",
            )
        series = wanted or there
        try:
            if to == "mlflow":
                from lockstep.client.files.mlflow_export import to_mlflow

                written, count = to_mlflow(client, found, series, destination)
            else:
                writers = {
                    "tensorboard": exporting.to_tensorboard,
                    "csv": exporting.to_csv,
                    "parquet": exporting.to_parquet,
                }
                write = writers[to]
                path, count = write(client, found, series, Path(destination))
                written = str(path)
        except OSError as error:
            raise ClientError(
                f"{destination} cannot be written: {error.strerror}",
                next_step="give a writable folder (tensorboard) or file (csv, parquet)",
            ) from error
    say(f"{count:,} points of {len(series)} series")
    print(written)
    return ExitCode.OK
