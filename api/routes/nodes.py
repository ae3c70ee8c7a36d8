"""Nodes and their devices.

Not here: who gets them (``scheduler``).
"""

from __future__ import annotations

from fastapi import APIRouter

from api.parts import Here, guarded
from api.problems import documented
from api.views import node_view
from domain.views import NodeView, Page
from storage import nodes
from storage.clock import now

router = APIRouter(prefix="/v1/nodes", tags=["nodes"], dependencies=guarded)


@router.get(
    "", operation_id="listNodes", summary="List nodes, their devices and who holds them", responses=documented()
)
def list_nodes(here: Here) -> Page[NodeView]:
    with here.database.read_jobs() as session:
        rows = nodes.all_nodes(session)
        at = now(session)
    return Page(items=[node_view(row, now=at, lease_seconds=here.lease_seconds) for row in rows])
