"""Log lines of a job: JSON pages with cursors, plain text for a pipe, or one file.

Not here: storage and search of lines (``storage.logs.logs``, ``storage.logs.log_pages``), streams
(``api.routes.log_streams``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from lockstep.api.access import Reads, guarded
from lockstep.api.http import conditional
from lockstep.api.http.problems import documented
from lockstep.api.jobs import downloads
from lockstep.api.jobs.views import job_tag
from lockstep.api.parts import AppStateDep
from lockstep.api.routes.jobs import Reference
from lockstep.domain import limits
from lockstep.domain.life.lifecycle import TERMINAL
from lockstep.domain.views import LogPage
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import change_feed
from lockstep.storage.logs import log_pages
from lockstep.storage.logs.log_pages import LogSelection

router = APIRouter(prefix="/v1/jobs/{reference}", tags=["logs"], dependencies=guarded)

LAST_SECOND: Final = 253_402_300_799
"""End of the year 9999, the last that RFC 3339 can represent, in seconds since the epoch."""
DOWNLOAD_LINES: Final = 2_000
"""Lines that are read and sent at once."""


def _parsed_moment(given: object) -> object:
    """Parse a date or a number of seconds, and reject every other text with one message.

    A union of types would give one message per type. A number must not reach pydantic's parser of
    dates, which reads a large one as milliseconds.
    """
    if not isinstance(given, str):
        return given
    try:
        if re.fullmatch(r"\d{4}-.+", given, re.ASCII):
            return _DATES.validate_python(given)
        return _SECONDS.validate_python(given)
    except ValidationError:
        raise ValueError(
            "expected a date and time with its zone in RFC 3339 format, such as "
            "2026-02-01T12:00:00Z or 2026-02-01T13:00:00+01:00, or seconds since the epoch, such "
            "as 1769947200"
        ) from None


_Seconds = Annotated[float, Field(ge=0, le=LAST_SECOND, allow_inf_nan=False)]
_DATES: Final = TypeAdapter[datetime](AwareDatetime)
_SECONDS: Final = TypeAdapter[float](_Seconds)
Moment = Annotated[_Seconds | AwareDatetime, BeforeValidator(_parsed_moment)]


# The pattern is documentation only. The reader of the cursor rejects an invalid one with its own
# error.
Cursor = Annotated[str, Field(max_length=200, json_schema_extra={"pattern": log_pages.CURSOR})]


class LogFilter(BaseModel, extra="forbid"):
    """Selection of lines for a page, a download or a stream (``api.routes.log_streams``)."""

    # A cursor has at most nine digits for the attempt.
    attempt: Annotated[int | None, Field(ge=1, lt=10**9, description="Default: all attempts.")] = (
        None
    )
    rank: Annotated[int | None, Field(ge=-1, le=10**9, description="-1 is the launcher.")] = None
    stream: Literal["stdout", "stderr", "launcher"] | None = None
    search: Annotated[
        str | None,
        Field(
            min_length=1, max_length=200, description="Lines that contain this text, ignoring case."
        ),
    ] = None
    since: Annotated[
        Moment | None,
        Field(
            description=(
                "Lines written at this time or later by the node's clock: RFC 3339 or seconds "
                "since the epoch."
            )
        ),
    ] = None
    until: Annotated[Moment | None, Field(description="Lines written before this time.")] = None

    def chosen(self) -> LogSelection:
        return LogSelection(
            self.attempt,
            self.rank,
            self.stream,
            self.search,
            seconds_of(self.since),
            seconds_of(self.until),
        )


class LogsQuery(LogFilter):
    """Selection of lines, with a start and a maximum number."""

    cursor: Annotated[
        Cursor | None,
        Field(description="`next_cursor` of a page: the lines after it.", examples=["1.0"]),
    ] = None
    before: Annotated[
        Cursor | None, Field(description="`prev_cursor` of a page: the lines before it.")
    ] = None
    limit: Annotated[int, Field(ge=1, le=limits.LOG_PAGE_LINES_MAX)] = 1_000
    tail: Annotated[
        int | None,
        Field(
            ge=1,
            le=limits.LOG_PAGE_LINES_MAX,
            description="Number of lines from the end, oldest first.",
        ),
    ] = None

    @model_validator(mode="after")
    def _one_end(self) -> LogsQuery:
        if self.tail is not None and self.cursor is not None:
            raise ValueError("tail and cursor exclude each other: give only one of them")
        if self.before is not None and (self.tail is not None or self.cursor is not None):
            raise ValueError("before, cursor and tail exclude each other: give only one of them")
        return self


def seconds_of(moment: float | datetime | None) -> float | None:
    """Return a time of a query in seconds since the epoch; None stays None."""
    return moment.timestamp() if isinstance(moment, datetime) else moment


@router.get(
    "/logs",
    operation_id="getJobLogs",
    summary="Read a page of a job's log lines",
    description=(
        "Oldest line first. The page starts at the beginning of the log or at `cursor`, ends at "
        "`before`, or contains the end of the log (`tail`). The work for one page is limited, so "
        "a page may have fewer lines than `limit`, or none, although more lines exist: continue "
        "with `next_cursor` until `complete`, or backwards with `prev_cursor` until it is null."
    ),
    response_model=LogPage,
    responses={
        200: {
            "content": {"text/plain": {"schema": {"type": "string"}}},
            "headers": {
                **conditional.ETAG,
                **{
                    name: {
                        "description": f"With text/plain: `{field}` of the page.",
                        "schema": {"type": "string"},
                    }
                    for name, field in (
                        ("X-Next-Cursor", "next_cursor"),
                        ("X-Prev-Cursor", "prev_cursor"),
                        ("X-Complete", "complete"),
                    )
                },
            },
        },
        304: conditional.RESPONSES[304],
        **documented(404),
    },
)
def read_logs(
    *,
    reference: Reference,
    asked: Annotated[LogsQuery, Query()],
    request: Request,
    response: Response,
    app_state: AppStateDep,
    grant: Reads,
) -> LogPage | Response:
    job = grant.find_job(app_state, reference)
    as_text = _wants_text(request)
    # The state is read before the lines: if the job had ended by then, all its lines are stored.
    with app_state.database.read_series() as session:
        batches = change_feed.counts(session.connection(), [job.id]).get(job.id, 0)
        tag = conditional.tag_of(*job_tag(job, batches), "text" if as_text else "json")
        if (same := conditional.unchanged(request, tag)) is not None:
            same.headers["Vary"] = "Accept"
            return same
        page = log_pages.page(
            session,
            job.id,
            asked.chosen(),
            limit=asked.tail or asked.limit,
            cursor=asked.cursor,
            before=asked.before,
            from_end=asked.tail is not None,
        )
        complete = job.state in TERMINAL and log_pages.at_end(
            session, job.id, page.next_cursor, attempt=asked.attempt
        )
    if as_text:
        response = _as_text(page, complete=complete)
    conditional.mark(response, tag)
    response.headers["Vary"] = "Accept"
    if as_text:
        return response
    return LogPage(
        lines=page.lines,
        next_cursor=page.next_cursor,
        prev_cursor=page.prev_cursor,
        complete=complete,
    )


def _as_text(page: log_pages.Slice, *, complete: bool) -> Response:
    text = "".join(f"{line.text}\n" for line in page.lines)
    headers = {"X-Next-Cursor": page.next_cursor, "X-Complete": str(complete).lower()}
    if page.prev_cursor is not None:
        headers["X-Prev-Cursor"] = page.prev_cursor
    return Response(text.encode(errors="replace"), media_type="text/plain", headers=headers)


@router.get(
    "/logs/download",
    operation_id="downloadJobLogs",
    summary="Download a job's log as one file",
    description=(
        "All lines stored at the time of the request, or those that match the filters, as plain "
        "text."
    ),
    response_class=StreamingResponse,
    responses=downloads.described("text/plain"),
)
def download_logs(
    reference: Reference, asked: Annotated[LogFilter, Query()], app_state: AppStateDep, grant: Reads
) -> Response:
    job = grant.find_job(app_state, reference)
    with app_state.database.read_series() as session:
        end = log_pages.end(session, job.id, attempt=asked.attempt)
    text = _text(app_state.database, job.id, asked.chosen(), end)
    return downloads.sent(job, text, "text/plain", ending="log")


def _text(
    database: Database, job_id: str, chosen: LogSelection, end: log_pages.Position
) -> Iterator[bytes]:
    """Yield the selected lines before the position ``end``, one page at a time.

    No connection is held between two pages: a client may be slow.
    """
    position = log_pages.Position(0, 0)
    while position < end:
        with database.read_series() as session:
            page = log_pages.page(
                session, job_id, chosen, limit=DOWNLOAD_LINES, cursor=position.encode()
            )
        position = log_pages.decode(page.next_cursor)
        text = "".join(f"{line.text}\n" for line in page.lines if (line.attempt, line.line) < end)
        if text:
            yield text.encode(errors="replace")


def _wants_text(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    return "text/plain" in accepted and "application/json" not in accepted
