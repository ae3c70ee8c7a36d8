"""Objects shared by all handlers, and the dependencies that provide them.

``api.app`` assembles the parts once; handlers get them through the request.

Not here: opening and closing the parts (``api.serving``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from lockstep.api.auth.bearer import ANYBODY, Guard, token_key
from lockstep.api.auth.quotas import Quotas
from lockstep.api.http.addresses import check_address
from lockstep.api.http.following import ChangeStreams
from lockstep.api.http.response_cache import ResponseCache
from lockstep.api.jobs.estimates import Estimates
from lockstep.api.jobs.forecasts import Forecasts
from lockstep.api.jobs.uploads import Uploads
from lockstep.api.readiness import Readiness
from lockstep.api.telemetry import ApiMetrics
from lockstep.broker.messages import Notifier
from lockstep.domain.errors import LockstepError
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import jobs
from lockstep.storage.objects.blobs import BlobStore


@dataclass(frozen=True)
class AppState:
    """Objects shared by all requests of one application."""

    database: Database
    uploads: Uploads
    blobs: BlobStore
    notifier: Notifier
    guard: Guard
    readiness: Readiness
    estimates: Estimates
    forecasts: Forecasts
    rendered: ResponseCache
    following: ChangeStreams
    telemetry: ApiMetrics
    quotas: Quotas

    def find_job(self, reference: str) -> JobRow:
        """Return the job of a reference, as ``storage.jobs.jobs.find`` does."""
        with self.database.read_jobs() as session:
            return jobs.find(session, reference)


def _parts_of(request: Request) -> AppState:
    found: AppState = request.app.state.parts
    return found


async def _in_loop(request: Request) -> AppState:
    # `async` although it awaits nothing: FastAPI runs a sync dependency in another thread.
    return _parts_of(request)


async def _actor(request: Request) -> str:
    """Return the actor of the request.

    Cached tokens are answered in the event loop; others need a thread and one SQL statement.

    A request is charged to its token. The look-up of an uncached token is charged to the client's
    address: otherwise a client could get a new quota with each invented token.

    Raises
    ------
    LockstepError
        ``unauthenticated`` without a valid token; ``too_many_requests`` when the quota is used up.
    """
    guard = _parts_of(request).guard
    authorization = request.headers.get("authorization")
    actor = guard.remembered(authorization)
    if actor is None or actor == ANYBODY:
        _charge(request, request.client.host.encode() if request.client else b"")
    if actor is None:
        actor = await run_in_threadpool(guard.look_up, authorization)
    request.scope["state"]["actor"] = actor
    if actor != ANYBODY:
        _charge(request, token_key(authorization))
    return actor


def is_known(request: Request, *, look_up: bool) -> bool:
    """Return True for a caller with a valid token, and for every caller without authentication.

    Invalid tokens and exhausted quotas give False.

    Parameters
    ----------
    request : Request
    look_up : bool
        Look up a token that is not cached in the database. That is charged to the client's address.
    """
    guard = _parts_of(request).guard
    authorization = request.headers.get("authorization")
    try:
        if guard.remembered(authorization) is not None:
            return True
        if look_up:
            _charge(request, request.client.host.encode() if request.client else b"")
            guard.look_up(authorization)
    except LockstepError:
        return False
    return look_up


def _charge(request: Request, caller: bytes) -> None:
    quotas = _parts_of(request).quotas
    standing = quotas.take(caller)
    if standing is None:
        return
    # ``api.request_middleware`` adds these headers to every response, errors included.
    request.scope["state"]["quota"] = quotas.headers(standing)
    if standing.wait_seconds:
        raise quotas.refusal(standing)


AppStateDep = Annotated[AppState, Depends(_in_loop)]
Actor = Annotated[str, Depends(_actor)]
guarded = [Depends(_actor), Depends(check_address)]
"""Dependencies of every router under ``/v1``. They run before the body is read.
``api.http.openapi`` describes them."""
