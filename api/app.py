"""Assembly of the application: routes, error handlers, middleware and shared parts.

Not here: opening and closing the parts (``api.serving``).
"""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from lockstep.api import access
from lockstep.api.auth.bearer import Guard
from lockstep.api.auth.origins import OwnPagesOnly
from lockstep.api.auth.passwords import Delays, Passwords
from lockstep.api.auth.quotas import Quotas
from lockstep.api.changes import Refusals
from lockstep.api.dashboard.files import Dashboard
from lockstep.api.gauges import ServiceGauges
from lockstep.api.http import openapi, problems
from lockstep.api.http.bounded import BoundedCheck
from lockstep.api.http.compression import Compression
from lockstep.api.http.following import ChangeStreams
from lockstep.api.http.head import Head
from lockstep.api.http.places import PlaceInTags
from lockstep.api.http.response_cache import ResponseCache
from lockstep.api.jobs.estimates import Estimates
from lockstep.api.jobs.forecasts import Compute, Forecasts
from lockstep.api.jobs.home import ClusterUse
from lockstep.api.jobs.known_views import KnownViews
from lockstep.api.jobs.sharing import Shares
from lockstep.api.jobs.uploads import Uploads
from lockstep.api.parts import AppState
from lockstep.api.readiness import Readiness
from lockstep.api.request_middleware import RequestMiddleware
from lockstep.api.routes import (
    audit,
    checkpoints,
    clones,
    files,
    health,
    history,
    home,
    job_lists,
    jobs,
    live,
    log_streams,
    logs,
    marks,
    nodes,
    pages,
    projects,
    series,
    session,
    shares,
    tokens,
    uploads,
    usage,
    users,
)
from lockstep.api.settings import ApiSettings
from lockstep.api.telemetry import ApiMetrics
from lockstep.broker import probe
from lockstep.broker.messages import Notifier
from lockstep.domain.rights import ForbiddenError
from lockstep.domain.version import VERSION
from lockstep.storage.control import agreed_timings, scheduler_lease
from lockstep.storage.control.averages import Averages
from lockstep.storage.control.places import PlaceReader
from lockstep.storage.db import schema
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.people.limits import ServiceLimits

TAGS: Final = [
    {"name": "jobs", "description": "Submit, plan, list, read and cancel."},
    {"name": "history", "description": "Metrics, events, checkpoints and files of a job."},
    {"name": "logs", "description": "Log lines of a job's processes."},
    {"name": "uploads", "description": "Code archives."},
    {"name": "nodes", "description": "Nodes and their devices."},
    {"name": "people", "description": "People, projects, tokens and use of devices."},
    {"name": "sign-in", "description": "Sessions, passwords and invitations."},
    {"name": "audit", "description": "Changes and refused requests."},
    {
        "name": "health",
        "description": "Health checks for supervisors and load balancers; no token needed.",
    },
]


def routed() -> FastAPI:
    """Return an application with routes, error handlers and OpenAPI description only.

    It has no shared parts: it describes the API and cannot serve requests.
    """
    app = FastAPI(
        title="Lockstep",
        version=VERSION,
        openapi_tags=TAGS,
        # An address with a superfluous slash is answered with 404. A redirect would drop the body
        # of a POST.
        redirect_slashes=False,
    )
    modules = (
        job_lists,
        jobs,
        marks,
        clones,
        home,
        history,
        live,
        series,
        checkpoints,
        files,
        logs,
        log_streams,
        uploads,
        nodes,
        users,
        projects,
        tokens,
        shares,
        usage,
        session,
        audit,
        health,
    )
    # `include_router` would build every route a second time, for each application.
    app.router.routes += [route for module in modules for route in module.router.routes]
    app.router.routes.append(pages.route)
    app.state.dashboard = Dashboard()
    problems.install(app)
    app.add_exception_handler(ForbiddenError, access.refused)
    access.check(app)
    app.openapi = lambda: openapi.describe(app)  # type: ignore[method-assign]  # documented by FastAPI
    return app


def create_app(
    settings: ApiSettings,
    database: Database,
    blobs: BlobStore,
    publisher: Notifier,
    *,
    compute_forecast: Compute | None = None,
) -> FastAPI:
    """Return the HTTP API over these parts, which the caller owns.

    Without ``compute_forecast``, plans take memory forecasts from earlier attempts only.
    """
    app = routed()

    def cycle_seconds() -> tuple[float | None, float]:
        with database.read_jobs() as session:
            outage_seconds = agreed_timings.read(session).outage_seconds
            return scheduler_lease.silent_seconds(session), outage_seconds

    following, averages, views = ChangeStreams(database), Averages(), KnownViews(database)
    telemetry = ApiMetrics(database, ServiceGauges(database), following)
    app.state.parts = AppState(
        database=database,
        uploads=Uploads(blobs),
        blobs=blobs,
        notifier=publisher,
        guard=Guard(database, required=settings.auth == "on"),
        readiness=Readiness(
            database,
            mismatch=lambda: schema.mismatch(database),
            store_trouble=BoundedCheck(blobs.trouble).ask,
            broker_answers=lambda: probe.answers(settings.broker_url),
            cycle_seconds=cycle_seconds,
        ),
        estimates=Estimates(database, averages),
        forecasts=Forecasts(database, compute_forecast),
        rendered=ResponseCache(),
        views=views,
        following=following,
        telemetry=telemetry,
        quotas=Quotas(settings.rate_limit_requests, settings.rate_limit_seconds),
        passwords=Passwords(),
        delays=Delays(),
        refusals=Refusals(database),
        averages=averages,
        shares=Shares(database, averages),
        cluster=ClusterUse(database),
        limits=ServiceLimits(settings.timeout_default_seconds, settings.timeout_max_seconds),
    )
    app.add_middleware(Compression)
    app.add_middleware(PlaceInTags, read=PlaceReader(database).read, changed=views.forget)
    app.add_middleware(Head)
    if settings.auth == "off":
        app.add_middleware(OwnPagesOnly, allowed_hosts=settings.allowed_hosts)
    app.add_middleware(RequestMiddleware, telemetry=telemetry)
    return app
