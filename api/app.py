"""The application: routes, errors and parts put together. Opens and closes nothing.

Not here: where its parts come from (``api.serving``).
"""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from api import openapi, problems
from api.auth import Guard
from api.bounded import BoundedCheck
from api.compression import Compression
from api.dashboard import Dashboard
from api.envelope import Envelope
from api.estimates import Estimates
from api.figures import Figures
from api.following import Following
from api.forecasts import Compute, Forecasts
from api.origins import OwnPagesOnly
from api.parts import Bell, Parts
from api.quotas import Quotas
from api.readiness import Readiness
from api.rendered import Rendered
from api.routes import checkpoints, clones, health, history, jobs, log_streams, logs, nodes, pages, series, uploads
from api.settings import Settings
from api.telemetry import Telemetry
from api.uploads import Uploads
from broker import probe
from domain.timings import Timings
from domain.version import VERSION
from storage import passes, schema
from storage.blobs import BlobStore
from storage.database import Database

TAGS: Final = [
    {"name": "jobs", "description": "Submit, plan, list, read and cancel."},
    {"name": "history", "description": "What a job left behind: metrics, events, checkpoints."},
    {"name": "logs", "description": "What its processes wrote."},
    {"name": "uploads", "description": "Code archives."},
    {"name": "nodes", "description": "Hosts and their devices."},
    {"name": "health", "description": "For supervisors and load balancers; needs no token."},
]


def routed() -> FastAPI:
    """Routes, errors and description, with no parts behind them: enough to say what the API is."""
    app = FastAPI(
        title="Lockstep",
        version=VERSION,
        openapi_tags=TAGS,
        # A slash too many is a wrong address and is said to be one: a redirect would drop the body of a POST.
        redirect_slashes=False,
    )
    modules = (jobs, clones, history, series, checkpoints, logs, log_streams, uploads, nodes, health)
    routers = [module.router for module in modules]
    for router in routers:
        app.include_router(router)
    app.router.routes.append(pages.route)
    app.state.dashboard = Dashboard()
    problems.install(app, [route for router in routers for route in router.routes])
    app.openapi = lambda: openapi.describe(app)  # type: ignore[method-assign]  # as FastAPI's documentation does it
    return app


def create_app(
    settings: Settings,
    database: Database,
    blobs: BlobStore,
    publisher: Bell,
    *,
    compute_forecast: Compute | None = None,
) -> FastAPI:
    """The HTTP API over these parts, which the caller owns; without ``compute_forecast``, plans use history alone."""
    app = routed()
    timings = Timings().scaled(settings.timings_scale)

    def pass_seconds() -> float | None:
        with database.read_jobs() as session:
            return passes.silent_seconds(session)

    following = Following(database)
    telemetry = Telemetry(database, Figures(database, timings.lease_seconds), following)
    app.state.parts = Parts(
        database=database,
        uploads=Uploads(blobs),
        blobs=blobs,
        bell=publisher,
        guard=Guard(database, required=settings.auth == "on"),
        lease_seconds=timings.lease_seconds,
        readiness=Readiness(
            database,
            mismatch=lambda: schema.mismatch(database),
            store_trouble=BoundedCheck(blobs.trouble).ask,
            broker_answers=lambda: probe.answers(settings.broker_url),
            pass_seconds=pass_seconds,
            outage_seconds=timings.outage_seconds,
        ),
        estimates=Estimates(database, timings.lease_seconds),
        forecasts=Forecasts(database, compute_forecast),
        rendered=Rendered(),
        following=following,
        telemetry=telemetry,
        quotas=Quotas(settings.rate_limit_requests, settings.rate_limit_seconds),
    )
    app.add_middleware(Compression)
    if settings.auth == "off":
        app.add_middleware(OwnPagesOnly, allowed_hosts=settings.allowed_hosts)
    app.add_middleware(Envelope, telemetry=telemetry)
    return app
