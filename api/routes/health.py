"""Liveness, readiness and the metrics for Prometheus.

These routes need no token: tokens are in the database, and health is read most when the database is
down. The responses therefore contain counts and ages, but no jobs, users, nodes or tokens. Only
callers with a token get the reasons of ``/readyz``, which may contain hosts and folders.

Not here: the checks and metrics (``api.readiness``, ``api.telemetry``).
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from lockstep.api.access import is_known
from lockstep.api.http.problems import described
from lockstep.api.parts import AppStateDep
from lockstep.api.telemetry import MEDIA_TYPE
from lockstep.domain.version import VERSION
from lockstep.domain.views import Health

router = APIRouter(tags=["health"])


@router.get("/livez", operation_id="livez", summary="Check that the process is running")
async def livez() -> Health:
    return Health(status="ok", version=VERSION)


@router.get(
    "/readyz",
    operation_id="readyz",
    summary="Check that jobs are accepted",
    description=(
        "Requests with a valid token also get the reasons, which may contain hosts and folders."
    ),
    responses={
        503: {
            "model": Health,
            "description": "Jobs are not accepted; `checks` contains the reasons.",
        },
        **described(500),
    },
)
def readyz(request: Request, response: Response, app_state: AppStateDep) -> Health:
    found = app_state.readiness.check()
    ready = found.health.status != "unavailable"
    if not ready:
        response.status_code = 503
        response.headers["Retry-After"] = "2"
    # A token that is not cached is looked up only while the database answers.
    return found.in_full() if found.details and is_known(request, look_up=ready) else found.health


@router.get(
    "/metrics",
    operation_id="scrapeMetrics",
    summary="Metrics of the service in the Prometheus text format",
    response_class=Response,
    responses={
        200: {
            "content": {"text/plain": {"schema": {"type": "string"}}},
            "description": "Every figure.",
        },
        **described(500),
    },
)
def scrape(app_state: AppStateDep) -> Response:
    return Response(
        app_state.telemetry.page(), media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"}
    )
