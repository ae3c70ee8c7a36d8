"""Code archives: uploaded once under the SHA-256 of their bytes, then referenced by jobs.

The body is written to a temporary file and hashed. The archive is checked there, and stored only if
it passes. A rejected upload leaves no files behind.

Not here: the checks (``api.jobs.archives``), stored archives (``api.jobs.uploads``).
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from lockstep.api.access import Submits, guarded
from lockstep.api.http.body import check_media_type, read_bounded
from lockstep.api.http.openapi import ARCHIVE_BODY
from lockstep.api.http.problems import documented
from lockstep.api.jobs.archives import MEDIA_TYPES, StoredArchive, examine
from lockstep.api.jobs.uploads import Uploads
from lockstep.api.parts import AppStateDep
from lockstep.domain import limits
from lockstep.domain.errors import ErrorCode, FieldError, LockstepError
from lockstep.domain.views import UploadView
from lockstep.system.files import FULL

router = APIRouter(prefix="/v1/uploads", tags=["uploads"], dependencies=guarded)

Digest = Annotated[
    str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the archive's bytes, in hex.")
]


@router.put(
    "/{sha256}",
    operation_id="putUpload",
    summary="Upload a code archive",
    status_code=201,
    response_description="The archive is stored.",
    responses={
        200: {"model": UploadView, "description": "The archive was stored before."},
        **documented(403, 413, 415, 507),
    },
    openapi_extra=ARCHIVE_BODY,
)
async def put_upload(
    sha256: Digest, request: Request, response: Response, app_state: AppStateDep, _: Submits
) -> UploadView:
    check_media_type(request, MEDIA_TYPES)
    with tempfile.TemporaryDirectory(prefix="lockstep-upload-") as folder:
        path = FilePath(folder) / "code.tar.gz"
        try:
            digest = await _receive(
                path, read_bounded(request, limits.UPLOAD_BYTES_MAX, "a code archive")
            )
            if digest != sha256:
                raise _wrong_digest(sha256, digest)
            archive, created = await run_in_threadpool(_keep, app_state.uploads, path, sha256)
        except OSError as error:
            raise _disk(error) from error
    response.status_code = 201 if created else 200
    return _view(archive, created=created)


@router.get(
    "/{sha256}",
    operation_id="getUpload",
    summary="Check that a code archive is stored",
    responses=documented(403, 404),
)
def get_upload(sha256: Digest, app_state: AppStateDep, _: Submits) -> UploadView:
    archive = app_state.uploads.find(sha256)
    if archive is None:
        raise LockstepError(
            ErrorCode.NOT_FOUND,
            f"no archive {sha256} was uploaded",
            next_step=f"upload it with PUT /v1/uploads/{sha256}",
        )
    return _view(archive, created=False)


async def _receive(path: FilePath, chunks: AsyncIterator[bytes]) -> str:
    """Write the body to ``path`` and return its SHA-256.

    Threads write and hash: a slow disk must not block other requests.
    """
    hasher = hashlib.sha256()
    with path.open("wb") as file:

        def take(block: bytes) -> None:
            hasher.update(block)
            file.write(block)

        waiting = bytearray()
        async for chunk in chunks:
            waiting += chunk
            if len(waiting) >= _BLOCK_BYTES:
                await run_in_threadpool(take, bytes(waiting))
                waiting.clear()
        await run_in_threadpool(take, bytes(waiting))
    return hasher.hexdigest()


_BLOCK_BYTES = 1024 * 1024


def _keep(uploads: Uploads, path: FilePath, sha256: str) -> tuple[StoredArchive, bool]:
    present = uploads.find(sha256)
    if present is not None:
        return present, False
    archive = examine(path, sha256)
    uploads.keep(path, archive)
    return archive, True


def _view(archive: StoredArchive, *, created: bool) -> UploadView:
    return UploadView(
        sha256=archive.sha256, bytes=archive.bytes, files=archive.files, created=created
    )


def _wrong_digest(asked: str, got: str) -> LockstepError:
    message = f"the body's SHA-256 is {got}; expected {asked} from the address; nothing was kept"
    step = "send the unchanged bytes of the archive to the address with their digest"
    return LockstepError(
        ErrorCode.INVALID,
        message,
        next_step=step,
        fields=(FieldError("/path/sha256", message, asked, step),),
    )


def _disk(error: OSError) -> LockstepError:
    """Return the error for a full disk of the api or the store; raise any other ``error`` again.

    Other errors of the api's own files are defects.
    """
    if error.errno in FULL:
        return LockstepError(
            ErrorCode.STORAGE_FULL,
            "the disk for code archives is full; nothing was kept",
            next_step="free space in the store and in the temporary folder, then send it again",
        )
    raise error
