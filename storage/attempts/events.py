"""Events of jobs: rows that are added and never changed.

Ids of one job's events grow in the order of visibility, so a reader that continues after the last
id misses none. PostgreSQL assigns ids before the commit, so an insert locks the job's row first.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeVar

from sqlalchemy import Connection, Select, bindparam, func, insert, select
from sqlalchemy.orm import Session

from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import has_row_locks, run, table_of
from lockstep.storage.db.tables import EventRow, JobRow

Order = Literal["oldest", "newest"]
"""First end of a job's events in a page."""
T = TypeVar("T")

_JOB: Final = table_of(JobRow)
_LOCKED: Final = (
    select(_JOB.c.id).where(_JOB.c.id == bindparam("of_job")).with_for_update(key_share=True)
)
_EVENT: Final = table_of(EventRow)
_THERE: Final = select(_EVENT.c.id).where(_EVENT.c.origin == bindparam("of_origin"))
_ADDED: Final = insert(table_of(EventRow)).values(at=db_now())
_NEWEST: Final = select(func.coalesce(func.max(_EVENT.c.id), 0)).where(
    _EVENT.c.job_id == bindparam("of_job")
)


def add(
    session: Session,
    *,
    job_id: str,
    attempt: int | None,
    kind: str,
    message: str,
    actor: str,
    data: dict[str, Any] | None = None,
    origin: str | None = None,
    is_new: bool = False,
) -> None:
    """Note that something happened to a job, in the transaction in which it happened.

    An event with an ``origin`` that is there already is not added again. ``is_new`` says that this
    transaction has added the job: no other one can add an event.
    """
    if origin is not None and run(session, _THERE, {"of_origin": origin}).first() is not None:
        return
    if not is_new and has_row_locks(session):
        run(session, _LOCKED, {"of_job": job_id}).one()
    event = {
        "job_id": job_id,
        "attempt": attempt,
        "kind": kind,
        # A message may quote user code, and PostgreSQL has no NUL in text.
        "message": message.replace("\0", "\N{SYMBOL FOR NULL}"),
        "actor": actor,
        "data": data or {},
        "origin": origin,
    }
    run(session, _ADDED, event)


def page(
    session: Session, job_id: str, *, order: Order = "oldest", beyond: int | None = None, limit: int
) -> list[EventRow]:
    """The job's events in this order, from behind the one of the id ``beyond`` on."""
    return list(session.scalars(_walk(select(EventRow), job_id, order, beyond).limit(limit)))


def page_ids(
    session: Session, job_id: str, *, order: Order = "oldest", beyond: int | None = None, limit: int
) -> list[int]:
    """Return the ids of that page, which identify it: events never change."""
    return list(session.scalars(_walk(select(EventRow.id), job_id, order, beyond).limit(limit)))


def newest_id(connection: Connection, job_id: str) -> int:
    """Return the id of the job's newest event; 0 without one."""
    return int(connection.execute(_NEWEST, {"of_job": job_id}).scalar_one())


def _walk(selected: Select[T], job_id: str, order: Order, beyond: int | None) -> Select[T]:
    forward = order == "oldest"
    walk = selected.where(EventRow.job_id == job_id).order_by(
        EventRow.id if forward else EventRow.id.desc()
    )
    if beyond is None:
        return walk
    return walk.where(EventRow.id > beyond if forward else EventRow.id < beyond)
