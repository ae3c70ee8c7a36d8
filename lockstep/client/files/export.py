"""Take a job's series elsewhere: as TensorBoard event files, as CSV, or as Parquet.

The server answers a request with buckets where a series has more points than fit into one answer;
an export needs every point, so such a range of steps is halved until all its points fit.

Not here: the command (``cli.jobs.export``), and the event files' format
(``domain.training.event_files``).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Literal, NamedTuple

from lockstep.client.errors import ClientError
from lockstep.domain import limits
from lockstep.domain.packages import with_extra
from lockstep.domain.training import event_files
from lockstep.domain.training.metrics import jsonable
from lockstep.system.files import replacing

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.views import JobView


PARQUET_ROWS: Final = 100_000
"""Points of one row group, which are in memory at the same time."""


class Point(NamedTuple):
    """One point of one series."""

    name: str
    attempt: int
    step: int
    time: float
    """Seconds since the epoch."""
    value: float

    def for_text(self) -> Point:
        """The point as CSV and JSON write it: non-finite values by name, as the API has them."""
        return self._replace(value=jsonable(self.value))  # type: ignore[arg-type] # a word if not finite


def names_of(client: Client, reference: str) -> list[str]:
    """The series of a job."""
    return sorted({series.name for series in client.metrics(reference, max_points=1).series})


def every_point(
    client: Client,
    reference: str,
    name: str,
    *,
    from_step: int = 0,
    to_step: int | None = None,
    attempts: Literal["current", "all"] | None = None,
) -> Iterator[Point]:
    """Return all points of one series; without ``attempts="all"`` no step that was repeated later.

    Ranges of steps follow each other; in a range, points are in the order of attempts and storage.
    A step with more points than one answer holds, possible only in ``system/`` series, is cut to
    one answer.
    """
    ranges = [(from_step, to_step)]
    while ranges:
        low, high = ranges.pop()
        found = client.metrics(
            reference,
            names=[name],
            from_step=low,
            to_step=high,
            max_points=limits.SERIES_POINTS_MAX,
            # "current" is one curve, with the number of its last attempt for all points.
            attempts="all" if attempts == "all" else "visible",
        ).series
        for series in found:
            last = max(series.step) if high is None else high
            if series.count > len(series.step) and low < last:
                middle = (low + last) // 2
                # The lower half is taken first.
                ranges += [(middle + 1, high), (low, middle)]
                break
        else:
            for series in found:
                for step, time, value in zip(series.step, series.time, series.value, strict=True):
                    yield Point(name, series.attempt, step, time, value)


def to_tensorboard(
    client: Client, job: JobView, names: list[str], folder: Path
) -> tuple[Path, int]:
    """Write an event file of a run of its own below ``folder``.

    A second export of the job takes its place.

    Returns
    -------
    tuple of Path and int
        The file, and its number of points.
    """
    created = job.created_at.timestamp()
    run = folder / f"{job.name}-{job.id[-8:]}"
    run.mkdir(parents=True, exist_ok=True)
    path = run / f"events.out.tfevents.{int(created)}.lockstep"

    def write(file: IO[bytes]) -> int:
        count = 0
        file.write(event_files.header(created))
        for name in names:
            for point in every_point(client, job.id, name):
                file.write(event_files.record(point.step, point.time, {name: point.value}))
                count += 1
        return count

    return path, _write_whole(path, write)


def to_csv(client: Client, job: JobView, names: list[str], path: Path) -> tuple[Path, int]:
    """Write one line per point, as ``lockstep metrics --csv`` does.

    Returns
    -------
    tuple of Path and int
        The file, and its number of points.
    """

    def write(file: IO[bytes]) -> int:
        from io import TextIOWrapper

        text = TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(Point._fields)
        count = 0
        for name in names:
            for point in every_point(client, job.id, name):
                writer.writerow(point.for_text())
                count += 1
        text.flush()
        text.detach()
        return count

    return path, _write_whole(path, write)


def to_parquet(client: Client, job: JobView, names: list[str], path: Path) -> tuple[Path, int]:
    """Write one row per point, with the columns of the CSV.

    Returns
    -------
    tuple of Path and int
        The file, and its number of points.

    Raises
    ------
    ClientError
        If pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ClientError(
            f"an export to Parquet needs pyarrow, which is not installed here ({error})",
            next_step=f"{with_extra('parquet')}, or pip install pyarrow",
        ) from None
    types = (
        pyarrow.string(),
        pyarrow.int32(),
        pyarrow.int64(),
        pyarrow.float64(),
        pyarrow.float64(),
    )
    schema = pyarrow.schema(list(zip(Point._fields, types, strict=True)))

    def write(file: IO[bytes]) -> int:
        count = 0
        points = (point for name in names for point in every_point(client, job.id, name))
        with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            while some := list(islice(points, PARQUET_ROWS)):
                columns = [list(column) for column in zip(*some, strict=True)]
                arrays = [
                    pyarrow.array(values, type_)
                    for values, type_ in zip(columns, types, strict=True)
                ]
                writer.write_table(pyarrow.table(arrays, schema=schema))
                count += len(some)
        return count

    return path, _write_whole(path, write)


def _write_whole(path: Path, write: Callable[[IO[bytes]], int]) -> int:
    """Write a file beside its place and move it there once it is whole.

    Return the number of points.
    """
    with replacing(path) as temporary, temporary.open("wb") as file:
        return write(file)
