"""What every handler works with: put together once in ``api.app``, found again through the request.

Not here: opening and closing any of it (``api.serving``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from lockstep.api.auth.bearer import ANYBODY, Guard, token_key
from lockstep.api.auth.quotas import Quotas
from lockstep.api.http.following import Following
from lockstep.api.http.response_cache import Rendered
from lockstep.api.jobs.estimates import Estimates
from lockstep.api.jobs.forecasts import Forecasts
from lockstep.api.jobs.uploads import Uploads
from lockstep.api.readiness import Readiness
from lockstep.api.telemetry import Telemetry
from lockstep.broker.messages import Message
from lockstep.domain.errors import LockstepError
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore


class Bell(Protocol):
    """Where messages go. It never blocks and never raises: every message may be lost."""

    def publish(self, message: Message) -> None: ...


@dataclass(frozen=True)
class Parts:
    """Shared by all requests of one application."""

    database: Database
    uploads: Uploads
    blobs: BlobStore
    bell: Bell
    guard: Guard
    lease_seconds: float
    """A node that was silent for longer is lost."""
    readiness: Readiness
    estimates: Estimates
    forecasts: Forecasts
    rendered: Rendered
    following: Following
    telemetry: Telemetry
    quotas: Quotas


def _parts_of(request: Request) -> Parts:
    found: Parts = request.app.state.parts
    return found


async def _in_loop(request: Request) -> Parts:
    # `async` although nothing is awaited: a sync dependency costs a hop to another thread.
    return _parts_of(request)


async def _actor(request: Request) -> str:
    """Who asks, if they may ask now. Remembered tokens are answered in the event loop; new ones cost a thread and a statement.

    A request is charged to its token. Before that is known to be one its look-up is charged to the caller's address:
    otherwise a made-up token for each request would be a bucket for each.
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
    """Return True for a caller with a valid token, and for everybody where authentication is off. Refuse nobody.

    Parameters
    ----------
    request : Request
    look_up : bool
        Look for a token that is not remembered in the database. That is charged to the caller's address.
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
    # Found again where every answer passes, refusals as well (api.envelope).
    request.scope["state"]["quota"] = quotas.headers(standing)
    if standing.wait_seconds:
        raise quotas.refusal(standing)


Here = Annotated[Parts, Depends(_in_loop)]
Actor = Annotated[str, Depends(_actor)]
guarded = [Depends(_actor)]
"""Dependencies of every router under ``/v1``: they run before the body is read. Described in ``api.http.openapi``."""
