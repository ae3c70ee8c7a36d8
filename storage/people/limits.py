"""Limits of projects, of the people in them, and of the service: checks and defaults at a submit.

Limits of devices in use are applied by each decision (``domain.scheduling.decide``).

Not here: changes of a project (``storage.people.projects``).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, FieldError, LockstepError
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.people_views import ProjectLimitsView
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.reading import invalid
from lockstep.storage.attempts import nodes
from lockstep.storage.db.dialects import run, table_of
from lockstep.storage.db.people_tables import MembershipRow, ProjectRow
from lockstep.storage.db.tables import JobRow

TEAM_DEFAULT_SECONDS: Final = 24 * 3_600.0
"""Time limit of a job that gives none, once a project has members: without limits, no start of
another job can be known."""
_INSTALLATION: Final = select(
    exists(select(table_of(MembershipRow).c.project)), nodes.EVER.scalar_subquery()
)
_STEP: Final = "lower it, or ask an admin of the service for a higher limit"


class LimitSource(StrEnum):
    """Origin of a job's time limit."""

    JOB = "job"
    PROJECT = "project"
    SERVICE = "service"


class ServiceLimits(NamedTuple):
    """Time limits of the service, from the settings of the api."""

    default_seconds: float | None = None
    """0 for none; None for ``TEAM_DEFAULT_SECONDS`` once a project has members."""
    max_seconds: float | None = None


class Installation(NamedTuple):
    """State of the whole installation that a submit depends on."""

    has_members: bool
    """True if any project has members."""
    devices: int
    """As ``storage.attempts.nodes.largest_ever``."""


def installation(session: Session) -> Installation:
    """Return both in one statement."""
    has_members, devices = run(session, _INSTALLATION, {}).one()
    return Installation(bool(has_members), devices)


def of_project(row: ProjectRow) -> ProjectLimitsView:
    """Return the limits of a project."""
    names = ProjectLimitsView.model_fields
    return ProjectLimitsView(**{name: getattr(row, name) for name in names})


def with_defaults(
    row: ProjectRow | None, spec: JobSpec, service: ServiceLimits, *, has_members: bool
) -> tuple[JobSpec, LimitSource | None]:
    """Return a spec with a time limit, if there is a default, and the origin of the limit."""
    if spec.timeout_seconds is not None:
        return spec, LimitSource.JOB
    if row is not None and row.timeout_default_seconds is not None:
        seconds, source = row.timeout_default_seconds, LimitSource.PROJECT
    elif default := _service_default(service, has_members=has_members):
        maxima = service.max_seconds, None if row is None else row.timeout_max_seconds
        seconds, source = min([default, *(most for most in maxima if most)]), LimitSource.SERVICE
    else:
        return spec, None
    return spec.model_copy(update={"timeout_seconds": seconds}), source


def _service_default(service: ServiceLimits, *, has_members: bool) -> float:
    if service.default_seconds is not None:
        return service.default_seconds
    return TEAM_DEFAULT_SECONDS if has_members else 0.0


def check(row: ProjectRow | None, spec: JobSpec, service: ServiceLimits) -> Iterator[FieldError]:
    """Yield an error for each limit that a job exceeds, whatever else waits or runs.

    Parameters
    ----------
    row : ProjectRow or None
        Its project; None if that does not exist yet.
    spec : JobSpec
    service : ServiceLimits
    """
    seconds = spec.timeout_seconds
    if service.max_seconds is not None and (seconds is None or seconds > service.max_seconds):
        yield _too_long("the service", service.max_seconds, seconds)
    yield from _stop_in_time(spec)
    if row is None:
        return
    at_most = f"project {row.name} allows at most"
    if row.archived_at is not None:
        yield FieldError(
            "/project",
            f"project {row.name} is archived and takes no new jobs",
            row.name,
            f"use another project, or restore it: lockstep project archive {row.name} --undo",
        )
    gpus, priority = spec.device_count(), spec.priority
    for most, of_what in (
        (row.gpus_per_job_max, "for a job"),
        (row.gpus_max, "in use at one time"),
        (row.gpus_per_user_max, "of one person in use at one time"),
    ):
        if most is not None and gpus > most:
            message = f"{at_most} {most} devices {of_what}, got {gpus}"
            yield FieldError("/resources/gpus", message, gpus, _STEP)
    yield from check_priority(row, priority)
    longest = row.timeout_max_seconds
    if longest is not None and (seconds is None or seconds > longest):
        yield _too_long(f"project {row.name}", longest, seconds)


def check_priority(row: ProjectRow, priority: int) -> Iterator[FieldError]:
    """Yield an error for a priority that the project does not allow."""
    if row.priority_max is not None and priority > row.priority_max:
        message = f"project {row.name} allows at most {row.priority_max}, got {priority}"
        yield FieldError("/priority", message, priority, _STEP)


def refuse_raise(row: ProjectRow | None, before: int, priority: int) -> None:
    """Refuse a higher priority that the project does not allow.

    Raises
    ------
    LockstepError
        ``invalid``.
    """
    refused = () if row is None else tuple(check_priority(row, priority))
    if refused and priority > before:
        raise invalid(refused)


def _stop_in_time(spec: JobSpec) -> Iterator[FieldError]:
    stop, seconds = spec.stop_grace_seconds, spec.timeout_seconds
    if seconds is not None and stop is not None and stop >= seconds:
        message = f"expected less than the job's time limit, {seconds:g} s, got {stop:g} s"
        yield FieldError("/stop_grace_seconds", message, stop, "lower it, or set timeout_seconds")


def _too_long(who: str, most: float, seconds: float | None) -> FieldError:
    got = "none" if seconds is None else f"{seconds:g} s"
    message = f"{who} allows at most {most:g} s, got {got}"
    return FieldError("/timeout_seconds", message, seconds, _STEP)


def check_queue(
    session: Session, row: ProjectRow | None, actor: str, *, besides: str | None = None
) -> None:
    """Refuse a job if as many jobs of its project, or of its owner there, wait as may.

    For each entry of the queue by hand: submit, clone, resume. A job that returns from its devices
    is never refused: the service would lose one that is tried again, and an operator could not
    requeue one from a bad node.

    Parameters
    ----------
    session : Session
    row : ProjectRow or None
        Its project; None if that does not exist yet.
    actor : str
        Its owner.
    besides : str, optional
        Id of the job itself, if it is stored: it does not count.

    Raises
    ------
    LockstepError
        ``CONFLICT``.
    """
    if row is None:
        return
    own = f"jobs of {actor} in project {row.name}"
    for most, whose, owner in (
        (row.queued_max, f"jobs of project {row.name}", None),
        (row.queued_per_user_max, own, actor),
    ):
        if most is None:
            continue
        waiting = select(func.count()).where(
            JobRow.project == row.name,
            JobRow.state == JobState.QUEUED,
            JobRow.id.is_distinct_from(besides),
            *(() if owner is None else (JobRow.actor == owner,)),
        )
        if (count := session.scalar(waiting) or 0) >= most:
            raise LockstepError(
                ErrorCode.CONFLICT,
                f"{count} {whose} wait, and the limit is {most}",
                next_step="Wait until some of them have started, or cancel some.",
            )
