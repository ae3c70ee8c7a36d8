"""Whether this process lives, whether jobs are accepted, and its figures for Prometheus.

Open to everybody, since tokens are in the database, and these are read most when it is away. So the answers name nothing:
they have counts and ages, but no job, person, node or token.

Not here: what is looked at (``api.readiness``, ``api.telemetry``).
"""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.parts import Here
from api.problems import described
from api.telemetry import MEDIA_TYPE
from domain.version import VERSION
from domain.views import Health

router = APIRouter(tags=["health"])


@router.get("/livez", operation_id="livez", summary="Whether the process answers")
async def livez() -> Health:
    return Health(status="ok", version=VERSION)


@router.get(
    "/readyz",
    operation_id="readyz",
    summary="Whether jobs are accepted",
    responses={503: {"model": Health, "description": "They are not; `checks` says why."}, **described(500)},
)
def readyz(response: Response, here: Here) -> Health:
    health = here.readiness.look()
    if health.status == "unavailable":
        response.status_code = 503
        response.headers["Retry-After"] = "2"
    return health


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
def scrape(here: Here) -> Response:
    return Response(here.telemetry.page(), media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})
