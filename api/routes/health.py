"""Whether this process lives, and whether jobs are accepted. Open to everybody: the answers say nothing about jobs.

Not here: what is looked at (``api.readiness``).
"""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.parts import Here
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
    responses={503: {"model": Health, "description": "They are not; `checks` says why."}},
)
def readyz(response: Response, here: Here) -> Health:
    health = here.readiness.look()
    if health.status == "unavailable":
        response.status_code = 503
        response.headers["Retry-After"] = "2"
    return health
