"""A submit, from a decoded document to a row.

The order matters: an idempotency key is looked at before anything that may have changed since the first time (the code
archive, the nodes), so a repeat answers with the job even then. Those checks run inside the transaction, which a refusal
rolls back; the blob store is asked before it, because nothing slow may happen inside.

Not here: HTTP (``api.routes.jobs``), and what a job without room waits for (``scheduler``).
"""

from __future__ import annotations

from collections.abc import Iterator

from api.archives import check_names
from api.body import JsonBody
from api.uploads import Uploads
from api.views import waits_because
from domain.errors import FieldError
from domain.plan import plan_of
from domain.reading import invalid, read_spec
from domain.spec import JobSpec, UploadedCode
from storage import jobs, nodes
from storage.database import Database
from storage.tables import JobRow


def submit(
    database: Database, uploads: Uploads, body: JsonBody, *, actor: str, idempotency_key: str | None
) -> tuple[JobRow, bool, str]:
    """Write a job.

    Returns
    -------
    (JobRow, bool, str)
        The job, whether it was written now, and why it waits.

    Raises
    ------
    LockstepError
        When the document is refused; nothing is written then.
    """
    spec = read_spec(body.document)
    code_errors = tuple(check_code(spec, uploads))
    with database.jobs() as session:
        job, created = jobs.create(
            session,
            document=body.document,
            spec=spec,
            plan=plan_of(spec),
            actor=actor,
            idempotency=None if idempotency_key is None else (idempotency_key, body.fingerprint),
        )
        largest = nodes.largest_ever(session)
        if created:
            errors = (*check_capacity(spec, largest), *code_errors)
            if errors:
                raise invalid(errors)
    return job, created, waits_because(largest)


def check_capacity(spec: JobSpec, largest: int) -> Iterator[FieldError]:
    """Whether the job could ever start. With no node registered yet nobody can know: then it waits.

    Parameters
    ----------
    spec : JobSpec
    largest : int
        Most devices that all nodes ever had together; 0 when none was ever registered.
    """
    asked = spec.device_count()
    if largest and asked > largest:
        yield FieldError(
            "/resources/gpus",
            f"{asked} devices are asked for, and all nodes ever registered had {largest} together: it could never start",
            asked,
            f"ask for at most {largest}, or register more nodes first",
        )


def check_code(spec: JobSpec, uploads: Uploads) -> Iterator[FieldError]:
    """Whether the archive that the job names is there and fits its kind."""
    if not isinstance(spec.code, UploadedCode):
        return
    archive = uploads.find(spec.code.upload)
    if archive is None:
        yield FieldError(
            "/code/upload",
            "no archive of this digest was uploaded",
            spec.code.upload,
            "send it first with PUT /v1/uploads/{sha256}, or submit with: lockstep submit --code DIR",
        )
        return
    yield from check_names(archive, spec)
