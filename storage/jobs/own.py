"""Jobs of one person: those that run or wait, the newest ones, and those that have failed lately.

Not here: lists by filter (``storage.jobs.listing``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, bindparam, case, select

from lockstep.domain.life.lifecycle import TERMINAL, JobState
from lockstep.domain.rights import Within
from lockstep.storage.db.clock import db_now
from lockstep.storage.jobs.columns import JOBS, readable

FIRST_MAX: Final = 5
WAITING_MAX: Final = 7
FAILED_MAX: Final = 20
FAILED_SECONDS: Final = 86_400.0
_ORDER: Final = {JobState.PAUSED: 1}
"""Behind those that run."""


class FailedJob(NamedTuple):
    id: str
    name: str
    project: str
    outcome: Mapping[str, Any] | None
    finished_at: float


class OwnJobs(NamedTuple):
    """Ids in the order in which they are shown, and numbers."""

    first: list[str]
    waiting: list[str]
    running: int
    queued: int
    failed: list[FailedJob]


def read(connection: Connection, owner: str, *, among: Within) -> OwnJobs:
    """Return the jobs of a person in the projects that the reader may read."""
    of_owner = _statements(among)
    rows = list(connection.execute(of_owner.live, {"owner": owner}))
    waiting = [row.id for row in rows if row.state is JobState.QUEUED]
    first = [row.id for row in rows if row.state is not JobState.QUEUED][:FIRST_MAX]
    if len(first) < FIRST_MAX:
        ended = connection.scalars(of_owner.ended, {"owner": owner})
        first += list(ended)[: FIRST_MAX - len(first)]
    return OwnJobs(
        first,
        waiting[:WAITING_MAX],
        sum(row.state in (JobState.STARTING, JobState.RUNNING) for row in rows),
        len(waiting),
        [FailedJob(*row) for row in connection.execute(of_owner.failed, {"owner": owner})],
    )


class _Statements(NamedTuple):
    live: Select[str, JobState]
    ended: Select[str]
    failed: Select[Any]


@lru_cache(maxsize=64)
def _statements(among: Within) -> _Statements:
    """The statements, kept for polls."""
    mine = (JOBS.c.actor == bindparam("owner"), readable(among))
    place = JOBS.c.wait_position
    live = (
        select(JOBS.c.id, JOBS.c.state)
        .where(*mine, JOBS.c.state.not_in(TERMINAL))
        .order_by(case(_ORDER, value=JOBS.c.state, else_=0), place.is_(None), place)
        .order_by(JOBS.c.id.desc())
    )
    ended = select(JOBS.c.id).where(*mine, JOBS.c.state.in_(TERMINAL))
    failed = (
        select(*(JOBS.c[name] for name in FailedJob._fields))
        .where(*mine, JOBS.c.state == JobState.FAILED)
        .where(JOBS.c.finished_at > db_now() - FAILED_SECONDS)
        .order_by(JOBS.c.finished_at.desc(), JOBS.c.id)
        .limit(FAILED_MAX)
    )
    return _Statements(live, ended.order_by(JOBS.c.id.desc()).limit(FIRST_MAX), failed)
