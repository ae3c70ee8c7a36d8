"""The audit: changes and refused requests, newest first.

Not here: writing its rows (``api.changes``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from lockstep.api.access import ReadsAudit, guarded
from lockstep.api.http.problems import documented
from lockstep.api.jobs.views import moment
from lockstep.api.parts import AppStateDep
from lockstep.domain import limits
from lockstep.domain.rights import Within
from lockstep.domain.views import AuditView, Page
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import AuditRow
from lockstep.storage.people import audit

router = APIRouter(prefix="/v1/audit", tags=["audit"], dependencies=guarded)
_LINES: Final = "text/plain"
"""Media type of JSON lines. Generators of clients refuse ``application/x-ndjson``."""


class AuditFilter(BaseModel, extra="forbid"):
    """Selection of rows. All given conditions must hold."""

    actor: Annotated[
        str | None, Field(max_length=255, description="Name of the person.", examples=["ada"])
    ] = None
    action: Annotated[
        str | None,
        Field(
            max_length=64,
            description="An action, or the missing right of a refusal.",
            examples=["job.cancel"],
        ),
    ] = None
    project: Annotated[
        str | None, Field(max_length=63, description="The project.", examples=["default"])
    ] = None


class AuditQuery(AuditFilter):
    """Selection of a page of rows."""

    cursor: Annotated[
        int | None, Field(ge=0, lt=2**62, description="`next_cursor` of the previous page.")
    ] = None
    limit: Annotated[int, Field(ge=1, le=limits.PAGE_SIZE_MAX)] = limits.PAGE_SIZE_DEFAULT


@router.get(
    "",
    operation_id="listAudit",
    summary="List changes and refused requests, newest first",
    description="Rows of the projects that you administer; for an admin of the service, all rows.",
    responses=documented(403),
)
def list_audit(
    asked: Annotated[AuditQuery, Query()], app_state: AppStateDep, grant: ReadsAudit
) -> Page[AuditView]:
    rows, cursor = _page(app_state.database, grant.within, asked, asked.cursor, asked.limit)
    return Page(items=rows, next_cursor=None if cursor is None else str(cursor))


@router.get(
    "/export",
    operation_id="exportAudit",
    summary="Download the rows as JSON, one per line, newest first",
    response_class=StreamingResponse,
    responses={200: {"content": {_LINES: {"schema": {"type": "string"}}}}, **documented(403)},
)
def export_audit(
    asked: Annotated[AuditFilter, Query()], app_state: AppStateDep, grant: ReadsAudit
) -> StreamingResponse:
    lines = _lines(app_state.database, grant.within, asked)
    headers = {"Cache-Control": "no-store"}
    return StreamingResponse(lines, media_type=_LINES, headers=headers)


def _lines(database: Database, among: Within, asked: AuditFilter) -> Iterator[bytes]:
    """Yield the rows, one page at a time.

    No connection is held between two pages: a client may be slow.
    """
    rows, before = _page(database, among, asked, None, limits.PAGE_SIZE_MAX)
    while rows:
        yield "".join(f"{row.model_dump_json()}\n" for row in rows).encode()
        if before is None:
            return
        rows, before = _page(database, among, asked, before, limits.PAGE_SIZE_MAX)


def _page(
    database: Database, among: Within, asked: AuditFilter, before: int | None, limit: int
) -> tuple[list[AuditView], int | None]:
    with database.read_jobs() as session:
        rows, following = audit.page(
            session,
            among=among,
            actor=asked.actor,
            action=asked.action,
            project=asked.project,
            before=before,
            limit=limit,
        )
    return [_view(row) for row in rows], following


def _view(row: AuditRow) -> AuditView:
    return AuditView(
        id=row.id,
        at=moment(row.at),
        actor=row.actor,
        token=row.token,
        address=row.address,
        request_id=row.request_id,
        action=row.action,
        target=row.target,
        project=row.project,
        outcome=row.outcome,
        detail=row.detail,
    )
