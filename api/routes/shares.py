"""Shares of projects, and why a job waits.

Not here: the list of the queue (``api.routes.jobs``).
"""

from __future__ import annotations

from fastapi import APIRouter

from lockstep.api.access import Reads, guarded
from lockstep.api.http.problems import documented
from lockstep.api.jobs import sharing
from lockstep.api.parts import AppStateDep
from lockstep.api.routes.jobs import Reference
from lockstep.domain.queue_views import SharesView, WhyView

router = APIRouter(prefix="/v1", tags=["jobs"], dependencies=guarded)


@router.get(
    "/shares",
    operation_id="getShares",
    summary="Read the shares of projects",
    description="Of the projects that you may read: devices that their weights give them, devices "
    "in use, and use on average.",
    responses=documented(),
)
def get_shares(app_state: AppStateDep, grant: Reads) -> SharesView:
    return app_state.shares.among(grant.readable)


@router.get(
    "/jobs/{reference}/why",
    operation_id="getWhy",
    summary="Read why a job waits",
    responses=documented(404),
)
def get_why(reference: Reference, app_state: AppStateDep, grant: Reads) -> WhyView:
    job = grant.find_job(app_state, reference)
    return sharing.why(app_state.database, job, app_state.estimates.starts(), grant.readable)
