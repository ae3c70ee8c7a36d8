"""People, and programs with tokens of their own.

Not here: their roles in projects (``api.routes.projects``), tokens (``api.routes.tokens``).
"""

from __future__ import annotations

from typing import Annotated, Final

import structlog
from fastapi import APIRouter, Path

from lockstep.api import changes
from lockstep.api.access import Grant, guarded, needs
from lockstep.api.http.body import described, validated
from lockstep.api.http.problems import documented
from lockstep.api.jobs.views import moment
from lockstep.api.parts import AppStateDep
from lockstep.domain.audit import Action
from lockstep.domain.people_views import InvitationView, UserChange, UserNew, UserView
from lockstep.domain.rights import Right
from lockstep.domain.views import Page
from lockstep.storage.db.clock import now
from lockstep.storage.db.people_tables import UserRow
from lockstep.storage.people import sessions, users

router = APIRouter(prefix="/v1/users", tags=["people"], dependencies=guarded)
log = structlog.get_logger("api")

UserName = Annotated[
    str, Path(min_length=1, max_length=255, description="Name of a person.", examples=["lea"])
]
NEW: Final = {"name": "lea", "title": "Lea Weber"}
CHANGE: Final = {"role": "operator"}


def user_view(row: UserRow) -> UserView:
    return UserView(
        name=row.name,
        title=row.title,
        service=row.service,
        role=row.role,
        state=row.state,
        created_at=moment(row.created_at),
    )


@router.get("", operation_id="listUsers", summary="List people", responses=documented(403))
def list_users(
    app_state: AppStateDep, _: Annotated[Grant, needs(Right.USER_READ)]
) -> Page[UserView]:
    with app_state.database.read_jobs() as session:
        return Page(items=[user_view(row) for row in users.all_users(session)])


@router.post(
    "",
    operation_id="addUser",
    summary="Add a person or a program",
    status_code=201,
    response_description="The person, invited; a program, active.",
    responses=documented(400, 403, 409, 413, 415, 507),
    openapi_extra=described(UserNew, NEW),
)
def add(
    new: Annotated[UserNew, validated(UserNew, str(NEW))],
    app_state: AppStateDep,
    grant: Annotated[Grant, needs(Right.USER_WRITE)],
) -> UserView:
    with changes.of(app_state.database, grant.sender, Action.USER_ADD, target=new.name) as change:
        session = change.session
        change.detail = {"after": new.model_dump(mode="json")}
        view = user_view(users.add(session, new))
    log.info("a person is added", name=new.name, role=new.role, actor=grant.actor)
    return view


@router.patch(
    "/{name}",
    operation_id="changeUser",
    summary="Change the role of a person, or deactivate one",
    description=(
        "A person who is not active has no access: tokens and sessions end within seconds. Jobs "
        "continue."
    ),
    responses=documented(400, 403, 404, 409, 413, 415, 507),
    openapi_extra=described(UserChange, CHANGE),
)
def change(
    name: UserName,
    changes_: Annotated[UserChange, validated(UserChange, str(CHANGE))],
    app_state: AppStateDep,
    grant: Annotated[Grant, needs(Right.USER_WRITE)],
) -> UserView:
    with changes.of(app_state.database, grant.sender, Action.USER_CHANGE, target=name) as change:
        session = change.session
        change.detail = {"after": changes_.model_dump(mode="json", exclude_unset=True)}
        values = users.before(session, name)
        change.detail["before"] = {each: values.get(each) for each in changes_.model_fields_set}
        view = user_view(users.change(session, name, changes_))
        if changes_.active is False:
            sessions.end_all(session, name)
    app_state.guard.forget()
    log.info("a person is changed", name=name, actor=grant.actor, role=view.role, state=view.state)
    return view


@router.post(
    "/{name}/invite",
    operation_id="inviteUser",
    summary="Give a person a new invitation code",
    description="The person sets a password with it, once. It replaces the present one.",
    response_description="The code, which is shown only here.",
    responses=documented(403, 404, 409, 507),
)
def invite(
    name: UserName,
    app_state: AppStateDep,
    grant: Annotated[Grant, needs(Right.USER_WRITE)],
) -> InvitationView:
    with changes.of(app_state.database, grant.sender, Action.USER_INVITE, target=name) as change:
        session = change.session
        row = users.find(session, name)
        code = users.invite(session, row.name)
        until = now(session) + users.INVITATION_SECONDS
    log.info("a person is invited", name=name, actor=grant.actor)
    return InvitationView(name=name, code=code, expires_at=moment(until))
