"""Rights, the roles that hold them, and the scopes that narrow a token.

A role of a project holds rights in that project, a role of the service in every project. A token
has the rights that its owner has now, of those only the rights of its scopes, and of those only the
ones in its projects.

Not here: the decision about a request (``api.access``), stored roles (``storage.people``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from lockstep.domain.errors import ErrorCode, LockstepError


class Right(StrEnum):
    """A kind of action. The value is the name in messages and documents."""

    JOB_READ = "job.read"
    """Read jobs, with their metrics, logs and events."""
    JOB_SUBMIT = "job.submit"
    """Submit jobs, and upload their code."""
    JOB_CONTROL_OWN = "job.control_own"
    """Stop, change and delete the own jobs."""
    JOB_CONTROL = "job.control"
    """Stop any job: cancel, pause, resume and requeue."""
    JOB_WRITE = "job.write"
    """Delete any job and its files, and change its marks."""
    CHECKPOINT_READ = "checkpoint.read"
    """Download checkpoints, and start jobs from them."""
    NODE_READ = "node.read"
    NODE_WRITE = "node.write"
    """Drain and resume nodes."""
    PROJECT_WRITE = "project.write"
    """Change and archive a project."""
    MEMBER_WRITE = "member.write"
    """Give and take roles in a project."""
    PROJECT_CREATE = "project.create"
    PROJECT_LIMITS = "project.limits"
    """Change the limits of a project."""
    AUDIT_READ = "audit.read"
    """Read who changed what."""
    USER_READ = "user.read"
    """Read the names of people, and the own account."""
    USER_WRITE = "user.write"
    """Invite and deactivate people, and give them roles in the service."""
    TOKEN_WRITE = "token.write"  # noqa: S105 -- the name of a right
    """Make and revoke the own tokens."""


class ProjectRole(StrEnum):
    """Role of a person in one project."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"


class ServiceRole(StrEnum):
    """Role of a person in the whole service."""

    OPERATOR = "operator"
    ADMIN = "admin"


class Scope(StrEnum):
    """Set of rights that a token may have."""

    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    NODES_WRITE = "nodes:write"
    PROJECTS_WRITE = "projects:write"
    SERVICE_ADMIN = "service:admin"


_VIEWER: Final = frozenset({Right.JOB_READ})
_MEMBER: Final = _VIEWER | {Right.JOB_SUBMIT, Right.JOB_CONTROL_OWN, Right.CHECKPOINT_READ}
_PROJECT_ADMIN: Final = _MEMBER | {
    Right.JOB_CONTROL,
    Right.JOB_WRITE,
    Right.PROJECT_WRITE,
    Right.MEMBER_WRITE,
    Right.AUDIT_READ,
}
OF_PROJECT_ROLE: Final[Mapping[ProjectRole, frozenset[Right]]] = {
    ProjectRole.VIEWER: _VIEWER,
    ProjectRole.MEMBER: _MEMBER,
    ProjectRole.ADMIN: _PROJECT_ADMIN,
}
"""Rights of each role in its project."""
OF_SERVICE_ROLE: Final[Mapping[ServiceRole, frozenset[Right]]] = {
    ServiceRole.OPERATOR: frozenset({Right.JOB_READ, Right.JOB_CONTROL, Right.NODE_WRITE}),
    ServiceRole.ADMIN: frozenset(Right),
}
"""Rights of each role in all projects."""
OF_ALL: Final = frozenset({Right.NODE_READ, Right.USER_READ, Right.TOKEN_WRITE})
"""Rights of each active person."""
OF_SERVICE: Final = OF_ALL | {
    Right.NODE_WRITE,
    Right.PROJECT_CREATE,
    Right.PROJECT_LIMITS,
    Right.USER_WRITE,
}
"""Rights that belong to no project."""
_READS: Final = frozenset({Right.JOB_READ, Right.CHECKPOINT_READ, Right.NODE_READ, Right.USER_READ})
OF_SCOPE: Final[Mapping[Scope, frozenset[Right]]] = {
    Scope.JOBS_READ: _READS,
    Scope.JOBS_WRITE: _READS
    | {Right.JOB_SUBMIT, Right.JOB_CONTROL_OWN, Right.JOB_CONTROL, Right.JOB_WRITE},
    Scope.NODES_WRITE: frozenset({Right.NODE_READ, Right.NODE_WRITE, Right.USER_READ}),
    Scope.PROJECTS_WRITE: _READS | {Right.PROJECT_WRITE, Right.MEMBER_WRITE, Right.AUDIT_READ},
    Scope.SERVICE_ADMIN: frozenset(
        {
            Right.USER_READ,
            Right.USER_WRITE,
            Right.PROJECT_CREATE,
            Right.PROJECT_LIMITS,
            Right.AUDIT_READ,
        }
    ),
}
"""Rights of each scope. None has ``token.write``: a token with scopes makes no wider ones."""


@dataclass(frozen=True)
class Within:
    """Projects in which a caller has a right. Hashable.

    Attributes
    ----------
    projects : frozenset of str, or None
        None for every project.
    """

    projects: frozenset[str] | None

    def __contains__(self, project: str) -> bool:
        return self.projects is None or project in self.projects

    @property
    def is_empty(self) -> bool:
        """True if it contains no project."""
        return self.projects is not None and not self.projects


EVERY: Final = Within(None)


@dataclass(frozen=True)
class Rights:
    """Rights of one caller."""

    service: ServiceRole | None = None
    roles: Mapping[str, ProjectRole] = field(default_factory=dict)
    """The caller's role in each project."""
    internal: frozenset[str] = frozenset()
    """Projects in which each active person is a viewer."""
    scopes: frozenset[Scope] | None = None
    """Scopes of the token; None for all rights of the owner."""
    projects: frozenset[str] | None = None
    """Projects of the token; None for all projects of the owner."""

    def within(self, right: Right) -> Within:
        """Return the projects in which the caller has ``right``, a right in a project."""
        if not self._in_scope(right):
            return Within(frozenset())
        if right in self._of_service():
            return Within(self.projects)
        found = {name for name, role in self.roles.items() if right in OF_PROJECT_ROLE[role]}
        if right in OF_PROJECT_ROLE[ProjectRole.VIEWER]:
            found |= self.internal
        return Within(frozenset(found if self.projects is None else found & self.projects))

    def may(self, right: Right) -> bool:
        """Return whether the caller has ``right``, a right that belongs to no project."""
        if self.projects is not None and right not in _READS:
            return False  # A token of some projects changes nothing outside of them.
        return right in OF_ALL | self._of_service() and self._in_scope(right)

    def held(self) -> list[Right]:
        """Return the rights that the caller has in the service or in at least one project."""
        return [
            right
            for right in Right
            if (self.may(right) if right in OF_SERVICE else not self.within(right).is_empty)
        ]

    def by_project(self) -> tuple[list[Right], dict[str, list[Right]]]:
        """Return the rights that the caller has in every project, and the others by project."""
        everywhere: list[Right] = []
        found: dict[str, list[Right]] = {}
        for right in Right:
            within = Within(frozenset()) if right in OF_SERVICE else self.within(right)
            if within.projects is None:
                everywhere.append(right)
            for name in sorted(within.projects or ()):
                found.setdefault(name, []).append(right)
        return everywhere, found

    def _of_service(self) -> frozenset[Right]:
        return frozenset() if self.service is None else OF_SERVICE_ROLE[self.service]

    def _in_scope(self, right: Right) -> bool:
        return self.scopes is None or any(right in OF_SCOPE[scope] for scope in self.scopes)


class ForbiddenError(LockstepError):
    """Refusal of a right; made by :func:`forbidden`."""

    def __init__(self, right: Right, project: str | None, message: str, *, next_step: str):
        super().__init__(ErrorCode.FORBIDDEN, message, next_step=next_step)
        self.right = right
        self.project = project
        """Project in which the right is missing; None if in all, or if it belongs to none."""


def forbidden(name: str, right: Right, project: str | None = None) -> ForbiddenError:
    """Return the refusal of a right, with who grants it.

    Parameters
    ----------
    name : str
        Of the caller.
    right : Right
    project : str, optional
        Project in which the right is missing.
    """
    where = "" if project is None else f" in project {project}"
    admins = "an admin of the service" if right in OF_SERVICE else "an admin of the project"
    return ForbiddenError(
        right,
        project,
        f"{name} does not have the right {right}{where}, or the token has no scope for it; nothing "
        "was written",
        next_step=f"Ask {admins} for a role with this right, or use a token with more scopes.",
    )


class Visibility(StrEnum):
    """Readers of a project beside its members."""

    INTERNAL = "internal"
    """Each active person is a viewer."""
    PRIVATE = "private"
    """None."""


class UserState(StrEnum):
    """State of a person."""

    INVITED = "invited"
    """Has not signed in yet."""
    ACTIVE = "active"
    OFF = "off"
    """Deactivated: no token and no session is accepted."""
