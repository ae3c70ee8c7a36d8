"""Liveness, readiness and the metrics for Prometheus.

These routes need no token: tokens are in the database, and health is read most when the database is
down. The responses therefore contain counts and ages, but no jobs, users, nodes or tokens. Only
callers with a token get the reasons of ``/readyz``, which may contain hosts and folders.

Not here: the checks and metrics (``api.readiness``, ``api.telemetry``).
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from lockstep.api.http.problems import described
from lockstep.api.parts import AppStateDep, is_known
from lockstep.api.telemetry import MEDIA_TYPE
from lockstep.domain.version import VERSION
from lockstep.domain.views import Health

router = APIRouter(tags=["health"])


@router.get("/livez", operation_id="livez", summary="Whether the process answers")
async def livez() -> Health:
    return Health(status="ok", version=VERSION)


@router.get(
    "/readyz",
    operation_id="readyz",
    summary="Whether jobs are accepted",
    description="A caller with a valid token also gets the reasons, which may name hosts and folders.",
    responses={503: {"model": Health, "description": "They are not; `checks` says why."}, **described(500)},
)
def readyz(request: Request, response: Response, app_state: AppStateDep) -> Health:
    seen = app_state.readiness.look()
    ready = seen.health.status != "unavailable"
    if not ready:
        response.status_code = 503
        response.headers["Retry-After"] = "2"
    # A token that is not cached is looked up only while the database answers.
    return seen.in_full() if seen.details and is_known(request, look_up=ready) else seen.health


@router.get(
    "/metrics",
    operation_id="scrapeMetrics",
    summary="Figures of the service, as Prometheus reads them",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Every figure."},
        **described(500),
    },
)
def scrape(app_state: AppStateDep) -> Response:
    return Response(app_state.telemetry.page(), media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})
