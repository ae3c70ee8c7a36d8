"""Cloning: submit the spec of a job again, with some values changed.

Not here: the document of a clone (``api.jobs.cloning``), other submits (``api.routes.jobs``).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response

from lockstep.api.access import Submits, guarded
from lockstep.api.http.body import decode, read_json_bytes
from lockstep.api.http.problems import documented
from lockstep.api.jobs import cloning, submitting
from lockstep.api.parts import AppStateDep
from lockstep.api.routes.jobs import IdempotencyKey, Reference, answer_submit
from lockstep.domain.views import JobView
from lockstep.storage.jobs import jobs

router = APIRouter(prefix="/v1", tags=["jobs"], dependencies=guarded)

BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": False,
        "description": "Values to change. An empty body or `{}` submits the same spec again.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "set": {
                            "type": "object",
                            "description": "New value for each JSON pointer (RFC 6901) into the job's spec. "
                            "A value replaces the old one entirely, also if it is null; "
                            "missing parent objects are created.",
                            "additionalProperties": True,
                        }
                    },
                },
                "examples": {
                    "changed": {
                        "summary": "More steps and another learning rate",
                        "value": {"set": {"/train/steps": 400, "/train/optimizer/lr": 1e-4}},
                    },
                    "same": {"summary": "The same again", "value": {}},
                },
            }
        },
    }
}


async def read_changes(request: Request) -> dict[str, Any]:
    """Read the changed values from the body (a dependency)."""
    raw = await read_json_bytes(request)
    return cloning.changes_of(decode(raw, next_step=cloning.EXAMPLE) if raw.strip() else {})


@router.post(
    "/jobs/{reference}/clone",
    operation_id="cloneJob",
    summary="Submit a job's spec again, with changes",
    description=(
        "The new job is validated like every job; `errors` point into its spec. It uses the same "
        "code archive."
    ),
    status_code=201,
    response_model=JobView,
    response_description="The new job, queued.",
    responses={
        200: {
            "model": JobView,
            "description": "Repeated request: the job of the first one, with `Idempotent-Replay: true`.",
        },
        **documented(400, 403, 404, 409, 413, 415, 507),
    },
    openapi_extra=BODY,
)
def clone(
    *,
    reference: Reference,
    changes: Annotated[dict[str, Any], Depends(read_changes)],
    app_state: AppStateDep,
    grant: Submits,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    with app_state.database.read_jobs() as session:
        source = jobs.find(session, reference, among=grant.readable)
    body = cloning.cloned(source, changes)
    submitted = submitting.submit(
        app_state.database,
        app_state.uploads,
        body._replace(fingerprint=cloning.compared(reference, changes)),
        sender=grant.sender,
        rights=grant.caller.rights,
        service=app_state.limits,
        idempotency_key=idempotency_key,
        origin=cloning.sentence(source, changes),
    )
    return answer_submit(submitted, app_state, grant)
