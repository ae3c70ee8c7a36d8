"""Log lines of a job as they arrive, as server-sent events.

Not here: the source of the streams (``api.http.following``), reading by page (``api.routes.logs``).
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import Field, model_validator
from starlette.concurrency import run_in_threadpool

from lockstep.api.access import Grant, Reads, guarded, still_reads
from lockstep.api.http.following import LogStream
from lockstep.api.http.problems import documented
from lockstep.api.parts import AppState, AppStateDep
from lockstep.api.routes.jobs import Reference
from lockstep.api.routes.logs import Cursor, LogFilter
from lockstep.domain import limits
from lockstep.domain.life.lifecycle import TERMINAL
from lockstep.domain.views import LogEnd, LogPage
from lockstep.storage.db.tables import JobRow
from lockstep.storage.logs import log_pages

router = APIRouter(prefix="/v1/jobs/{reference}", tags=["logs"], dependencies=guarded)

DESCRIPTION: Final = f"""
Each `lines` event has some lines, oldest first, as `{LogPage.__name__}` in JSON; its `id` is the
cursor after them. An event without data only moves the cursor. A comment keeps a quiet connection
open. Once the job has ended and all its lines were sent, an `end` event follows
(`{LogEnd.__name__}`), and the stream closes.

Resume a broken stream with its last id, in `Last-Event-ID` as browsers send it, or as `cursor`: no
line is missing or repeated. After the last line of an ended job the answer is 204, and a browser
does not reconnect.
"""


class StreamQuery(LogFilter):
    """Selection of lines, and the start of the stream."""

    cursor: Annotated[
        Cursor | None,
        Field(description="Id of an event or `next_cursor` of a page: the stream starts after it."),
    ] = None
    tail: Annotated[
        int | None,
        Field(
            ge=1,
            le=limits.LOG_PAGE_LINES_MAX,
            description="Start with this many lines from the end.",
        ),
    ] = None

    @model_validator(mode="after")
    def _one_start(self) -> StreamQuery:
        if self.tail is not None and self.cursor is not None:
            raise ValueError("tail and cursor exclude each other: give only one of them")
        return self


@router.get(
    "/logs/stream",
    operation_id="followJobLogs",
    summary="Follow a job's log lines",
    description=DESCRIPTION,
    response_class=Response,
    responses={
        200: {
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
            "description": "Server-sent events.",
        },
        204: {"description": "The job has ended, and the client has all lines."},
        **documented(404),
    },
)
async def follow_logs(
    *,
    reference: Reference,
    asked: Annotated[StreamQuery, Query()],
    app_state: AppStateDep,
    grant: Reads,
    request: Request,
    last_event_id: Annotated[
        Cursor | None, Header(description="Id of the last received event.")
    ] = None,
) -> Response:
    job, cursor, is_over = await run_in_threadpool(
        _start, app_state, grant, reference, asked, last_event_id
    )
    if is_over and last_event_id is not None:
        return Response(status_code=204)
    following = app_state.following
    return LogStream(
        following,
        following.enter(job.id, asked.chosen(), job.state),
        cursor,
        partial(still_reads, request, job.project),
    )


def _start(
    app_state: AppState,
    grant: Grant,
    reference: str,
    asked: StreamQuery,
    last_event_id: str | None,
) -> tuple[JobRow, str, bool]:
    """Return the job, the cursor to start at, and True if no line will ever follow it."""
    job = grant.find_job(app_state, reference)
    with app_state.database.read_series() as session:
        cursor = last_event_id or asked.cursor or log_pages.Position(0, 0).encode()
        if asked.tail is not None and not last_event_id:
            page = log_pages.page(session, job.id, asked.chosen(), limit=asked.tail, from_end=True)
            first = page.lines[0] if page.lines else None
            cursor = (
                page.next_cursor
                if first is None
                else log_pages.Position(first.attempt, first.line).encode()
            )
        # Checked for every job: an invalid cursor is rejected before the stream starts.
        at_end = log_pages.at_end(session, job.id, cursor, attempt=asked.attempt)
    return job, cursor, job.state in TERMINAL and at_end
