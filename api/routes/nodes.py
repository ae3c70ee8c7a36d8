"""Nodes and their devices; draining, resuming and removing nodes.

Not here: assigning devices (``scheduler``), quarantine rules (``domain.life.quarantine``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Path, Query, Request, Response

from lockstep.api import changes
from lockstep.api.access import ChangesNodes, Grant, ReadsNodes, guarded
from lockstep.api.http import conditional, tags
from lockstep.api.http.problems import documented
from lockstep.api.jobs.views import jobs_of, node_view
from lockstep.api.parts import AppState, AppStateDep
from lockstep.broker.messages import WakeScheduler
from lockstep.domain import limits
from lockstep.domain.audit import Action
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.views import NodeView, Page
from lockstep.storage.attempts import node_removal, nodes
from lockstep.storage.control import agreed_timings
from lockstep.storage.db.clock import now
from lockstep.storage.jobs.foreign import Mentions

router = APIRouter(prefix="/v1/nodes", tags=["nodes"], dependencies=guarded)
log = structlog.get_logger("api")

NodeName = Annotated[
    str, Path(min_length=1, max_length=255, description="Full name of a node.", examples=["gpu-a"])
]
DrainReason = Annotated[
    str | None,
    Query(
        max_length=limits.DRAIN_REASON_CHARS_MAX,
        description="Reason, for readers of the node.",
        examples=["new power supply"],
    ),
]


@router.get(
    "",
    operation_id="listNodes",
    summary="List nodes, their devices and the jobs on them",
    response_model=Page[NodeView],
    responses=conditional.documented(),
)
def list_nodes(
    request: Request, response: Response, app_state: AppStateDep, grant: ReadsNodes
) -> Page[NodeView] | Response:
    with app_state.database.read_jobs() as session:
        marks, at = nodes.marks(session), now(session)
        lease_seconds = agreed_timings.read(session).lease_seconds
        tag = tags.of_nodes(marks, now=at, lease_seconds=lease_seconds, among=grant.readable)
        if (same := conditional.unchanged(request, tag)) is not None:
            return same
        rows = nodes.all_nodes(session)
        mentions = Mentions(session, jobs_of(rows), among=grant.readable)
    conditional.mark(response, tag)
    return Page(
        items=[node_view(row, mentions, now=at, lease_seconds=lease_seconds) for row in rows]
    )


@router.post(
    "/{name}/drain",
    operation_id="drainNode",
    summary="Stop placing jobs on a node; running jobs continue",
    responses=documented(403, 404, 507),
)
def drain(
    name: NodeName, app_state: AppStateDep, grant: ChangesNodes, reason: DrainReason = None
) -> NodeView:
    why = (reason or "").strip() or None
    drained = partial(nodes.set_draining, draining=True, reason=why, by=grant.actor)
    _change(app_state, grant, Action.NODE_DRAIN, name, drained)
    log.info("a node is drained", node=name, actor=grant.actor)
    return _view(app_state, name, grant)


@router.post(
    "/{name}/resume",
    operation_id="resumeNode",
    summary="Resume a drained or quarantined node",
    responses=documented(403, 404, 507),
)
def resume(name: NodeName, app_state: AppStateDep, grant: ChangesNodes) -> NodeView:
    _change(app_state, grant, Action.NODE_RESUME, name, nodes.resume)
    log.info("a node is resumed", node=name, actor=grant.actor)
    app_state.notifier.publish(WakeScheduler())
    return _view(app_state, name, grant)


@router.delete(
    "/{name}",
    operation_id="removeNode",
    summary="Remove a node that is gone for good",
    description="Its attempts and their use stay. An agent that returns registers it again.",
    status_code=204,
    response_description="Removed.",
    responses=documented(403, 404, 409, 507),
)
def remove(name: NodeName, app_state: AppStateDep, grant: ChangesNodes) -> None:
    with app_state.database.read_jobs() as session:
        lease_seconds = agreed_timings.read(session).lease_seconds
    removed = partial(node_removal.remove, lease_seconds=lease_seconds)
    _change(app_state, grant, Action.NODE_REMOVE, name, removed)
    log.info("a node is removed", node=name, actor=grant.actor)


def _change(
    app_state: AppState, grant: Grant, action: Action, name: str, make: Callable[[Any, str], bool]
) -> None:
    """Change a node. ``make`` returns False if it is not registered."""
    with changes.of(app_state.database, grant.sender, action, target=name) as change:
        before = nodes.exclusion(change.session, name)
        if not make(change.session, name):
            raise _unknown(name)
        change.detail = {"before": before, "after": nodes.exclusion(change.session, name)}


def _view(app_state: AppState, name: str, grant: Grant) -> NodeView:
    """Return the view of one node, for the caller."""
    with app_state.database.read_jobs() as session:
        row, at = nodes.get(session, name), now(session)
        mentions = Mentions(session, jobs_of([row]), among=grant.readable)
        lease_seconds = agreed_timings.read(session).lease_seconds
    return node_view(row, mentions, now=at, lease_seconds=lease_seconds)


def _unknown(name: str) -> LockstepError:
    return LockstepError(
        ErrorCode.NOT_FOUND,
        f"there is no node {name!r}",
        next_step="List all nodes with: lockstep nodes",
    )
