"""A job that is followed, in one answer: the job, its series, their new points and new events.

Each part is what its own route answers to the same reader. A client sends the cursor of the answer
before, and adds what comes to what it has.

Not here: the parts themselves (``api.routes.jobs``, ``api.routes.history``), log lines
(``api.routes.logs``).
"""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field, model_validator

from lockstep.api.access import Grant, Reads, guarded
from lockstep.api.http import conditional
from lockstep.api.http.places import place_of
from lockstep.api.jobs import versions
from lockstep.api.jobs.series_views import summary_view
from lockstep.api.jobs.versions import JobVersion
from lockstep.api.jobs.views import event_view
from lockstep.api.parts import AppState, AppStateDep
from lockstep.api.routes.history import AttemptsParameter, MaxPointsParameter, drawn, split
from lockstep.api.routes.jobs import Reference, current_view
from lockstep.domain import limits
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.live_views import JobLiveView
from lockstep.domain.rights import Within
from lockstep.domain.series_views import SeriesSummary
from lockstep.domain.views import EventView
from lockstep.storage.attempts import events
from lockstep.storage.db.database import Database
from lockstep.storage.jobs.foreign import Mentions
from lockstep.storage.series import figures, tails

router = APIRouter(prefix="/v1/jobs/{reference}", tags=["history"], dependencies=guarded)

EVENTS_MAX: Final = limits.PAGE_SIZE_MAX
"""Of one answer. A client that was away for more gets a complete answer."""


class LiveQuery(BaseModel, extra="forbid"):
    """Selection of points and events of one job."""

    names: Annotated[
        list[str],
        Field(
            max_length=limits.METRIC_NAMES_PER_JOB_MAX,
            description="Names of series whose points are requested, repeated or separated by "
            "commas. Default: none. Later requests may name others.",
        ),
    ] = []
    attempts: AttemptsParameter = "current"
    max_points: MaxPointsParameter = 1_000
    summaries: Annotated[
        bool, Field(description="False leaves out metadata and figures of the series.")
    ] = True
    since: Annotated[
        str | None,
        Field(
            max_length=tails.CURSOR_LENGTH_MAX + 32,
            json_schema_extra={"pattern": tails.LIVE_CURSOR},
            description="`cursor` of the previous response, with the same `attempts` and "
            "`max_points`.",
        ),
    ] = None

    @model_validator(mode="after")
    def _bounded(self) -> LiveQuery:
        count = len(split(self.names))
        if (points := count * self.max_points) > limits.SERIES_POINTS_OF_JOBS_MAX:
            raise ValueError(
                f"{count} names × {self.max_points} max_points are {points}; one response has at "
                f"most {limits.SERIES_POINTS_OF_JOBS_MAX}: lower max_points, or request fewer names"
            )
        return self


class _LiveCursor(NamedTuple):
    """Place up to which a client has read a job."""

    job: str
    event_id: int
    points: str

    @classmethod
    def read(cls, given: str) -> _LiveCursor:
        if re.fullmatch(tails.LIVE_CURSOR, given) is None:
            raise LockstepError(
                ErrorCode.INVALID,
                f"since={given[:40]!r} is not a cursor of a followed job",
                next_step="Use cursor of the previous response, or omit since.",
            )
        job, event_id, points = given.split(".")
        return cls(job, int(event_id), points)

    def written(self) -> str:
        return f"{self.job}.{self.event_id}.{self.points}"


@router.get(
    "/live",
    operation_id="getJobLive",
    summary="Follow a job: its state, series, new points and new events",
    description="What `getJob`, `listJobSeries`, `getJobMetrics` and `listJobEvents` answer, in "
    "one response.",
    response_model=JobLiveView,
    responses=conditional.documented(404),
)
def live(
    reference: Reference,
    asked: Annotated[LiveQuery, Query()],
    request: Request,
    app_state: AppStateDep,
    grant: Reads,
) -> Response:
    before = None if asked.since is None else _LiveCursor.read(asked.since)
    version, newest = versions.followed(
        app_state.database, app_state.estimates, reference, among=grant.readable
    )
    tag = conditional.tag_of(*version.parts)
    if (same := conditional.unchanged(request, tag)) is not None:
        return same
    if before is not None and (
        before.job != version.id[-tails.JOB_CHARS :] or before.event_id > newest
    ):
        before = None  # of another job, or of a database that was restored since
    return app_state.rendered.answer(
        request,
        tag,
        lambda: drawn(
            _answer(
                app_state, grant, version, asked, before, newest=newest, place=place_of(request)
            )
        ),
    )


def _answer(
    app_state: AppState,
    grant: Grant,
    version: JobVersion,
    asked: LiveQuery,
    before: _LiveCursor | None,
    *,
    newest: int,
    place: str,
) -> dict[str, object]:
    # First, so that the points of a job that has ended are all of them.
    job_id = version.id
    view = current_view(app_state, grant, version)
    tail = _points(app_state.database, job_id, asked, before, place)
    since = None if before is None or tail.complete else before.event_id
    new = _events(app_state.database, job_id, since, newest, grant.readable)
    if new.complete and not tail.complete:
        tail = _points(app_state.database, job_id, asked, None, place)
    return {
        "job": view,
        "summaries": _summaries(app_state.database, job_id) if asked.summaries else None,
        "series": tail.curves,
        "events": new.events,
        "older_events": new.older,
        "cursor": _LiveCursor(job_id[-tails.JOB_CHARS :], new.until, tail.cursor).written(),
        "complete": tail.complete,
    }


def _summaries(database: Database, job_id: str) -> list[SeriesSummary]:
    with database.read_series() as session:
        return [summary_view(each) for each in figures.read(session, job_id)]


def _points(
    database: Database, job_id: str, asked: LiveQuery, before: _LiveCursor | None, place: str
) -> tails.Tail:
    """Return the new points of the named series; all of them if some became invalid."""
    with database.read_series() as session:
        tail = tails.read(
            session,
            job_id,
            since=None if before is None else before.points,
            names=split(asked.names),
            max_points=asked.max_points,
            attempts=asked.attempts,
            place=place,
        )
    if before is None or tail.complete:
        return tail._replace(complete=True)
    cursor = tails.joined(before.points, tail.cursor)
    return (
        _points(database, job_id, asked, None, place)
        if cursor is None
        else tail._replace(cursor=cursor)
    )


class _NewEvents(NamedTuple):
    events: list[EventView]
    """Oldest first."""
    older: str | None
    until: int
    """Id of the newest one that the client has then."""
    complete: bool


def _events(
    database: Database, job_id: str, since: int | None, newest: int, among: Within
) -> _NewEvents:
    """Return the events after ``since``; the newest of all without it, or if they are too many.

    ``newest`` is the id of the newest one when the tag was made.
    """
    older, until = None, since or 0
    if since is not None and since == newest:
        return _NewEvents([], None, since, False)
    with database.read_jobs() as session:
        rows = (
            []
            if since is None
            else events.page(session, job_id, beyond=since, limit=EVENTS_MAX + 1)
        )
        complete = since is None or len(rows) > EVENTS_MAX
        if complete:
            found = events.page(session, job_id, order="newest", limit=EVENTS_MAX + 1)
            rows = found[:EVENTS_MAX][::-1]
            older = str(rows[0].id) if len(found) > EVENTS_MAX else None
            until = 0
        mentions = Mentions(session, [row.message for row in rows], among=among)
    shown = [event_view(row, mentions) for row in rows]
    return _NewEvents(shown, older, rows[-1].id if rows else until, complete)
