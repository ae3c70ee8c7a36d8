"""Caller of a request, and the only place that decides what a caller may do.

Each route under ``/v1`` declares one right with :func:`needs`; :func:`check` stops the program if
one does not. The declaration gives the handler a :class:`Grant`: what it finds is limited to the
projects that the caller may read, and what it changes needs the right in the project of the job.

What a caller may not read does not exist: 404, in the words for an id that does not exist. What a
caller may read and not change is refused with 403, which names the right and who grants it.

Not here: the rights of roles and scopes (``domain.rights``), tokens (``api.auth.bearer``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from lockstep.api.auth.bearer import Caller, token_key
from lockstep.api.http.addresses import check_address
from lockstep.api.http.body import refuse_body
from lockstep.api.http.conditional import refuse_if_match
from lockstep.api.http.problems import problem_response, request_id_of
from lockstep.api.parts import AppStateDep, parts_of
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.people_views import TOKEN_EXPIRES
from lockstep.domain.rights import OF_SERVICE, ForbiddenError, Right, Within, forbidden
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import jobs
from lockstep.storage.people import credentials
from lockstep.storage.people.audit import Sender


async def _caller(request: Request) -> Caller:
    """Return the caller of the request.

    Cached tokens are answered in the event loop; others need a thread and a few SQL statements.

    A request is charged to its token. The look-up of an uncached token is charged to the client's
    address: otherwise a client could get a new quota with each invented token.

    Raises
    ------
    LockstepError
        ``unauthenticated`` without a valid token; ``too_many_requests`` when the quota is used up.
    """
    guard = parts_of(request).guard
    authorization = request.headers.get("authorization")
    caller = guard.remembered(authorization)
    if caller is None or not guard.required:
        _charge(request, address_of(request).encode())
    if caller is None:
        caller = await run_in_threadpool(guard.look_up, authorization)
    request.scope["state"]["actor"] = caller.name
    request.scope["state"]["sender"] = sender_of(request, caller.name, caller.token)
    if caller.credential == "token" and caller.expires_at is not None:
        end = datetime.fromtimestamp(caller.expires_at, UTC)
        _add_headers(request, {TOKEN_EXPIRES: f"{end:%Y-%m-%dT%H:%M:%SZ}"})
    if guard.required:
        _charge(request, token_key(authorization))
    return caller


def sender_of(request: Request, name: str, token: str | None = None) -> Sender:
    """Return the origin of a request for the audit.

    Parameters
    ----------
    request : Request
    name : str
        Of the person.
    token : str, optional
        Id of the token.
    """
    address = request.client.host[:64] if request.client else None
    return Sender(name, token, address, request_id_of(request))


def refused(request: Request, error: Exception) -> Response:
    """Answer a missing right, and add it to the audit (a handler of exceptions)."""
    # Not `async`: it writes to the database, and runs in a thread.
    assert isinstance(error, ForbiddenError)
    target = f"{request.method} {credentials.masked(request.url.path)}"
    parts_of(request).refusals.note(request.scope["state"]["sender"], error, target)
    return problem_response(error, instance=request_id_of(request))


async def still_reads(request: Request, project: str) -> bool:
    """Return whether the caller of an open stream may still read a project.

    The caller is looked up, not remembered: other requests with the token would delay the end of
    the stream. A database that does not answer ends no stream.
    """
    guard = parts_of(request).guard
    if not guard.required:
        return True
    try:
        caller = await run_in_threadpool(guard.look_up, request.headers.get("authorization"))
    except LockstepError as error:
        return error.code is not ErrorCode.UNAUTHENTICATED
    return project in caller.rights.within(Right.JOB_READ)


def is_known(request: Request, *, look_up: bool) -> bool:
    """Return True for a caller with a valid token, and for every caller without authentication.

    Invalid tokens and exhausted quotas give False.

    Parameters
    ----------
    request : Request
    look_up : bool
        Look up a token that is not cached in the database. That is charged to the client's address.
    """
    guard = parts_of(request).guard
    authorization = request.headers.get("authorization")
    try:
        if guard.remembered(authorization) is not None:
            return True
        if look_up:
            _charge(request, address_of(request).encode())
            guard.look_up(authorization)
    except LockstepError:
        return False
    return look_up


def address_of(request: Request) -> str:
    """Return the address of the client, without its port."""
    return request.client.host if request.client else ""


def _charge(request: Request, caller: bytes) -> None:
    quotas = parts_of(request).quotas
    standing = quotas.take(caller)
    if standing is None:
        return
    _add_headers(request, quotas.headers(standing))
    if standing.wait_seconds:
        raise quotas.refusal(standing)


def _add_headers(request: Request, headers: dict[str, str]) -> None:
    """Add headers to the response, errors included: ``api.request_middleware`` reads them."""
    request.scope["state"].setdefault("headers", {}).update(headers)


guarded = [Depends(_caller), Depends(check_address), Depends(refuse_body), Depends(refuse_if_match)]
"""Dependencies of every router under ``/v1``. They run before the body is read.
``api.http.openapi`` describes them."""
unguarded = [Depends(check_address), Depends(refuse_body)]
"""Dependencies of a route that is open without a token."""


@dataclass(frozen=True)
class Grant:
    """Right of a caller, as a route declares it."""

    caller: Caller
    right: Right
    sender: Sender

    @property
    def actor(self) -> str:
        """Name of the caller."""
        return self.caller.name

    @property
    def readable(self) -> Within:
        """Projects whose jobs the caller may read."""
        return self.caller.rights.within(Right.JOB_READ)

    @property
    def within(self) -> Within:
        """Projects in which the caller has the declared right."""
        return self.caller.rights.within(self.right)

    def find_job(self, app_state: AppStateDep, reference: str) -> JobRow:
        """Return the job of a reference, with the declared right in its project.

        Raises
        ------
        LockstepError
            As ``storage.jobs.jobs.find``; ``forbidden`` without the right.
        """
        with app_state.database.read_jobs() as session:
            job = jobs.find(session, reference, among=self.readable)
        self.require(job)
        return job

    def require_in(self, project: str) -> None:
        """Refuse a project in which the caller does not have the declared right.

        Raises
        ------
        LockstepError
            ``forbidden``.
        """
        if project not in self.caller.rights.within(self.right):
            raise forbidden(self.actor, self.right, project)

    def require(self, job: JobRow) -> None:
        """Refuse a job in whose project the caller does not have the declared right.

        Raises
        ------
        LockstepError
            ``forbidden``.
        """
        own = self.caller.rights.within(Right.JOB_CONTROL_OWN)
        is_own = self.right in _OF_OWN_JOBS and job.actor == self.actor
        if not (is_own and job.project in own):
            self.require_in(job.project)


_OF_OWN_JOBS: Final = {Right.JOB_CONTROL, Right.JOB_WRITE}
"""Rights that ``job.control_own`` gives for the own jobs."""
_SOMEWHERE: Final = {Right.JOB_SUBMIT, Right.AUDIT_READ}
"""Rights in a project without which a route is refused before anything is looked up."""


class _Needs:
    """Dependency that gives the grant of a right."""

    def __init__(self, right: Right):
        self.right = right

    async def __call__(
        self, request: Request, caller: Annotated[Caller, Depends(_caller)]
    ) -> Grant:
        rights = caller.rights
        if self.right in OF_SERVICE and not rights.may(self.right):
            raise forbidden(caller.name, self.right)
        if self.right in _SOMEWHERE and rights.within(self.right).is_empty:
            raise forbidden(caller.name, self.right)
        return Grant(caller, self.right, request.scope["state"]["sender"])


async def _open(request: Request) -> None:
    """Mark a route that is open without a token. It is charged to the client's address."""
    _charge(request, address_of(request).encode())


without_token = Depends(_open)
"""Declaration of a route that is open without a token, such as the sign-in."""


def needs(right: Right) -> Any:
    """Return the declaration of a route's right: ``Annotated[Grant, needs(Right.JOB_READ)]``."""
    return Depends(_Needs(right))


def check(app: FastAPI) -> None:
    """Refuse an application with a route under ``/v1`` that declares no right, or several.

    Raises
    ------
    RuntimeError
        With the method and the address of the route.
    """
    for route, dependant in routes(app):
        declared = list(_declared(dependant))
        if len(declared) != 1:
            raise RuntimeError(
                f"the route {route} declares {len(declared)} rights; expected one: "
                "needs(Right.…) in api.access"
            )


def routes(app: FastAPI) -> Iterator[tuple[str, Dependant]]:
    """Yield each route under ``/v1``, as ``METHOD /path``, with its dependencies."""
    for route in app.routes:
        if isinstance(route, APIRoute) and route.path.startswith("/v1"):
            for method in sorted(route.methods or ()):
                yield f"{method} {route.path}", route.dependant


def _declared(dependant: Dependant) -> Iterator[Right | None]:
    for each in dependant.dependencies:
        if isinstance(each.call, _Needs):
            yield each.call.right
        if each.call is _open:
            yield None
        yield from _declared(each)


Reads = Annotated[Grant, needs(Right.JOB_READ)]
Submits = Annotated[Grant, needs(Right.JOB_SUBMIT)]
Controls = Annotated[Grant, needs(Right.JOB_CONTROL)]
ChangesJobs = Annotated[Grant, needs(Right.JOB_WRITE)]
ReadsCheckpoints = Annotated[Grant, needs(Right.CHECKPOINT_READ)]
ReadsNodes = Annotated[Grant, needs(Right.NODE_READ)]
ChangesNodes = Annotated[Grant, needs(Right.NODE_WRITE)]
ReadsOwnAccount = Annotated[Grant, needs(Right.USER_READ)]
ChangesOwnCredentials = Annotated[Grant, needs(Right.TOKEN_WRITE)]
ReadsAudit = Annotated[Grant, needs(Right.AUDIT_READ)]
