"""References to jobs: ids, names and ``last``, in addresses and as the id of one job.

A request that changes a job names its id. The server may get such a request twice, and a name or
``last`` may mean another job by then.

Not here: the requests (``client.api``), and which job a reference means (``storage.jobs.jobs``).
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from lockstep.client.errors import NotFoundError
from lockstep.client.transport import Transport
from lockstep.domain.views import JobView, Problem

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def job_path(reference: str, rest: str = "") -> str:
    """Return the address of a job, or one below it."""
    # /v1/jobs/plan is another address, and no job has this name; the others are no part of one.
    if reference in ("", ".", "..", "plan") or "/" in reference:
        detail = f"there is no job {reference!r}"
        raise NotFoundError(
            Problem(
                title="Not found",
                status=404,
                detail=detail,
                code="not_found",
                next_step="List all jobs with: lockstep ps -a.",
            )
        )
    return f"/v1/jobs/{quote(reference, safe='')}{rest}"


def job_id(transport: Transport, reference: str) -> str:
    """Return the id of a job. A whole id is not looked up."""
    if _ID.fullmatch(reference):
        return reference
    return transport.get(job_path(reference), JobView).id
