"""Projects and the roles of people in them.

Not here: rights of a role (``domain.rights``).
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from lockstep.domain.errors import FieldError
from lockstep.domain.rights import (
    ProjectRole,
    Right,
    Rights,
    ServiceRole,
    Visibility,
    forbidden,
)
from lockstep.domain.spec.reading import invalid
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import upsert, write
from lockstep.storage.db.people_tables import MembershipRow, ProjectRow
from lockstep.storage.people import users


def ensure(session: Session, name: str, *, visibility: Visibility = Visibility.PRIVATE) -> None:
    """Add a project, if the name is not in use yet."""
    row = upsert(session, ProjectRow).values(name=name, visibility=visibility, created_at=db_now())
    write(session, row.on_conflict_do_nothing())


def exists(session: Session, name: str) -> bool:
    """Return whether there is a project with this name."""
    found = select(ProjectRow.name).where(ProjectRow.name == name)
    return "\0" not in name and session.scalars(found).first() is not None


def is_new(session: Session, project: str, actor: str, rights: Rights) -> bool:
    """Return whether the project of a job is made with the job: that of the only person is.

    A project that does not exist for the actor, or in which the actor may not submit, is refused.

    Raises
    ------
    LockstepError
        ``invalid``, or ``forbidden`` in a project that the actor may read.
    """
    if exists(session, project):
        if project in rights.within(Right.JOB_SUBMIT):
            return False
        if project in rights.within(Right.JOB_READ):
            raise forbidden(actor, Right.JOB_SUBMIT, project)
    elif rights.service is ServiceRole.ADMIN and users.is_alone(session, actor):
        return True
    own = rights.within(Right.JOB_SUBMIT).projects
    step = f"your projects are {', '.join(sorted(own))}" if own else "ask an admin for a project"
    raise invalid((FieldError("/project", f"there is no project {project!r}", project, step),))


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
