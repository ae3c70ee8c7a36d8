"""Sign-in: sessions, the own account, the password and invitations.

An unknown name and a wrong password get the same answer after the same work. No answer and no
message contains a password or a code; the token of a session is in the answer to its sign-in alone.

A code hands the access of a command over to a browser (``lockstep open``).

Not here: hashes and delays (``api.auth.passwords``), sessions as bearer tokens
(``api.auth.bearer``).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

import structlog
from fastapi import APIRouter, Depends, Path, Request, Response

from lockstep.api import changes
from lockstep.api.access import (
    ChangesOwnCredentials,
    ReadsOwnAccount,
    address_of,
    guarded,
    sender_of,
    unguarded,
    without_token,
)
from lockstep.api.auth import passwords
from lockstep.api.http.problems import described, documented
from lockstep.api.http.texts import Texts, body_of, texts, wrong
from lockstep.api.parts import AppState, AppStateDep
from lockstep.domain.audit import Action
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.views import CallerView, Page, SessionView, SignedIn, SignInCode
from lockstep.storage.people import sessions, sign_in_codes, users
from lockstep.storage.people.sessions import Origin

router = APIRouter(prefix="/v1", tags=["sign-in"])
log = structlog.get_logger("api")

NAME_CHARS_MAX: Final = 255
_PASSWORD_WRONG: Final = "the name or the password is wrong"  # noqa: S105 -- a message
_INVITATION_WRONG: Final = "the invitation code is unknown, used or expired"
_CODE_WRONG: Final = "the code is unknown, used or expired"
_NEW_INVITATION: Final = (
    "check it and try again, or ask an admin of the service for a new invitation"
)
_NEW_CODE: Final = "run lockstep open again"


_SIGN_IN: Final = body_of(name=NAME_CHARS_MAX, password=passwords.CHARS_MAX)
_INVITATION: Final = body_of(code=100, password=passwords.CHARS_MAX)
_CODE: Final = body_of(code=100)
_PASSWORD: Final = body_of(old=passwords.CHARS_MAX, new=passwords.CHARS_MAX)
_OPEN: Final[dict[str, Any]] = {"security": []}


def _refused(subject: str, next_step: str = _NEW_INVITATION) -> LockstepError:
    return LockstepError(
        ErrorCode.UNAUTHENTICATED, f"{subject}; nothing was written", next_step=next_step
    )


@router.post(
    "/session",
    operation_id="signIn",
    summary="Sign in with name and password",
    responses=documented(400, 413, 415, 507)
    | {401: described(401)[401] | {"description": "The name or the password is wrong."}},
    dependencies=[*unguarded, without_token],
    openapi_extra=_SIGN_IN | _OPEN,
)
def sign_in(
    body: Annotated[Texts, Depends(texts(_SIGN_IN))],
    request: Request,
    response: Response,
    app_state: AppStateDep,
) -> SignedIn:
    name = body["name"]
    found = _check(app_state, request, name, body["password"])
    if found is None:
        raise _refused(_PASSWORD_WRONG)
    before, stored = found
    with changes.of(
        app_state.database, sender_of(request, name), Action.SESSION_START, target=name
    ) as change:
        session = change.session
        # Since the check, the password may have changed, or its owner may have been deactivated.
        if not users.set_password(session, name, stored, before=before):
            raise _refused(_PASSWORD_WRONG)
        token, end = sessions.start(session, name, _origin(request))
    return _signed_in(request, response, name, token, end)


@router.post(
    "/invitation",
    operation_id="acceptInvitation",
    summary="Set the password with an invitation code, and sign in",
    description="A code is used once, within 7 days. The older sessions of the person end.",
    responses=documented(400, 413, 415, 507)
    | {401: described(401)[401] | {"description": "The code is unknown, used or expired."}},
    dependencies=[*unguarded, without_token],
    openapi_extra=_INVITATION | _OPEN,
)
def accept_invitation(
    body: Annotated[Texts, Depends(texts(_INVITATION))],
    request: Request,
    response: Response,
    app_state: AppStateDep,
) -> SignedIn:
    passwords.require(body["password"], "/password")
    code, address = body["code"].strip(), address_of(request)
    app_state.delays.begin(None, address)
    with app_state.database.read_jobs() as session:
        name = users.invited(session, code)
    if name is None:
        raise _refused(_INVITATION_WRONG)
    app_state.delays.right(None, address)
    stored = app_state.passwords.hash(body["password"])
    with changes.of(
        app_state.database, sender_of(request, name), Action.INVITATION_ACCEPT, target=name
    ) as change:
        session = change.session
        # Of two requests with one code, the second finds it used.
        if not users.accept(session, code, stored):
            raise _refused(_INVITATION_WRONG)
        sessions.end_all(session, name)
        token, end = sessions.start(session, name, _origin(request))
    app_state.guard.forget()
    return _signed_in(request, response, name, token, end)


@router.post(
    "/sign-in-codes",
    operation_id="createSignInCode",
    summary="Make a code that starts one session within a minute",
    description="The session has the rights of this request's credential, and ends with its token.",
    status_code=201,
    responses=documented(403, 409, 507),
    dependencies=guarded,
)
def create_code(grant: ReadsOwnAccount, response: Response, app_state: AppStateDep) -> SignInCode:
    caller = grant.caller
    if caller.credential == "none":
        raise LockstepError(
            ErrorCode.CONFLICT,
            "authentication is off; nothing was written",
            next_step="open the pages: they ask for no sign-in",
        )
    with changes.of(
        app_state.database, grant.sender, Action.SIGN_IN_CODE_CREATE, target=caller.name
    ) as change:
        code, end = sign_in_codes.create(change.session, caller.name, token_id=caller.token)
    response.headers["Cache-Control"] = "no-store"
    return SignInCode(code=code, expires_at=_moment(end))


@router.post(
    "/session/code",
    operation_id="signInWithCode",
    summary="Sign in with a code, once",
    responses=documented(400, 413, 415, 507)
    | {401: described(401)[401] | {"description": "The code is unknown, used or expired."}},
    dependencies=[*unguarded, without_token],
    openapi_extra=_CODE | _OPEN,
)
def sign_in_with_code(
    body: Annotated[Texts, Depends(texts(_CODE))],
    request: Request,
    response: Response,
    app_state: AppStateDep,
) -> SignedIn:
    code, address = body["code"].strip(), address_of(request)
    app_state.delays.begin(None, address)
    with app_state.database.read_jobs() as session:
        name = sign_in_codes.owner(session, code)
    if name is None:
        raise _refused(_CODE_WRONG, _NEW_CODE)
    app_state.delays.right(None, address)
    with changes.of(
        app_state.database, sender_of(request, name), Action.SESSION_START, target=name
    ) as change:
        used = sign_in_codes.use(change.session, code)
        if used is None:
            raise _refused(_CODE_WRONG, _NEW_CODE)
        token, end = sessions.start(change.session, name, _origin(request), token_id=used.token_id)
    return _signed_in(request, response, name, token, end)


@router.get(
    "/session",
    operation_id="getSession",
    summary="Read the own name, roles and credential",
    responses=documented(403),
    dependencies=guarded,
)
def get_session(grant: ReadsOwnAccount, app_state: AppStateDep) -> CallerView:
    caller, rights = grant.caller, grant.caller.rights
    narrowed = rights.projects
    with app_state.database.read_jobs() as session:
        row = users.get(session, caller.name)
        is_alone = users.is_alone(session, caller.name)
    rights_everywhere, rights_in = rights.by_project()
    return CallerView(
        name=caller.name,
        title="" if row is None else row.title,
        role=rights.service,
        projects={
            name: role
            for name, role in sorted(rights.roles.items())
            if narrowed is None or name in narrowed
        },
        credential=caller.credential,
        scopes=None if rights.scopes is None else sorted(rights.scopes),
        rights=rights.held(),
        rights_everywhere=rights_everywhere,
        rights_in=rights_in,
        has_password=row is not None and row.password is not None,
        is_alone=is_alone,
        expires_at=None if caller.expires_at is None else _moment(caller.expires_at),
    )


@router.delete(
    "/session",
    operation_id="signOut",
    summary="End the session of this request",
    status_code=204,
    response_description="Ended.",
    responses=documented(403, 409, 507),
    dependencies=guarded,
)
def sign_out(grant: ReadsOwnAccount, app_state: AppStateDep) -> None:
    own = grant.caller.session
    if own is None:
        raise LockstepError(
            ErrorCode.CONFLICT,
            "the bearer token is not one of a session; nothing was written",
            next_step="send the token of a sign-in; an admin revokes other tokens",
        )
    with changes.of(
        app_state.database, grant.sender, Action.SESSION_END, target=own[: sessions.ID_CHARS]
    ) as change:
        session = change.session
        sessions.end(session, grant.actor, own)
    app_state.guard.forget()


@router.get(
    "/sessions",
    operation_id="listSessions",
    summary="List the own sessions, newest first",
    responses=documented(403),
    dependencies=guarded,
)
def list_sessions(grant: ChangesOwnCredentials, app_state: AppStateDep) -> Page[SessionView]:
    with app_state.database.read_jobs() as session:
        rows = sessions.of_user(session, grant.actor)
    items = [
        SessionView(
            id=row.sha256[: sessions.ID_CHARS],
            address=row.address,
            agent=row.agent,
            created_at=_moment(row.created_at),
            seen_at=_moment(row.seen_at),
            expires_at=_moment(row.expires_at),
            is_own=row.sha256 == grant.caller.session,
        )
        for row in rows
    ]
    return Page(items=items)


@router.delete(
    "/sessions/{id}",
    operation_id="endSession",
    summary="End one of the own sessions",
    status_code=204,
    response_description="Ended.",
    responses=documented(403, 404, 507),
    dependencies=guarded,
)
def end_session(
    grant: ChangesOwnCredentials,
    app_state: AppStateDep,
    session_id: Annotated[
        str, Path(alias="id", pattern=r"^[0-9a-f]{16}$", description="From the list of sessions.")
    ],
) -> None:
    with changes.of(
        app_state.database, grant.sender, Action.SESSION_END, target=session_id
    ) as change:
        session = change.session
        if not sessions.end(session, grant.actor, session_id):
            raise LockstepError(
                ErrorCode.NOT_FOUND,
                f"you have no session {session_id}",
                next_step="GET /v1/sessions lists the own sessions",
            )
    app_state.guard.forget()


@router.post(
    "/session/password",
    operation_id="changePassword",
    summary="Change the own password; all other sessions end",
    status_code=204,
    response_description="Changed.",
    responses=documented(400, 403, 409, 413, 415, 507),
    dependencies=guarded,
    openapi_extra=_PASSWORD,
)
def change_password(
    grant: ChangesOwnCredentials,
    body: Annotated[Texts, Depends(texts(_PASSWORD))],
    request: Request,
    app_state: AppStateDep,
) -> None:
    passwords.require(body["new"], "/new")
    found = _check(app_state, request, grant.actor, body["old"])
    if found is None:
        # Not 401: a page would take that for the end of its session.
        raise wrong("/old", "is not the present password")
    stored = app_state.passwords.hash(body["new"])
    with changes.of(
        app_state.database, grant.sender, Action.PASSWORD_CHANGE, target=grant.actor
    ) as change:
        session = change.session
        if not users.set_password(session, grant.actor, stored, before=found[0]):
            raise LockstepError(
                ErrorCode.CONFLICT,
                "the password was changed at the same time; nothing was written",
                next_step="sign in with the new password",
            )
        sessions.end_all(session, grant.actor, but=grant.caller.session)
    app_state.guard.forget()
    log.info("a password is changed", actor=grant.actor)


def _check(
    app_state: AppState, request: Request, name: str, password: str
) -> tuple[str, str] | None:
    """Compare a password with that of an active person.

    Return the stored hash and the one to store now; None for a wrong password, an unknown name and
    a person who is not active. No transaction is open during the hash.

    Raises
    ------
    LockstepError
        ``too_many_requests`` during a delay.
    """
    attempt = name, address_of(request)
    turn = app_state.delays.begin(*attempt)
    try:
        with app_state.database.read_jobs() as session:
            before = users.password_of(session, name)
            if sessions.was_started_from(session, *attempt):
                turn = passwords.Turn.KNOWN
        is_right, new = app_state.passwords.check(password, before, turn)
    except Exception:
        app_state.delays.unchecked(*attempt)
        raise
    if before is None or not is_right:
        app_state.delays.wrong(*attempt)
        return None
    app_state.delays.right(*attempt)
    return before, new or before


def _origin(request: Request) -> Origin:
    return Origin(address_of(request), request.headers.get("user-agent", ""))


def _signed_in(request: Request, response: Response, name: str, token: str, end: float) -> SignedIn:
    request.scope["state"]["actor"] = name
    response.headers["Cache-Control"] = "no-store"
    log.info("a session is started", actor=name, address=address_of(request))
    return SignedIn(token=token, name=name, expires_at=_moment(end))


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
