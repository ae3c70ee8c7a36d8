"""Series of several jobs at once, to compare runs, and all points of a job as a file.

Not here: the series of one job (``api.routes.history``), downsampling of points to buckets
(``storage.series.series_query``), sequential reading (``storage.series.exports``).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, StringConstraints, model_validator

from lockstep.api.access import Reads, guarded
from lockstep.api.http import conditional
from lockstep.api.http.places import place_of
from lockstep.api.jobs import downloads
from lockstep.api.jobs.series_views import metadata_view, summary_view
from lockstep.api.jobs.views import job_tag
from lockstep.api.parts import AppStateDep
from lockstep.api.routes.history import MetricsQuery, PointsQuery, drawn, split
from lockstep.api.routes.jobs import Reference
from lockstep.domain import limits
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.series_views import SeveralMetricsView, SeveralSeriesSummary
from lockstep.domain.training.metrics import jsonable
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import change_feed, jobs
from lockstep.storage.series import exports, figures, tails

router = APIRouter(prefix="/v1", tags=["history"], dependencies=guarded)

COLUMNS: Final = ("name", "attempt", "step", "time", "value")


References = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=200 * limits.SERIES_JOBS_MAX)]],
    Field(
        min_length=1,
        max_length=limits.SERIES_JOBS_MAX,
        description="References to jobs, as in a path; repeated or separated by commas.",
    ),
]


class SummariesQuery(BaseModel, extra="forbid"):
    """Jobs, and their series whose figures are wanted."""

    jobs: References
    names: Annotated[
        list[str],
        Field(
            max_length=limits.SUMMARY_NAMES_MAX,
            description="Names of series with figures, repeated or separated by commas. Default: "
            "none.",
        ),
    ] = []

    @model_validator(mode="after")
    def _bounded(self) -> SummariesQuery:
        _check_jobs(len(split(self.jobs)))
        if (name_count := len(split(self.names))) > limits.SUMMARY_NAMES_MAX:
            raise ValueError(
                f"expected at most {limits.SUMMARY_NAMES_MAX} names of series, got {name_count}: "
                f"request the others separately"
            )
        return self


def _check_jobs(count: int) -> None:
    if not count:
        raise ValueError("expected at least one job")
    if count > limits.SERIES_JOBS_MAX:
        raise ValueError(
            f"expected at most {limits.SERIES_JOBS_MAX} jobs, got {count}: request the others "
            f"separately"
        )


class SeveralSeriesQuery(MetricsQuery):
    """Selection of points of several jobs, with a maximum number."""

    jobs: References
    names: Annotated[
        list[str],
        Field(
            min_length=1,
            max_length=limits.METRIC_NAMES_PER_JOB_MAX,
            description="Names of series, repeated or separated by commas.",
        ),
    ]

    since: Annotated[
        list[
            Annotated[
                str,
                StringConstraints(
                    max_length=limits.SERIES_JOBS_MAX * (tails.CURSOR_LENGTH_MAX + 1)
                ),
            ]
        ],
        Field(
            default_factory=list,
            max_length=limits.SERIES_JOBS_MAX,
            description="`cursor` of each job from the previous response to the same query, in the order "
            "of `jobs`; repeated or separated by commas. The response contains only points "
            "stored since, where `complete` is false.",
        ),
    ]

    def cursors(self) -> list[str]:
        """Return one cursor for each job. Jobs without points may have equal cursors."""
        return [one.strip() for some in self.since for one in some.split(",")]

    @model_validator(mode="after")
    def _bounded(self) -> SeveralSeriesQuery:
        job_count, name_count = len(split(self.jobs)), len(split(self.names))
        if not job_count or not name_count:
            raise ValueError("expected at least one job and one name of a series")
        _check_jobs(job_count)
        if self.since and len(self.cursors()) != job_count:
            raise ValueError(
                f"expected since to have one cursor for each of the {job_count} jobs, or to be "
                f"omitted"
            )
        if (points := job_count * name_count * self.max_points) > limits.SERIES_POINTS_OF_JOBS_MAX:
            raise ValueError(
                f"{job_count} jobs × {name_count} names × {self.max_points} max_points are "
                f"{points}; one response has at most {limits.SERIES_POINTS_OF_JOBS_MAX}: lower "
                "max_points, or request fewer jobs"
            )
        return self


@router.get(
    "/series",
    operation_id="getSeries",
    summary="Read series of several jobs",
    description="In the order of `jobs`. A job without these series has an empty list.",
    response_model=SeveralMetricsView,
    responses=conditional.documented(404),
)
def several(
    asked: Annotated[SeveralSeriesQuery, Query()],
    request: Request,
    app_state: AppStateDep,
    grant: Reads,
) -> Response:
    with app_state.database.read_jobs() as session:
        found = jobs.find_several(session, split(asked.jobs), among=grant.readable)
    ids = [job.id for job in found]
    if asked.since and len(ids) != len(asked.cursors()):
        raise LockstepError(
            ErrorCode.INVALID,
            f"jobs names {len(ids)} jobs, some more than once, and since has "
            f"{len(asked.cursors())} cursors",
            next_step="Give each job once, in the order of the cursors.",
        )
    with app_state.database.read_series() as session:
        tag = _tag(found, change_feed.counts(session.connection(), ids))
        if (same := conditional.unchanged(request, tag)) is not None:
            return same

        def answer() -> bytes:
            read = tails.read_jobs(
                session,
                ids,
                since=asked.cursors(),
                names=split(asked.names),
                from_step=asked.from_step,
                to_step=asked.to_step,
                max_points=asked.max_points,
                attempts=asked.attempts,
                place=place_of(request),
            )
            tails_of = ((job_id, read[job_id]) for job_id in ids)
            return drawn(
                {
                    "jobs": [
                        {
                            "job_id": job_id,
                            "series": tail.curves,
                            "cursor": tail.cursor,
                            "complete": tail.complete,
                        }
                        for job_id, tail in tails_of
                    ]
                }
            )

        return app_state.rendered.answer(request, tag, answer)


@router.get(
    "/series/summaries",
    operation_id="listSeries",
    summary="List the series of several jobs, with figures of some",
    description="Metadata of all their series, and of the named ones the figures of each job.",
    response_model=SeveralSeriesSummary,
    responses=conditional.documented(404),
)
def summaries(
    asked: Annotated[SummariesQuery, Query()],
    request: Request,
    app_state: AppStateDep,
    grant: Reads,
) -> Response:
    with app_state.database.read_jobs() as session:
        found = jobs.find_several(session, split(asked.jobs), among=grant.readable)
    ids = [job.id for job in found]
    with app_state.database.read_series() as session:
        tag = _tag(found, change_feed.counts(session.connection(), ids))
        if (same := conditional.unchanged(request, tag)) is not None:
            return same

        def answer() -> bytes:
            read = figures.read_jobs(session, ids, split(asked.names))
            return drawn(
                {
                    "series": [metadata_view(each) for each in read.series],
                    "jobs": [
                        {"job_id": job_id, "series": [summary_view(each) for each in of_job]}
                        for job_id, of_job in read.figures.items()
                    ],
                }
            )

        return app_state.rendered.answer(request, tag, answer)


def _tag(found: Sequence[JobRow], batches: Mapping[str, int]) -> str:
    """Return the tag of an answer about the series of some jobs, by their stored batches."""
    return conditional.tag_of(
        conditional.digest(job_tag(job, batches.get(job.id, 0)) for job in found)
    )


@router.get(
    "/jobs/{reference}/metrics/download",
    operation_id="downloadJobMetrics",
    summary="Download a job's series as one file",
    description=(
        "Every point, as CSV (RFC 4180): `name,attempt,step,time,value`, with time in seconds "
        "since the epoch, and `NaN`, "
        "`Infinity` and `-Infinity` as values. By name and attempt, then as they were stored. "
        "Points that are stored "
        "meanwhile may be in it."
    ),
    response_class=StreamingResponse,
    responses=downloads.described("text/csv"),
)
def download(
    reference: Reference,
    asked: Annotated[PointsQuery, Query()],
    app_state: AppStateDep,
    grant: Reads,
) -> Response:
    job = grant.find_job(app_state, reference)
    points = exports.every_point(
        app_state.database.read_series,
        job.id,
        names=asked.wanted(),
        from_step=asked.from_step,
        to_step=asked.to_step,
        attempts=asked.attempts,
    )
    return downloads.sent(job, _csv(points), "text/csv", ending="csv")


def _csv(pieces: Iterator[exports.Piece]) -> Iterator[bytes]:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for name, attempt, points in pieces:
        values = map(jsonable, points.values)
        writer.writerows(
            zip(repeat(name), repeat(attempt), points.steps, points.times, values, strict=False)
        )
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()
    yield text.getvalue().encode()
