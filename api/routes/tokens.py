"""Tokens: make, list, rotate and revoke the own ones, and those of programs.

Not here: their use (``api.auth.bearer``).
"""

from __future__ import annotations

from typing import Annotated, Final

import structlog
from fastapi import APIRouter, Path, Query

from lockstep.api import changes
from lockstep.api.access import Grant, guarded, needs
from lockstep.api.http.body import described, validated
from lockstep.api.http.problems import documented
from lockstep.api.jobs.views import moment, moment_or_none
from lockstep.api.parts import AppStateDep
from lockstep.domain.audit import Action
from lockstep.domain.errors import ErrorCode, FieldError, LockstepError
from lockstep.domain.people_views import TokenNew, TokenRotation, TokenSecretView, TokenView
from lockstep.domain.rights import Right, Scope, forbidden
from lockstep.domain.views import Page
from lockstep.storage.db.people_tables import TokenRow
from lockstep.storage.people import projects, tokens, users

router = APIRouter(prefix="/v1/tokens", tags=["people"], dependencies=guarded)
log = structlog.get_logger("api")

TokenId = Annotated[
    str,
    Path(
        min_length=1,
        max_length=36,
        description="Id of a token.",
        examples=["01997e6f-2a4b-7c1d-9f3e-0123456789ab"],
    ),
]
OwnTokens = Annotated[Grant, needs(Right.TOKEN_WRITE)]
NEW: Final = {"name": "laptop", "scopes": ["jobs:read", "jobs:write"], "days": 90}
ROTATION: Final = {"overlap_hours": 24}


def _view(row: TokenRow) -> TokenView:
    return TokenView(
        id=row.id,
        name=row.name,
        owner=row.actor,
        prefix=row.prefix,
        scopes=None if row.scopes is None else [Scope(scope) for scope in row.scopes],
        projects=row.projects,
        created_at=moment(row.created_at),
        expires_at=moment_or_none(row.expires_at),
        used_at=moment_or_none(row.used_at),
        revoked_at=moment_or_none(row.revoked_at),
    )


@router.get("", operation_id="listTokens", summary="List tokens", responses=documented(403, 404))
def list_tokens(
    app_state: AppStateDep,
    grant: Annotated[Grant, needs(Right.USER_READ)],
    owner: Annotated[
        str | None,
        Query(max_length=255, description="Another owner, for an admin of the service."),
    ] = None,
) -> Page[TokenView]:
    if owner not in {None, grant.actor} and not grant.caller.rights.may(Right.USER_WRITE):
        raise forbidden(grant.actor, Right.USER_WRITE)
    with app_state.database.read_jobs() as session:
        of = users.find(session, owner).name if owner is not None else grant.actor
        return Page(items=[_view(row) for row in tokens.of_owner(session, of)])


@router.post(
    "",
    operation_id="createToken",
    summary="Make a token",
    status_code=201,
    response_description="The token with its secret, which is shown only here.",
    responses=documented(400, 403, 404, 409, 413, 415, 507),
    openapi_extra=described(TokenNew, NEW),
)
def create(
    new: Annotated[TokenNew, validated(TokenNew, str(NEW))],
    app_state: AppStateDep,
    grant: OwnTokens,
) -> TokenSecretView:
    name = new.owner or grant.actor
    if name != grant.actor and not grant.caller.rights.may(Right.USER_WRITE):
        raise forbidden(grant.actor, Right.USER_WRITE)
    with changes.of(app_state.database, grant.sender, Action.TOKEN_CREATE) as change:
        session = change.session
        owner = users.find(session, name)
        if name != grant.actor and not owner.service:
            message = f"{name} is a person, who makes the own tokens"
            raise LockstepError(
                ErrorCode.INVALID,
                message,
                next_step="Make tokens of others for programs only.",
                fields=(FieldError("/owner", message, name),),
            )
        projects.require_each(session, new.projects or (), among=grant.readable)
        row, secret = tokens.create(session, new, owner=owner)
        change.of(row.id, None, owner=name, scopes=row.scopes, projects=row.projects)
        view = _view(row)
    log.info("a token is made", token=view.id, owner=name, actor=grant.actor)
    return TokenSecretView(token=view, secret=secret)


@router.post(
    "/{token_id}/rotate",
    operation_id="rotateToken",
    summary="Give a token a new secret",
    response_description="The token with its new secret, which is shown only here.",
    responses=documented(400, 403, 404, 409, 413, 415, 507),
    openapi_extra=described(TokenRotation, ROTATION),
)
def rotate(
    token_id: TokenId,
    rotation: Annotated[TokenRotation, validated(TokenRotation, str(ROTATION))],
    app_state: AppStateDep,
    grant: OwnTokens,
) -> TokenSecretView:
    with changes.of(
        app_state.database, grant.sender, Action.TOKEN_ROTATE, target=token_id
    ) as change:
        session = change.session
        row = tokens.hold(session, token_id)
        _require_owner(row, grant)
        if row.actor != grant.actor and not users.find(session, row.actor).service:
            raise LockstepError(
                ErrorCode.FORBIDDEN,
                f"token {row.id} is of {row.actor}, a person, who alone gets its new secret",
                next_step=f"Revoke it, if it must end: lockstep token revoke {row.id}",
            )
        secret = tokens.rotate(session, row, overlap_hours=rotation.overlap_hours)
        view = _view(row)
    app_state.guard.forget()
    log.info("a token is rotated", token=token_id, owner=view.owner, actor=grant.actor)
    return TokenSecretView(token=view, secret=secret)


@router.delete(
    "/{token_id}",
    operation_id="revokeToken",
    summary="Revoke a token",
    response_description="The token, revoked.",
    responses=documented(403, 404, 507),
)
def revoke(token_id: TokenId, app_state: AppStateDep, grant: OwnTokens) -> TokenView:
    with changes.of(
        app_state.database, grant.sender, Action.TOKEN_REVOKE, target=token_id
    ) as change:
        session = change.session
        row = tokens.get(session, token_id)
        _require_owner(row, grant)
        tokens.revoke(session, row)
        view = _view(row)
    app_state.guard.forget()
    log.info("a token is revoked", token=token_id, owner=view.owner, actor=grant.actor)
    return view


def _require_owner(row: TokenRow, grant: Grant) -> None:
    """Refuse a token of another owner, which exists only for an admin of the service."""
    if row.actor != grant.actor and not grant.caller.rights.may(Right.USER_WRITE):
        raise tokens.unknown(row.id)
