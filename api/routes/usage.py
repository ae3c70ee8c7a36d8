"""Use of devices by project, person or day.

Not here: its statements (``storage.control.usage``).
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from lockstep.api.access import Reads, guarded
from lockstep.api.http.problems import documented
from lockstep.api.jobs.views import moment
from lockstep.api.parts import AppStateDep
from lockstep.api.routes.logs import Moment, seconds_of
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.people_views import UsageBy, UsageRow, UsageView
from lockstep.storage.control import usage
from lockstep.storage.control.usage import Total
from lockstep.storage.db.clock import now
from lockstep.storage.db.dialects import DAY_SECONDS

router = APIRouter(prefix="/v1/usage", tags=["people"], dependencies=guarded)
DAYS_DEFAULT: Final = 30
DAYS_MAX: Final = 366
_HOUR: Final = 3_600.0


class UsageQuery(BaseModel, extra="forbid"):
    """Range and rows of a report."""

    by: UsageBy = UsageBy.PROJECT
    since: Annotated[
        Moment | None,
        Field(
            alias="from",
            description="Start of the range: RFC 3339 or seconds since the epoch. Default: "
            f"{DAYS_DEFAULT} days before its end.",
        ),
    ] = None
    until: Annotated[
        Moment | None,
        Field(
            alias="to",
            description=f"End of the range, at most {DAYS_MAX} days after its start. Default: now.",
        ),
    ] = None
    project: Annotated[
        str | None, Field(max_length=255, description="Only this project.", examples=["nlp"])
    ] = None


@router.get(
    "",
    operation_id="getUsage",
    summary="Sum up the use of devices by project, person or day",
    description="Use of the projects that you may read, jobs that run included.",
    responses=documented(),
)
def get_usage(
    asked: Annotated[UsageQuery, Query()], app_state: AppStateDep, grant: Reads
) -> UsageView:
    with app_state.database.read_jobs() as session:
        at = now(session)
        given, since = seconds_of(asked.until), seconds_of(asked.since)
        until = at if given is None else min(given, at)
        if since is None:
            since = max(0.0, until - DAYS_DEFAULT * DAY_SECONDS)
        _check(since, until)
        found = usage.totals(
            session, asked.by, since, until, among=grant.readable, project=asked.project
        )
    return UsageView(
        by=asked.by,
        begins_at=moment(since),
        ends_at=moment(until),
        rows=[_row(total) for total in found],
    )


def _check(since: float, until: float) -> None:
    """Refuse a range that is empty or too long.

    Raises
    ------
    LockstepError
        ``INVALID``.
    """
    if 0 < until - since <= DAYS_MAX * DAY_SECONDS:
        return
    raise LockstepError(
        ErrorCode.INVALID,
        f"the range from {moment(since):%Y-%m-%dT%H:%M:%SZ} to {moment(until):%Y-%m-%dT%H:%M:%SZ} "
        f"is empty or longer than {DAYS_MAX} days",
        next_step="Give a start that is in the past and before the end.",
    )


def _row(total: Total) -> UsageRow:
    name = total.name
    productive, repeated = total.productive / _HOUR, total.repeated / _HOUR
    allocated = total.allocated / _HOUR
    return UsageRow(
        name=name if isinstance(name, str) else f"{moment(name):%Y-%m-%d}",
        allocated=allocated,
        productive=productive,
        repeated=repeated,
        idle=max(0.0, allocated - productive - repeated),
        jobs=total.jobs,
    )
