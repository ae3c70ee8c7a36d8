"""Results of a job: series, events and attempts; and its resolved spec.

Not here: log lines (``api.routes.logs``), checkpoints (``api.routes.checkpoints``), downsampling of
points to buckets (``storage.series.series_query``, ``storage.series.tails``).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from pydantic_core import to_json

from lockstep.api.access import Reads, guarded
from lockstep.api.http import conditional, tags
from lockstep.api.http.places import place_of
from lockstep.api.jobs.series_views import summary_view
from lockstep.api.jobs.views import attempt_view, event_view, job_tag
from lockstep.api.parts import AppStateDep
from lockstep.api.routes.jobs import Reference
from lockstep.domain import limits
from lockstep.domain.series_views import JobSeriesSummary, MetricsView
from lockstep.domain.views import AttemptView, EventView, Page, SpecView
from lockstep.storage.attempts import attempts, events
from lockstep.storage.jobs import change_feed, jobs
from lockstep.storage.jobs.foreign import Mentions
from lockstep.storage.series import figures, series_query, tails

router = APIRouter(prefix="/v1/jobs/{reference}", tags=["history"], dependencies=guarded)


AttemptsParameter = Annotated[
    series_query.Attempts,
    Field(
        description="`current` hides points of steps that a later attempt repeated, and is one "
        "curve. `visible` has the same points, with a curve for each attempt. `all` has each "
        "whole attempt."
    ),
]
MaxPointsParameter = Annotated[
    int,
    Field(
        ge=1,
        le=limits.SERIES_POINTS_MAX,
        description="Maximum per series; longer series are aggregated into buckets.",
    ),
]


class PointsQuery(BaseModel, extra="forbid"):
    """Selection of points."""

    names: Annotated[
        list[str],
        Field(
            max_length=limits.METRIC_NAMES_PER_JOB_MAX,
            description="Names of series, repeated or separated by commas. Default: all.",
        ),
    ] = []
    from_step: Annotated[int | None, Field(ge=0, lt=2**62)] = None
    to_step: Annotated[int | None, Field(ge=0, lt=2**62, description="Last step, inclusive.")] = (
        None
    )
    attempts: AttemptsParameter = "current"

    def wanted(self) -> list[str] | None:
        return split(self.names) or None


class MetricsQuery(PointsQuery):
    """Selection of points, with a maximum number."""

    max_points: MaxPointsParameter = 1_000


class JobMetricsQuery(MetricsQuery):
    """Selection of points of one job, optionally only of those after a cursor."""

    since: Annotated[
        str | None,
        Field(
            max_length=tails.CURSOR_LENGTH_MAX,
            json_schema_extra={"pattern": tails.CURSOR},
            description="`cursor` of the previous response to the same query. The response contains only "
            "the points stored since, with `complete` false; or all points if a later "
            "attempt hides points already sent.",
        ),
    ] = None


def split(given: list[str]) -> list[str]:
    """Return the names of a repeatable or comma-separated parameter, without duplicates."""
    named = (one.strip() for some in given for one in some.split(","))
    return list(dict.fromkeys(one for one in named if one))


def drawn(answer: dict[str, object]) -> bytes:
    """Encode a response that contains curves.

    It is not validated against its type: for thousands of numbers, that takes longer than reading
    them.
    """
    return to_json(answer, inf_nan_mode="strings")


class EventsQuery(BaseModel, extra="forbid"):
    """Selection of a page of events."""

    order: Annotated[
        events.Order, Field(description="Sort order: oldest or newest event first.")
    ] = "oldest"
    cursor: Annotated[
        int | None,
        Field(
            ge=0,
            lt=2**62,
            description="`next_cursor` of the previous page, with the same order; or the id of the event "
            "to continue from, in either order.",
        ),
    ] = None
    limit: Annotated[int, Field(ge=1, le=limits.PAGE_SIZE_MAX)] = limits.PAGE_SIZE_DEFAULT


@router.get(
    "/metrics",
    operation_id="getJobMetrics",
    summary="Read a job's series",
    response_model=MetricsView,
    responses=conditional.documented(404),
)
def metrics(
    reference: Reference,
    asked: Annotated[JobMetricsQuery, Query()],
    request: Request,
    app_state: AppStateDep,
    grant: Reads,
) -> Response:
    with app_state.database.look_jobs() as look:
        job = jobs.mark(look, reference, among=grant.readable)
    with app_state.database.look_series() as look:
        tag = conditional.tag_of(*job_tag(job, change_feed.counts(look, [job.id]).get(job.id, 0)))
    if (same := conditional.unchanged(request, tag)) is not None:
        return same

    def answer() -> bytes:
        with app_state.database.read_series() as session:
            found, cursor, complete = tails.read(
                session,
                job.id,
                since=asked.since,
                names=asked.wanted(),
                from_step=asked.from_step,
                to_step=asked.to_step,
                max_points=asked.max_points,
                attempts=asked.attempts,
                place=place_of(request),
            )
        return drawn({"job_id": job.id, "series": found, "cursor": cursor, "complete": complete})

    return app_state.rendered.answer(request, tag, answer)


@router.get(
    "/series",
    operation_id="listJobSeries",
    summary="List a job's series, with their metadata and figures",
    description="Unit, kind, direction, group, axis and domain of each series, its last value, its "
    "extremes and its best value.",
    response_model=JobSeriesSummary,
    responses=conditional.documented(404),
)
def list_series(
    reference: Reference, request: Request, app_state: AppStateDep, grant: Reads
) -> Response:
    with app_state.database.look_jobs() as look:
        job = jobs.mark(look, reference, among=grant.readable)
    with app_state.database.look_series() as look:
        tag = conditional.tag_of(*job_tag(job, change_feed.counts(look, [job.id]).get(job.id, 0)))
    if (same := conditional.unchanged(request, tag)) is not None:
        return same

    def answer() -> bytes:
        with app_state.database.read_series() as session:
            found = figures.read(session, job.id)
        return drawn({"job_id": job.id, "series": [summary_view(each) for each in found]})

    return app_state.rendered.answer(request, tag, answer)


@router.get(
    "/attempts",
    operation_id="listJobAttempts",
    summary="List the attempts of a job, newest first",
    description=f"The newest {limits.PAGE_SIZE_MAX}.",
    response_model=Page[AttemptView],
    responses=conditional.documented(404),
)
def list_attempts(
    reference: Reference,
    request: Request,
    response: Response,
    app_state: AppStateDep,
    grant: Reads,
) -> Page[AttemptView] | Response:
    with app_state.database.read_jobs() as session:
        job = jobs.find(session, reference, among=grant.readable)
        tag = conditional.tag_of(*job_tag(job, 0))
        if (same := conditional.unchanged(request, tag)) is not None:
            return same
        rows = attempts.of_job(session, job.id, limit=limits.PAGE_SIZE_MAX)
    conditional.mark(response, tag)
    return Page(items=[attempt_view(row) for row in rows])


@router.get(
    "/spec",
    operation_id="getJobSpec",
    summary="Read the spec of a job, with all defaults filled in",
    response_model=SpecView,
    responses=conditional.documented(404),
)
def spec(
    reference: Reference,
    request: Request,
    response: Response,
    app_state: AppStateDep,
    grant: Reads,
) -> SpecView | Response:
    job = grant.find_job(app_state, reference)
    tag = conditional.tag_of(job.id)  # the spec never changes
    if (same := conditional.unchanged(request, tag)) is not None:
        return same
    conditional.mark(response, tag)
    return SpecView(job_id=job.id, spec=job.spec)


@router.get(
    "/events",
    operation_id="listJobEvents",
    summary="List the events of a job",
    response_model=Page[EventView],
    responses=conditional.documented(404),
)
def list_events(
    *,
    reference: Reference,
    asked: Annotated[EventsQuery, Query()],
    request: Request,
    response: Response,
    app_state: AppStateDep,
    grant: Reads,
) -> Page[EventView] | Response:
    with app_state.database.read_jobs() as session:
        job = jobs.find(session, reference, among=grant.readable)
        ids = events.page_ids(
            session, job.id, order=asked.order, beyond=asked.cursor, limit=asked.limit + 1
        )
        tag = conditional.tag_of(
            job.id[-12:], conditional.digest(ids), *tags.seen_by(grant.readable)
        )
        if (same := conditional.unchanged(request, tag)) is not None:
            return same
        rows = events.page(
            session, job.id, order=asked.order, beyond=asked.cursor, limit=asked.limit
        )
        mentions = Mentions(session, [row.message for row in rows], among=grant.readable)
    more = len(ids) > asked.limit
    conditional.mark(response, tag)
    return Page(
        items=[event_view(row, mentions) for row in rows],
        next_cursor=str(rows[-1].id) if more else None,
    )
