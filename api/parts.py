"""Objects shared by all handlers, and the dependencies that provide them.

``api.app`` assembles the parts once; handlers get them through the request.

Not here: opening and closing the parts (``api.serving``), the caller of a request
(``api.access``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from lockstep.api.auth.bearer import Guard
from lockstep.api.auth.passwords import Delays, Passwords
from lockstep.api.auth.quotas import Quotas
from lockstep.api.changes import Refusals
from lockstep.api.http.following import ChangeStreams
from lockstep.api.http.response_cache import ResponseCache
from lockstep.api.jobs.estimates import Estimates
from lockstep.api.jobs.forecasts import Forecasts
from lockstep.api.jobs.home import ClusterUse
from lockstep.api.jobs.known_views import KnownViews
from lockstep.api.jobs.sharing import Shares
from lockstep.api.jobs.uploads import Uploads
from lockstep.api.readiness import Readiness
from lockstep.api.telemetry import ApiMetrics
from lockstep.broker.messages import Notifier
from lockstep.storage.control.averages import Averages
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.people.limits import ServiceLimits


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
    views: KnownViews
    following: ChangeStreams
    telemetry: ApiMetrics
    quotas: Quotas
    passwords: Passwords
    delays: Delays
    refusals: Refusals
    limits: ServiceLimits
    averages: Averages
    shares: Shares
    cluster: ClusterUse


def parts_of(request: Request) -> AppState:
    """Return the shared objects of the application that handles ``request``."""
    found: AppState = request.app.state.parts
    return found


async def _in_loop(request: Request) -> AppState:
    # `async` although it awaits nothing: FastAPI runs a sync dependency in another thread.
    return parts_of(request)


AppStateDep = Annotated[AppState, Depends(_in_loop)]
