"""Transition of a job's state, as one guarded statement.

Of two writers that race for one job, the ``UPDATE`` changes a row for only one; its event is
written in the same transaction, so there is exactly one event per transition.

Not here: the table of transitions (``domain.life.lifecycle``), and other changes with them
(``storage.jobs.jobs``, ``storage.attempts.endings``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from sqlalchemy import Update, bindparam, func, null, update
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import TERMINAL, TRANSITIONS
from lockstep.storage.attempts import events
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import run, table_of
from lockstep.storage.db.tables import JobRow

EVENT_KINDS: Final = {
    "place": "placed",
    "run": "running",
    "succeed": "succeeded",
    "fail": "failed",
    "requeue": "requeued",
    "pause": "paused",
    "resume": "unpaused",
    "cancel": "cancelled",
}
"""The event that each transition writes."""


JOBS: Final = table_of(JobRow)


def take(
    session: Session,
    job_id: str,
    transition: str,
    *,
    attempt: int | None,
    reason: str,
    actor: str,
    changes: dict[str, Any] | None = None,
    only_if: tuple[Any, ...] = (),
    data: dict[str, Any] | None = None,
) -> bool:
    """Make one transition of a job if it is permitted now.

    Parameters
    ----------
    session : Session
    job_id, transition : str
        ``transition`` is a name from ``lifecycle.TRANSITIONS``.
    attempt : int or None
        The attempt that causes it: the transition is refused if the job has a later attempt.
    reason : str
        Text of the event's message.
    actor : str
    changes : dict, optional
        Values of columns that change with it.
    only_if : tuple of SQL conditions
        On columns of ``JOBS``.
    data : dict, optional
        For the event.

    Returns
    -------
    bool
        False if another writer was first; nothing was written.
    """
    whose = {"of_job": job_id} if attempt is None else {"of_job": job_id, "of_attempt": attempt}
    statement = _taken(transition, guarded=attempt is not None)
    if only_if:
        statement = statement.where(*only_if)
    if run(session, statement, {**whose, **(changes or {})}).rowcount == 0:
        return False
    kind = EVENT_KINDS[transition]
    events.add(
        session, job_id=job_id, attempt=attempt, kind=kind, message=reason, actor=actor, data=data
    )
    return True


_NO_WAIT: Final[Mapping[str, Any]] = {
    "wait_position": None,
    "wait_reason": None,
    "wait_code": None,
    "wait_facts": null(),
    "hold": null(),
}


@cache
def _taken(transition: str, *, guarded: bool) -> Update:
    """The statement of a transition, made once."""
    sources, target, _cause = TRANSITIONS[transition]
    values: dict[str, Any] = {"state": target, "version": JOBS.c.version + 1}
    if transition == "run":
        values["started_at"] = func.coalesce(JOBS.c.started_at, db_now())
    if transition == "place":
        values |= {"attempt_count": JOBS.c.attempt_count + 1, **_NO_WAIT}
    if target in TERMINAL:
        values["finished_at"] = db_now()
    if target in TERMINAL or transition == "pause":
        values |= _NO_WAIT
    if transition not in ("place", "run"):
        # They were meant for the attempt that is over.
        values |= {"intent": None, "stop_grace": null()}
    statement = (
        update(JOBS)
        .where(JOBS.c.id == bindparam("of_job"), JOBS.c.state.in_(sources))
        .values(values)
    )
    return (
        statement.where(JOBS.c.attempt_count == bindparam("of_attempt")) if guarded else statement
    )
