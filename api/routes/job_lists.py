"""Lists of jobs: by filter and order, with totals; and the queue.

Not here: single jobs (``api.routes.jobs``), the parameters (``api.jobs.filters``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from lockstep.api.access import Reads, guarded
from lockstep.api.http import conditional, tags
from lockstep.api.jobs.filters import JobFilter, ProjectPattern
from lockstep.api.jobs.known_views import Marked
from lockstep.api.jobs.views import starts_of
from lockstep.api.parts import AppState, AppStateDep
from lockstep.domain import limits
from lockstep.domain.list_views import JobGroup, JobPage, JobTotals, ListedJob
from lockstep.domain.listing.columns import Column
from lockstep.domain.rights import Within
from lockstep.domain.training.metrics import jsonable
from lockstep.domain.views import JobView, Page
from lockstep.storage.attempts import nodes
from lockstep.storage.jobs import columns, listing, summaries
from lockstep.storage.jobs.summaries import Listed, Totals

router = APIRouter(prefix="/v1", tags=["jobs"], dependencies=guarded)


@router.get(
    "/jobs",
    operation_id="listJobs",
    summary="List jobs, newest first",
    response_model=JobPage,
    responses=conditional.documented(),
)
def list_jobs(
    asked: Annotated[JobFilter, Query()], request: Request, app_state: AppStateDep, grant: Reads
) -> Response:
    among = grant.readable
    wanted = asked.asked(app_state.database, among=among)
    found = summaries.listed(
        app_state.database,
        wanted.choice,
        among=among,
        limit=wanted.limit,
        with_totals=wanted.totals,
        group=wanted.group,
    )
    totals = None if found.totals is None else _totals_view(found.totals, found)

    def body(jobs: list[JobView]) -> str:
        values = _values(app_state, [job.id for job in jobs], wanted.columns)
        items = [
            ListedJob.model_construct(**dict(job), values=values.get(job.id, {})) for job in jobs
        ]
        page = JobPage.model_construct(
            items=items, next_cursor=found.cursor, total=found.total, totals=totals
        )
        return page.model_dump_json()

    facts = (found.cursor is None, found.total, totals)
    return _answer(app_state, request, among, found.marks, *facts, body=body)


def _totals_view(whole: Totals, found: Listed) -> JobTotals:
    return JobTotals(
        states=whole.states,
        gpus_in_use=whole.gpus_in_use,
        groups=[
            JobGroup(
                value=value,
                total=group.total,
                states=group.states,
                gpus_in_use=group.gpus_in_use,
                best=None if group.best is None else jsonable(group.best),
            )
            for value, group in found.groups.items()
        ],
        groups_total=found.groups_total,
    )


def _values(
    app_state: AppState, job_ids: Sequence[str], wanted: Sequence[Column]
) -> dict[str, dict[str, float | str]]:
    """Return the values of the jobs of a page in some columns."""
    if not wanted:
        return {}
    with app_state.database.read_jobs() as session:
        found = columns.of_settings(session, job_ids, wanted)
    with app_state.database.read_series() as session:
        for job_id, values in columns.of_metrics(session, job_ids, wanted).items():
            found.setdefault(job_id, {}).update(values)
    return found


@router.get(
    "/queue",
    operation_id="listQueue",
    summary="List queued jobs in scheduling order",
    description=(
        f"In pages of {limits.PAGE_SIZE_MAX}. Jobs that start between two pages move the others "
        "forward."
    ),
    response_model=Page[JobView],
    responses=conditional.documented(),
)
def queue(
    request: Request,
    app_state: AppStateDep,
    grant: Reads,
    project: Annotated[ProjectPattern, Query()] = None,
    cursor: Annotated[
        int, Query(ge=0, le=2**31 - 1, description="`next_cursor` of the page before.")
    ] = 0,
) -> Response:
    limit, among = limits.PAGE_SIZE_MAX, grant.readable
    with app_state.database.look_jobs() as look:
        # One more shows whether there is another page.
        marks = listing.queued_marks(
            look, among=among, limit=limit + 1, skip=cursor, project=project
        )
    after = str(cursor + limit) if len(marks) > limit else None

    def body(jobs: list[JobView]) -> str:
        return Page[JobView](items=jobs, next_cursor=after).model_dump_json()

    return _answer(app_state, request, among, marks[:limit], after, body=body)


def _answer(
    app_state: AppState,
    request: Request,
    among: Within,
    marks: Sequence[listing.PageMark],
    *facts: object,
    body: Callable[[list[JobView]], str],
) -> Response:
    """Return the answer with some jobs, in this order.

    ``facts`` is what else the answer shows. The jobs are read only if the response is not cached.
    """
    known = None
    if any(mark.is_unseen for mark in marks):
        with app_state.database.look_jobs() as look:
            known = nodes.any_ever(look)
    starts = starts_of(app_state.estimates, marks)
    batches = tags.batches_of(app_state.database, marks)
    tag = tags.of_jobs(marks, batches, *facts, known, starts=starts, among=among)
    if (same := conditional.unchanged(request, tag)) is not None:
        return same

    def answer() -> bytes:
        jobs = [Marked(mark, batches.get(mark.id, 0)) for mark in marks]
        return body(app_state.views.read(jobs, starts, among=among)).encode()

    return app_state.rendered.answer(request, tag, answer)
