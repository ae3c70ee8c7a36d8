"""Projects, their members and limits.

Not here: jobs of a project (``api.routes.jobs``), rights of a role (``domain.rights``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import structlog
from fastapi import APIRouter, Path

from lockstep.api import changes
from lockstep.api.access import Grant, Reads, guarded, needs
from lockstep.api.http.body import described, validated
from lockstep.api.http.problems import documented
from lockstep.api.jobs.views import moment, moment_or_none
from lockstep.api.parts import AppState, AppStateDep
from lockstep.api.routes.users import UserName
from lockstep.domain.audit import Action
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.people_views import (
    MemberSet,
    MemberView,
    ProjectChange,
    ProjectNew,
    ProjectView,
)
from lockstep.domain.rights import Right, forbidden
from lockstep.domain.views import Page
from lockstep.storage.db.people_tables import MembershipRow, ProjectRow
from lockstep.storage.people import limits, projects, users

router = APIRouter(prefix="/v1/projects", tags=["people"], dependencies=guarded)
log = structlog.get_logger("api")

ProjectName = Annotated[
    str, Path(min_length=1, max_length=255, description="Name of a project.", examples=["nlp"])
]
Writes = Annotated[Grant, needs(Right.PROJECT_WRITE)]
SetsMembers = Annotated[Grant, needs(Right.MEMBER_WRITE)]
NEW: Final = {"name": "nlp", "title": "Language models", "visibility": "private"}
CHANGE: Final = {"visibility": "internal"}
MEMBER: Final = {"role": "member"}


def _view(row: ProjectRow, members: Sequence[MembershipRow], grant: Grant) -> ProjectView:
    return ProjectView(
        name=row.name,
        title=row.title,
        visibility=row.visibility,
        weight=row.weight,
        limits=limits.of_project(row),
        role=grant.caller.rights.roles.get(row.name),
        members=[MemberView(user=each.user_name, role=each.role) for each in members],
        created_at=moment(row.created_at),
        archived_at=moment_or_none(row.archived_at),
    )


def _before(row: ProjectRow, changes_: ProjectChange) -> dict[str, Any]:
    """Return the present values of the fields that a change gives."""
    given = changes_.model_dump(exclude_unset=True)
    found = {name: getattr(row, name) for name in given if name not in {"limits", "archived"}}
    if "archived" in given:
        found["archived"] = row.archived_at is not None
    if given.get("limits") is not None:
        found["limits"] = {name: getattr(row, name) for name in given["limits"]}
    return found


def _read(app_state: AppState, name: str, grant: Grant) -> ProjectView:
    with app_state.database.read_jobs() as session:
        row = projects.find(session, name, among=grant.readable)
        return _view(row, projects.members(session, [name])[name], grant)


@router.get("", operation_id="listProjects", summary="List projects", responses=documented())
def list_projects(app_state: AppStateDep, grant: Reads) -> Page[ProjectView]:
    with app_state.database.read_jobs() as session:
        rows = projects.all_projects(session, among=grant.readable)
        members = projects.members(session, [row.name for row in rows])
    return Page(items=[_view(row, members[row.name], grant) for row in rows])


@router.post(
    "",
    operation_id="addProject",
    summary="Make a project",
    status_code=201,
    responses=documented(400, 403, 409, 413, 415, 507),
    openapi_extra=described(ProjectNew, NEW),
)
def add(
    new: Annotated[ProjectNew, validated(ProjectNew, str(NEW))],
    app_state: AppStateDep,
    grant: Annotated[Grant, needs(Right.PROJECT_CREATE)],
) -> ProjectView:
    with changes.of(
        app_state.database, grant.sender, Action.PROJECT_ADD, target=new.name, project=new.name
    ) as change:
        session = change.session
        change.detail = {"after": new.model_dump(mode="json")}
        view = _view(projects.add(session, new), [], grant)
    app_state.guard.forget()
    log.info("a project is made", project=new.name, actor=grant.actor)
    return view


@router.get(
    "/{project}",
    operation_id="getProject",
    summary="Read a project with its members and limits",
    responses=documented(404),
)
def get(project: ProjectName, app_state: AppStateDep, grant: Reads) -> ProjectView:
    return _read(app_state, project, grant)


@router.patch(
    "/{project}",
    operation_id="changeProject",
    summary="Change, archive or restore a project",
    responses=documented(400, 403, 404, 409, 413, 415, 507),
    openapi_extra=described(ProjectChange, CHANGE),
)
def change(
    project: ProjectName,
    changes_: Annotated[ProjectChange, validated(ProjectChange, str(CHANGE))],
    app_state: AppStateDep,
    grant: Writes,
) -> ProjectView:
    with changes.of(
        app_state.database, grant.sender, Action.PROJECT_CHANGE, target=project, project=project
    ) as change:
        session = change.session
        change.detail = {"after": changes_.model_dump(mode="json", exclude_unset=True)}
        row = projects.find(session, project, among=grant.readable)
        grant.require_in(project)
        change.detail["before"] = _before(row, changes_)
        is_limited = changes_.limits is not None or changes_.weight is not None
        if is_limited and not grant.caller.rights.may(Right.PROJECT_LIMITS):
            raise forbidden(grant.actor, Right.PROJECT_LIMITS)
        projects.change(session, row, changes_)
    app_state.guard.forget()
    log.info("a project is changed", project=project, actor=grant.actor)
    return _read(app_state, project, grant)


@router.put(
    "/{project}/members/{name}",
    operation_id="setMember",
    summary="Give a person a role in a project",
    responses=documented(400, 403, 404, 413, 415, 507),
    openapi_extra=described(MemberSet, MEMBER),
)
def set_member(
    *,
    project: ProjectName,
    name: UserName,
    member: Annotated[MemberSet, validated(MemberSet, str(MEMBER))],
    app_state: AppStateDep,
    grant: SetsMembers,
) -> ProjectView:
    with changes.of(
        app_state.database, grant.sender, Action.MEMBER_SET, target=name, project=project
    ) as change:
        session = change.session
        projects.find(session, project, among=grant.readable)
        grant.require_in(project)
        role = None if "\0" in name else projects.role_of(session, project, name)
        change.detail = {"before": {"role": role}, "after": member.model_dump(mode="json")}
        projects.set_role(session, project, users.find(session, name).name, member.role)
    app_state.guard.forget()
    log.info("a role is given", project=project, name=name, role=member.role, actor=grant.actor)
    return _read(app_state, project, grant)


@router.delete(
    "/{project}/members/{name}",
    operation_id="removeMember",
    summary="Take the role of a person in a project away",
    status_code=204,
    response_description="Taken away.",
    responses=documented(403, 404, 507),
)
def remove_member(
    project: ProjectName, name: UserName, app_state: AppStateDep, grant: SetsMembers
) -> None:
    with changes.of(
        app_state.database, grant.sender, Action.MEMBER_REMOVE, target=name, project=project
    ) as change:
        session = change.session
        projects.find(session, project, among=grant.readable)
        grant.require_in(project)
        role = None if "\0" in name else projects.role_of(session, project, name)
        change.detail = {"before": {"role": role}, "after": {"role": None}}
        if "\0" in name or not projects.remove_member(session, project, name):
            raise LockstepError(
                ErrorCode.NOT_FOUND,
                f"{name!r} has no role in project {project}",
                next_step=f"List its members with: lockstep project show {project}",
            )
    app_state.guard.forget()
    log.info("a role is taken", project=project, name=name, actor=grant.actor)
