"""The application: routes, errors and parts put together. Opens and closes nothing.

Not here: where its parts come from (``api.serving``).
"""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from api import openapi, problems
from api.auth import Guard
from api.envelope import Envelope
from api.following import Following
from api.parts import Bell, Parts
from api.readiness import Readiness
from api.routes import checkpoints, health, history, jobs, log_streams, logs, nodes, pages, series, uploads
from api.settings import Settings
from api.uploads import Uploads
from api.version import VERSION
from broker import probe
from domain.timings import Timings
from storage import migrate
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


def create_app(settings: Settings, database: Database, blobs: BlobStore, publisher: Bell) -> FastAPI:
    """The HTTP API over these parts, which the caller owns."""
    app = FastAPI(
        title="Lockstep",
        version=VERSION,
        openapi_tags=TAGS,
        # A slash too many is a wrong address and is said to be one: a redirect would drop the body of a POST.
        redirect_slashes=False,
    )
    app.state.parts = Parts(
        database=database,
        uploads=Uploads(blobs),
        blobs=blobs,
        bell=publisher,
        guard=Guard(database, required=settings.auth == "on"),
        lease_seconds=Timings().scaled(settings.timings_scale).lease_seconds,
        readiness=Readiness(
            database,
            pending=lambda: migrate.pending(settings.database_url, settings.series_url),
            broker_answers=lambda: probe.answers(settings.broker_url),
        ),
        following=Following(database),
    )
    problems.install(app)
    for module in (jobs, history, series, checkpoints, logs, log_streams, uploads, nodes, health, pages):
        app.include_router(module.router)
    app.add_middleware(Envelope)
    app.openapi = lambda: openapi.describe(app)  # type: ignore[method-assign]  # as FastAPI's documentation does it
    return app
