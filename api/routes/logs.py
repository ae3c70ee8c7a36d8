"""A job's log lines: as JSON with places to go on from, or as plain text for a pipe.

Not here: how lines are kept (``storage.logs``).
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from api.parts import Here, guarded
from api.problems import documented
from api.routes.jobs import Reference
from domain import limits
from domain.lifecycle import TERMINAL
from domain.views import LogPage
from storage import jobs, logs

router = APIRouter(prefix="/v1/jobs/{reference}", tags=["logs"], dependencies=guarded)


class LogsAsked(BaseModel):
    """Which lines, and how many at most."""

    model_config = ConfigDict(extra="forbid")

    attempt: Annotated[int | None, Field(ge=1, description="None shows all attempts.")] = None
    rank: Annotated[int | None, Field(ge=-1, description="-1 is the launcher.")] = None
    stream: Literal["stdout", "stderr", "launcher"] | None = None
    search: Annotated[str | None, Field(min_length=1, max_length=200, description="Lines that contain this.")] = None
    cursor: Annotated[str | None, Field(max_length=200, description="`next_cursor` of the page before.")] = None
    limit: Annotated[int, Field(ge=1, le=limits.LOG_PAGE_LINES_MAX)] = 1_000
    tail: Annotated[
        int | None, Field(ge=1, le=limits.LOG_PAGE_LINES_MAX, description="The last so many lines, oldest first.")
    ] = None

    @model_validator(mode="after")
    def _one_end(self) -> LogsAsked:
        if self.tail is not None and self.cursor is not None:
            raise ValueError("tail starts from the end and cursor goes on from a place: give one of them")
        return self


@router.get(
    "/logs",
    operation_id="getJobLogs",
    summary="Read a job's log lines",
    response_model=LogPage,
    responses={
        200: {
            "content": {"text/plain": {"schema": {"type": "string"}}},
            "headers": {
                name: {"description": f"With text/plain: `{field}` of the page.", "schema": {"type": "string"}}
                for name, field in (("X-Next-Cursor", "next_cursor"), ("X-Complete", "complete"))
            },
        },
        **documented(404),
    },
)
def read_logs(
    reference: Reference, asked: Annotated[LogsAsked, Query()], request: Request, here: Here
) -> LogPage | Response:
    with here.database.read_jobs() as session:
        job = jobs.find(session, reference)
    # The state is read before the lines: a job that had ended then had written them all.
    with here.database.read_series() as session:
        lines, cursor = logs.page(
            session,
            job.id,
            attempt=asked.attempt,
            rank=asked.rank,
            stream=asked.stream,
            search=asked.search,
            cursor=asked.cursor,
            limit=asked.tail or asked.limit,
            from_end=asked.tail is not None,
        )
        complete = job.state in TERMINAL and logs.at_end(session, job.id, cursor, attempt=asked.attempt)
    if _wants_text(request):
        text = "".join(f"{line.text}\n" for line in lines)
        headers = {"X-Next-Cursor": cursor, "X-Complete": str(complete).lower()}
        return Response(text.encode(errors="replace"), media_type="text/plain", headers=headers)
    return LogPage(lines=lines, next_cursor=cursor, complete=complete)


def _wants_text(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    return "text/plain" in accepted and "application/json" not in accepted
