"""Projects, and the roles of people in them.

Not here: limits of jobs (``storage.people.limits``), rights of a role (``domain.rights``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, FieldError, LockstepError
from lockstep.domain.life.lifecycle import TERMINAL
from lockstep.domain.people_views import ProjectChange, ProjectLimits, ProjectNew
from lockstep.domain.rights import (
    ProjectRole,
    Right,
    Rights,
    ServiceRole,
    Visibility,
    Within,
    forbidden,
)
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.reading import invalid
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.dialects import apart, changed, has_row_locks, run, table_of, upsert, write
from lockstep.storage.db.people_tables import MembershipRow, ProjectRow
from lockstep.storage.db.tables import JobRow
from lockstep.storage.people import users

_PROJECTS: Final = table_of(ProjectRow)
_HELD: Final = (
    select(_PROJECTS).where(_PROJECTS.c.name == bindparam("project")).with_for_update(read=True)
)
_ONE_AFTER_THE_OTHER: Final = select(
    func.pg_advisory_xact_lock(0x70726F6A, func.hashtext(bindparam("project")))
)
"""Keys of two numbers are apart from those of one, such as that of the migrations."""


def ensure(session: Session, name: str, *, visibility: Visibility = Visibility.PRIVATE) -> None:
    """Add a project, if the name is not in use yet."""
    row = upsert(session, ProjectRow).values(name=name, visibility=visibility, created_at=db_now())
    write(session, row.on_conflict_do_nothing())


def settled(
    session: Session,
    spec: JobSpec,
    rights: Rights,
    read: Callable[[Session, str], ProjectRow | None],
) -> tuple[JobSpec, ProjectRow | None]:
    """Return a spec with its project, for a sender with these rights, and the row of the project.

    A spec that gives none belongs to the default project if that takes jobs of the sender, else to
    the only one that does. If there are several, the spec stays as it is, for :func:`is_new`.

    Parameters
    ----------
    session : Session
    spec : JobSpec
    rights : Rights
    read : callable
        :func:`get` or :func:`hold`.
    """
    row = read(session, spec.project)
    if _is_given(spec):
        return spec, row
    if row is not None and row.archived_at is None and row.name in rights.within(Right.JOB_SUBMIT):
        return spec, row
    names = _taking(session, rights)
    if len(names) != 1:
        return spec, row
    return spec.model_copy(update={"project": names[0]}), read(session, names[0])


def is_new(
    session: Session, spec: JobSpec, row: ProjectRow | None, actor: str, rights: Rights
) -> bool:
    """Return whether the project of a job is made with the job: that of the only person is.

    A project that does not exist for the actor, or in which the actor may not submit, is refused.

    Parameters
    ----------
    session : Session
    spec : JobSpec
        As :func:`settled` returns it.
    row : ProjectRow or None
        Its project; None if it does not exist.
    actor : str
    rights : Rights
        Rights of the actor.

    Raises
    ------
    LockstepError
        ``invalid``, or ``forbidden`` in a project that the actor may read.
    """
    project = spec.project
    if row is not None:
        if project in rights.within(Right.JOB_SUBMIT):
            return False
        if _is_given(spec) and project in rights.within(Right.JOB_READ):
            raise forbidden(actor, Right.JOB_SUBMIT, project)
    elif rights.service is ServiceRole.ADMIN and users.is_alone(session, actor):
        return True
    names = ", ".join(_taking(session, rights))
    if names and not _is_given(spec):
        message, step = "no project is given, and you have several", f"write one of them: {names}"
        raise invalid((FieldError("/project", message, None, step),))
    step = f"your projects are {names}" if names else "ask an admin for a project"
    raise invalid((FieldError("/project", f"there is no project {project!r}", project, step),))


def _is_given(spec: JobSpec) -> bool:
    return "project" in spec.model_fields_set


def _taking(session: Session, rights: Rights) -> list[str]:
    """Return the projects that take jobs of a sender with these rights, by name."""
    rows = all_projects(session, among=rights.within(Right.JOB_SUBMIT))
    return [row.name for row in rows if row.archived_at is None]


def find(session: Session, name: str, *, among: Within) -> ProjectRow:
    """Return a project that the caller may read.

    Raises
    ------
    LockstepError
        ``NOT_FOUND``.
    """
    row = None
    if "\0" not in name and name in among:
        row = session.get(ProjectRow, name, populate_existing=True)
    if row is None:
        raise LockstepError(
            ErrorCode.NOT_FOUND,
            f"there is no project {name!r}",
            next_step="List your projects with: lockstep project ls",
        )
    return row


def require_each(session: Session, names: Sequence[str], *, among: Within) -> None:
    """Refuse names of no project that the caller may read.

    Raises
    ------
    LockstepError
        ``invalid``; each has its place in ``/projects``.
    """
    rows = select(ProjectRow.name).where(ProjectRow.name.in_(names))
    found = {name for name in session.scalars(rows) if name in among}
    step = "List your projects with: lockstep project ls"
    wrong = tuple(
        FieldError(f"/projects/{at}", f"there is no project {name!r}", name, step)
        for at, name in enumerate(names)
        if name not in found
    )
    if wrong:
        raise invalid(wrong)


def all_projects(session: Session, *, among: Within) -> list[ProjectRow]:
    """Return the projects that the caller may read, by name."""
    statement = select(ProjectRow).order_by(ProjectRow.name)
    if among.projects is not None:
        statement = statement.where(ProjectRow.name.in_(sorted(among.projects)))
    return list(session.scalars(statement))


def add(session: Session, new: ProjectNew) -> ProjectRow:
    """Add a project.

    Raises
    ------
    LockstepError
        ``CONFLICT`` for a name in use; as :func:`change` for limits.
    """
    _require_times(new.limits, new.limits)
    row = upsert(session, ProjectRow).values(
        name=new.name,
        title=new.title,
        visibility=new.visibility,
        created_at=db_now(),
        weight=new.weight,
        **new.limits.model_dump(),
    )
    if not changed(session, row.on_conflict_do_nothing()):
        raise LockstepError(
            ErrorCode.CONFLICT,
            f"there is a project {new.name!r} already",
            next_step="Choose another name.",
        )
    return session.get_one(ProjectRow, new.name)


def change(session: Session, row: ProjectRow, changes: ProjectChange) -> None:
    """Change the given fields of a project.

    Raises
    ------
    LockstepError
        ``CONFLICT`` for the archive of a project whose jobs wait or run; ``invalid`` for a default
        time limit above the highest one.
    """
    if changes.title is not None:
        row.title = changes.title
    if changes.visibility is not None:
        row.visibility = changes.visibility
    if changes.weight is not None:
        row.weight = changes.weight
    if changes.limits is not None:
        for field in changes.limits.model_fields_set:
            setattr(row, field, getattr(changes.limits, field))
        _require_times(row, changes.limits)
    if changes.archived is not None:
        _archive(session, row, archived=changes.archived)
    session.flush()


def _require_times(result: ProjectRow | ProjectLimits, given: ProjectLimits) -> None:
    """Refuse limits that would refuse each job without a time limit of its own."""
    default, most = result.timeout_default_seconds, result.timeout_max_seconds
    times = {"timeout_default_seconds": default, "timeout_max_seconds": most}
    wrong = next((name for name in times if name in given.model_fields_set), None)
    if wrong is not None and default is not None and most is not None and default > most:
        message = f"the default time limit, {default:g} s, is above the highest one, {most:g} s"
        step = "Give both, the default one at most as high as the other."
        raise invalid((FieldError(f"/limits/{wrong}", message, times[wrong], step),))


def _archive(session: Session, row: ProjectRow, *, archived: bool) -> None:
    if not archived:
        row.archived_at = None
        return
    # A submit holds the row, too: its job is either seen here, or refused.
    session.refresh(row, ["archived_at"], with_for_update=True)
    live = select(JobRow.id).where(JobRow.project == row.name, JobRow.state.not_in(TERMINAL))
    job_id = session.scalars(live.limit(1)).first()
    if job_id is not None:
        raise LockstepError(
            ErrorCode.CONFLICT,
            f"job {job_id} of project {row.name} has not ended",
            next_step="Wait for the end of the project's jobs, or cancel them.",
        )
    row.archived_at = row.archived_at or now(session)


def get(session: Session, name: str) -> ProjectRow | None:
    """Return a project, readable or not."""
    return session.get(ProjectRow, name)


def hold(session: Session, name: str) -> ProjectRow | None:
    """Return a project, and keep it as it is until the end of a transaction that adds a job to it.

    Submits to a project with a limit of waiting jobs go one after the other. The row is apart from
    the session.
    """
    found = run(session, _HELD, {"project": name}).one_or_none()
    if found is None:
        return None
    row = apart(ProjectRow, found._asdict())
    is_counted = row.queued_max is not None or row.queued_per_user_max is not None
    if is_counted and has_row_locks(session):
        # Of two transactions that share the row's lock, none could make it an exclusive one.
        run(session, _ONE_AFTER_THE_OTHER, {"project": name})
    return row


def members(session: Session, names: Collection[str]) -> dict[str, list[MembershipRow]]:
    """Return the members of projects, by project, each by name."""
    rows = select(MembershipRow).where(MembershipRow.project.in_(names))
    found: dict[str, list[MembershipRow]] = {name: [] for name in names}
    for row in session.scalars(rows.order_by(MembershipRow.user_name)):
        found[row.project].append(row)
    return found


def remove_member(session: Session, project: str, user_name: str) -> bool:
    """Take a person's role in a project away; False if there was none."""
    row = session.get(MembershipRow, (project, user_name))
    if row is None:
        return False
    session.delete(row)
    session.flush()
    return True


def role_of(session: Session, project: str, user_name: str) -> ProjectRole | None:
    """Return a person's role in a project."""
    row = session.get(MembershipRow, (project, user_name), populate_existing=True)
    return None if row is None else row.role


def set_role(session: Session, project: str, user_name: str, role: ProjectRole) -> None:
    """Give a person a role in a project, in place of the present one."""
    row = upsert(session, MembershipRow).values(project=project, user_name=user_name, role=role)
    write(
        session,
        row.on_conflict_do_update(index_elements=["project", "user_name"], set_={"role": role}),
    )


def roles_of(session: Session, user_name: str) -> dict[str, ProjectRole]:
    """Return a person's role in each project."""
    rows = select(MembershipRow.project, MembershipRow.role).where(
        MembershipRow.user_name == user_name
    )
    return {row.project: row.role for row in session.execute(rows)}


def internal(session: Session) -> frozenset[str]:
    """Return the projects in which each active person is a viewer."""
    rows = select(ProjectRow.name).where(ProjectRow.visibility == Visibility.INTERNAL)
    return frozenset(session.scalars(rows))
