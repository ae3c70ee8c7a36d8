"""Checkpoints of a job: the list, the content of one, and its files.

Not here: files as responses (``api.http.stored_files``), retention (``domain.life.retention``),
writing checkpoints (``engine``, ``worker``).
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from lockstep.api.access import Grant, Reads, ReadsCheckpoints, guarded
from lockstep.api.http import conditional, stored_files
from lockstep.api.http.problems import documented
from lockstep.api.http.stored_files import OpenFile, StoredFile
from lockstep.api.jobs.views import checkpoint_view
from lockstep.api.parts import AppState, AppStateDep
from lockstep.api.routes.jobs import Reference
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.attempt import MANIFEST
from lockstep.domain.life.manifest import Manifest, ManifestError, read_manifest
from lockstep.domain.views import CheckpointDetail, CheckpointFile, CheckpointView, Page
from lockstep.storage.attempts import checkpoints
from lockstep.storage.db.tables import CheckpointRow
from lockstep.storage.jobs import jobs

router = APIRouter(
    prefix="/v1/jobs/{reference}/checkpoints", tags=["history"], dependencies=guarded
)

Which = Annotated[
    str,
    Path(
        pattern=r"^([0-9]{1,10}|best|last)$",
        description="A step, `last` (the newest) or `best` (for jobs with `keep_best`).",
        examples=["last"],
    ),
]
Attempt = Annotated[
    int | None,
    Query(
        ge=1,
        lt=2**31,
        description="Attempt that saved it; two attempts may have saved the same step.",
    ),
]
Name = Annotated[str, Path(description="Name from `files`.", max_length=200, examples=[MANIFEST])]


@router.get(
    "",
    operation_id="listJobCheckpoints",
    summary="List a job's published checkpoints",
    response_model=Page[CheckpointView],
    responses=conditional.documented(404),
)
def list_checkpoints(
    reference: Reference,
    request: Request,
    response: Response,
    app_state: AppStateDep,
    grant: Reads,
) -> Page[CheckpointView] | Response:
    with app_state.database.read_jobs() as session:
        job = jobs.find(session, reference, among=grant.readable)
        tag = conditional.tag_of(job.id[-12:], conditional.digest(checkpoints.ids(session, job.id)))
        if (same := conditional.unchanged(request, tag)) is not None:
            return same
        rows = checkpoints.of_job(session, job.id)
    best = checkpoints.best(rows)
    conditional.mark(response, tag)
    return Page(items=[checkpoint_view(row, app_state.blobs, best=row is best) for row in rows])


@router.get(
    "/{which}",
    operation_id="getJobCheckpoint",
    summary="Read a checkpoint and the list of its files",
    responses=documented(404),
)
def get_checkpoint(
    reference: Reference,
    which: Which,
    app_state: AppStateDep,
    grant: Reads,
    attempt: Attempt = None,
) -> CheckpointDetail:
    row, best = _find(app_state, grant, reference, which, attempt)
    text, manifest = _manifest(app_state, row)
    files = [
        CheckpointFile(name=name, bytes=file.bytes, sha256=file.sha256)
        for name, file in manifest.files.items()
    ]
    files.append(CheckpointFile(name=MANIFEST, bytes=len(text), sha256=row.sha256))
    view = checkpoint_view(row, app_state.blobs, best=best)
    return CheckpointDetail(**view.model_dump(), files=files)


@router.get(
    "/{which}/files/{name}",
    operation_id="getJobCheckpointFile",
    summary="Download a file of a checkpoint",
    response_class=StreamingResponse,
    responses=stored_files.described(403, 404, 416),
)
def get_checkpoint_file(
    reference: Reference,
    which: Which,
    name: Name,
    *,
    request: Request,
    app_state: AppStateDep,
    grant: ReadsCheckpoints,
    attempt: Attempt = None,
) -> Response:
    row, _ = _find(app_state, grant, reference, which, attempt)
    text, manifest = _manifest(app_state, row)
    file = manifest.files.get(name)
    if file is None and name != MANIFEST:
        raise LockstepError(
            ErrorCode.NOT_FOUND,
            f"the checkpoint of step {row.step} has no file {name!r}",
            next_step=f"it has {', '.join([*manifest.files, MANIFEST])}",
        )
    size, sha256 = (len(text), row.sha256) if file is None else (file.bytes, file.sha256)
    stored = StoredFile(name, size, sha256)
    return stored_files.response(request, stored, lambda: _opened(app_state, row, name, size))


def _find(
    app_state: AppState, grant: Grant, reference: str, which: str, attempt: int | None
) -> tuple[CheckpointRow, bool]:
    """Return the checkpoint, and True if it is the job's best."""
    with app_state.database.read_jobs() as session:
        job = jobs.find(session, reference, among=grant.readable)
        grant.require(job)
        rows = checkpoints.of_job(session, job.id)
    asked: int | Literal["best"] | None = (
        None if which == "last" else "best" if which == "best" else int(which)
    )
    best = checkpoints.best(rows)
    row = checkpoints.pick([each for each in rows if attempt in {None, each.attempt}], asked)
    if row is None:
        steps = ", ".join(str(each.step) for each in rows)
        what = {
            "last": "no checkpoint",
            "best": "no best checkpoint: keep_best is not set, or nothing was measured yet",
        }
        raise LockstepError(
            ErrorCode.NOT_FOUND,
            f"job {job.id} has {what.get(which, f'no checkpoint of step {which}')}",
            next_step=f"it has checkpoints of the steps {steps}"
            if steps
            else "it has no checkpoint yet",
        )
    return row, row is best


def _manifest(app_state: AppState, row: CheckpointRow) -> tuple[bytes, Manifest]:
    try:
        text = app_state.blobs.read(f"{row.location}/{MANIFEST}")
        if hashlib.sha256(text).hexdigest() != row.sha256:
            raise _damaged(row, f"its {MANIFEST} differs from the published one")
        return text, read_manifest(text)
    except FileNotFoundError:
        raise _gone(row, MANIFEST) from None
    except ManifestError as error:
        raise _damaged(row, f"its {MANIFEST} {error}") from None


def _opened(app_state: AppState, row: CheckpointRow, name: str, size: int) -> OpenFile:
    try:
        file = stored_files.opened(app_state.blobs, f"{row.location}/{name}")
    except FileNotFoundError:
        raise _gone(row, name) from None
    if file.bytes != size:
        file.closing.close()
        raise _damaged(row, f"its {name} has {file.bytes} bytes; the manifest has {size}")
    return file


def _damaged(row: CheckpointRow, why: str) -> LockstepError:
    return LockstepError(
        ErrorCode.NOT_FOUND,
        f"the checkpoint of step {row.step} is damaged in the store: {why}",
        next_step="use another checkpoint; lockstep ckpt ls lists them",
    )


def _gone(row: CheckpointRow, name: str) -> LockstepError:
    return LockstepError(
        ErrorCode.NOT_FOUND,
        f"{name} of the checkpoint of step {row.step} is no longer in the store",
        next_step="it may have been pruned; lockstep ckpt ls lists the checkpoints",
    )
