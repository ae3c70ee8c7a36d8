"""Jobs: submission, lookup by reference, cancellation.

Not here: lists (``storage.jobs.listing``), transitions (``storage.attempts.transitions``), attempts
(``storage.attempts.attempts``), and placement (``domain.scheduling.decide``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import uuid_utils
from sqlalchemy import Connection, Row, Select, bindparam, insert, select
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.rights import Within
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.training.plan import BatchPlan
from lockstep.storage.attempts import events, transitions
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import apart, for_each, run
from lockstep.storage.db.tables import IdempotencyKeyRow, JobRow
from lockstep.storage.jobs import listing, marks, retention, settings
from lockstep.storage.jobs.columns import readable
from lockstep.storage.jobs.conditions import ID_PART, part_of_id

# A submit's statements are built once: building them again, and the session's bookkeeping of rows
# that are only written, took most of its time.
_GIVEN: Final = frozenset(
    "id name project kind priority devices device_type node_count needs document spec plan steps "
    "retries_max timeout_seconds timeout_source actor".split()
)
_WRITTEN: Final = insert(transitions.JOBS).returning(
    *(column for column in transitions.JOBS.c if column.name not in _GIVEN)
)
"""Insert of a job with the columns ``_GIVEN``; the table's defaults fill the others and are
returned."""
_RESERVED: Final = for_each(
    IdempotencyKeyRow,
    lambda insert: (
        insert.values(created_at=db_now())
        .on_conflict_do_nothing()
        .execution_options(preserve_rowcount=True)
    ),
)


def create(
    session: Session,
    *,
    document: dict[str, Any],
    spec: JobSpec,
    plan: BatchPlan | None,
    actor: str,
    idempotency: tuple[str, str] | None = None,
    timeout_source: str | None = None,
) -> tuple[JobRow, bool]:
    """Write a job, queued, with its first event.

    Parameters
    ----------
    session : Session
    document : dict
        The submitted body, kept as it was sent.
    spec : JobSpec
    plan : BatchPlan or None
    actor : str
        User who submits it.
    idempotency : (key, fingerprint), optional
        A repeat of both by the same actor writes nothing and returns the job of the first time.
    timeout_source : str, optional
        Origin of its time limit.

    Returns
    -------
    (JobRow, bool)
        The job as it was written, apart from the session, and whether it was written now.

    Raises
    ------
    LockstepError
        ``CONFLICT`` if the key was used for another body.
    """
    job_id = str(uuid_utils.uuid7())
    if idempotency is not None:
        earlier = _reserve(session, job_id, actor, *idempotency)
        if earlier is not None:
            return earlier, False
    stored = spec.model_dump(mode="json")
    given = {
        "id": job_id,
        "name": spec.name,
        "project": spec.project,
        "kind": spec.kind,
        "priority": spec.priority,
        "devices": spec.device_count(),
        "device_type": spec.resources.gpu_type,
        "node_count": spec.resources.nodes,
        "needs": spec.needs(),
        "document": document,
        "spec": stored,
        "plan": None if plan is None else plan.model_dump(mode="json"),
        "steps": None if plan is None else plan.steps,
        "retries_max": spec.retry.max,
        "timeout_seconds": spec.timeout_seconds,
        "timeout_source": timeout_source,
        "actor": actor,
    }
    settled = run(session, _WRITTEN, given).one()._mapping
    job = apart(JobRow, {**given, **settled})
    marks.add_labels(session, job_id, spec.labels)
    settings.add(session, job_id, stored)
    retention.note(session, job_id, spec.retention)
    events.add(
        session,
        job_id=job_id,
        attempt=None,
        kind="submitted",
        message=f"submitted by {actor}",
        actor=actor,
        is_new=True,
    )
    return job, True


def _reserve(
    session: Session, job_id: str, actor: str, key: str, fingerprint: str
) -> JobRow | None:
    """Take an idempotency key for a new job; the earlier job if it was taken before.

    The insert waits for a transaction that holds the same key, so that of many repeats at once
    exactly one continues.
    """
    reservation = {"actor": actor, "key": key, "fingerprint": fingerprint, "job_id": job_id}
    if run(session, _RESERVED, reservation).rowcount == 1:
        return None
    taken = session.execute(
        select(IdempotencyKeyRow).where(
            IdempotencyKeyRow.actor == actor, IdempotencyKeyRow.key == key
        )
    ).scalar_one()
    if taken.fingerprint != fingerprint:
        raise LockstepError(
            ErrorCode.CONFLICT,
            f"the idempotency key {key!r} was used for job {taken.job_id} with another body",
            next_step="Send the same body again, or use a new key for a new job.",
        )
    return session.execute(select(JobRow).where(JobRow.id == taken.job_id)).scalar_one()


def get(session: Session, job_id: str) -> JobRow | None:
    """A job by its full id, as it is now."""
    return session.get(JobRow, job_id, populate_existing=True)


def find(session: Session, reference: str, *, among: Within) -> JobRow:
    """Return the job of a reference.

    Parameters
    ----------
    session : Session
    reference : str
        An id; a beginning or an end of exactly one id, of at least 4 characters; a name, which
        means the newest job of that name; or ``last``, the newest job of all.
    among : Within
        Projects outside of which no job exists for the caller.

    Raises
    ------
    LockstepError
        ``NOT_FOUND``, or ``INVALID`` if it matches several jobs.
    """
    exact = get(session, reference) if len(reference) == 36 else None
    if exact is not None and exact.project in among:
        return exact
    newest = select(JobRow).where(readable(among)).order_by(JobRow.id.desc()).limit(1)
    if reference == "last":
        found = list(session.scalars(newest))
    elif "\0" in reference:  # no name has one, and PostgreSQL cannot even be asked
        found = []
    else:
        found = list(session.scalars(newest.where(JobRow.name == reference)))
        if ID_PART.fullmatch(reference):
            # Three prove that it is not unique, even if one of them is also the match by name.
            parts = select(JobRow).where(readable(among), part_of_id(reference))
            several = session.scalars(parts.limit(3))
            found += [job for job in several if job not in found]
    if len(found) > 1:
        ids = ", ".join(f"{job.id} ({job.name})" for job in found)
        raise LockstepError(
            ErrorCode.INVALID,
            f"{reference!r} matches several jobs: {ids}",
            next_step="Give more characters of the id; the end is most distinctive.",
        )
    if not found:
        raise no_job(reference)
    return found[0]


def no_job(reference: str) -> LockstepError:
    """Return the refusal of a reference to no job."""
    return LockstepError(
        ErrorCode.NOT_FOUND,
        f"there is no job {reference!r}",
        next_step=(
            "List all jobs with: lockstep ps -a. Give an id, a prefix or suffix of one, a name, or "
            "last."
        ),
    )


def mark(connection: Connection, reference: str, *, among: Within) -> listing.PageMark:
    """Return the version mark of the job of a reference; it suffices for most polls.

    Raises
    ------
    LockstepError
        As :func:`find`.
    """
    return listing.PageMark(*marked_row(connection, marked(among), reference, among=among))


def marked_row(
    connection: Connection, marked: Select[*tuple[Any, ...]], reference: str, *, among: Within
) -> Row[*tuple[Any, ...]]:
    """Return the row of a statement such as :func:`marked` for the job of a reference.

    Raises
    ------
    LockstepError
        As :func:`find`.
    """
    row = connection.execute(marked, {"job_id": reference}).one_or_none()
    if row is None:
        with Session(connection) as session:
            found = find(session, reference, among=among)
        row = connection.execute(marked, {"job_id": found.id}).one()
    return row


@lru_cache(maxsize=64)
def marked(among: Within) -> Select[str, int, bool, bool, bool]:
    """Return the statement of the mark of the job with the id ``job_id``, kept for polls."""
    return select(*listing.MARK).where(
        readable(among), transitions.JOBS.c.id == bindparam("job_id")
    )


def find_several(session: Session, references: Sequence[str], *, among: Within) -> list[JobRow]:
    """Return the jobs of references, in this order, each once.

    Whole ids take one statement together.

    Raises
    ------
    LockstepError
        As :func:`find`, for the first that is not found.
    """
    whole = select(JobRow).where(readable(among), JobRow.id.in_(references))
    known = {job.id: job for job in session.scalars(whole)}
    found = [
        known.get(reference) or find(session, reference, among=among) for reference in references
    ]
    return list({job.id: job for job in found}.values())
