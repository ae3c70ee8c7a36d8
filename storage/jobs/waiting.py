"""Places of queued jobs, and the reasons for which they wait.

Not here: the choice of a reason (``domain.scheduling``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, update
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import JobState
from lockstep.storage.db.dialects import run, table_of
from lockstep.storage.db.tables import JobRow


class Waiting(NamedTuple):
    """Place of a queued job, and why it waits."""

    position: int
    reason: str
    code: str
    facts: dict[str, Any]
    hold: dict[str, Any] | None = None


def set_waiting(session: Session, waiting: Mapping[str, Waiting]) -> None:
    """Write places and reasons of queued jobs, each of which differs from the stored one.

    Parameters
    ----------
    session : Session
    waiting : mapping of job id to Waiting
    """
    rows = [
        {"of_job": job_id, **{f"new_{name}": value for name, value in waits._asdict().items()}}
        for job_id, waits in sorted(waiting.items())
    ]
    if rows:
        # All at once: of thousands of jobs that wait, each moves up with every placement.
        run(session, _WAITS, rows)


_JOB: Final = table_of(JobRow)
_WAITS: Final = (
    update(_JOB)
    .where(_JOB.c.id == bindparam("of_job"), _JOB.c.state == JobState.QUEUED)
    .values(
        wait_position=bindparam("new_position"),
        wait_reason=bindparam("new_reason"),
        wait_code=bindparam("new_code"),
        wait_facts=bindparam("new_facts"),
        hold=bindparam("new_hold"),
        version=_JOB.c.version + 1,
    )
)
