"""Files that a job keeps: the list, the contents of one, and deletion.

Not here: files as responses (``api.http.stored_files``), storing them (``worker.upload.kept``).
"""

from __future__ import annotations

from typing import Annotated, Final

import structlog
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field
from starlette.convertors import PathConvertor, register_url_convertor

from lockstep.api import changes
from lockstep.api.access import ChangesJobs, Reads, ReadsCheckpoints, guarded
from lockstep.api.http import conditional, stored_files
from lockstep.api.http.problems import documented
from lockstep.api.http.stored_files import StoredFile
from lockstep.api.jobs.views import moment, moment_or_none
from lockstep.api.parts import AppStateDep
from lockstep.api.routes.jobs import Reference
from lockstep.domain import limits
from lockstep.domain.audit import Action
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.file_views import KeptFilesPage, KeptFileView, RemovedFiles
from lockstep.storage.attempts import kept_files
from lockstep.storage.attempts.kept_files import ListedFile
from lockstep.storage.jobs import jobs, removal
from lockstep.system.patterns import PatternError, Patterns


class _FilePathConvertor(PathConvertor):
    """A path whose names may have line breaks."""

    regex = "(?s:.*)"


register_url_convertor("file", _FilePathConvertor())
router = APIRouter(prefix="/v1/jobs/{reference}/files", tags=["history"], dependencies=guarded)

log = structlog.get_logger(__name__)

PAGE_SIZE_DEFAULT: Final = 1_000
_Text = Annotated[str, Field(min_length=1, max_length=limits.KEPT_PATH_CHARS_MAX)]
Match = Annotated[
    list[_Text],
    Query(
        max_length=limits.KEPT_PATTERNS_MAX,
        description="Paths, or patterns as in `.gitignore`, of the files; none means all.",
        examples=[["*.pt"]],
    ),
]
FilePath = Annotated[str, Path(description="Path from the list.", max_length=500)]


@router.get(
    "",
    operation_id="listJobFiles",
    summary="List the files that a job keeps",
    response_model=KeptFilesPage,
    responses=conditional.documented(404, 422),
)
def list_files(
    reference: Reference,
    *,
    request: Request,
    response: Response,
    app_state: AppStateDep,
    grant: Reads,
    match: Match = [],  # noqa: B006 -- FastAPI copies it
    limit: Annotated[int, Query(ge=1, le=limits.KEPT_FILES_MAX)] = PAGE_SIZE_DEFAULT,
    cursor: Annotated[
        str | None, Query(max_length=500, description="`next_cursor` of the page before.")
    ] = None,
) -> KeptFilesPage | Response:
    patterns = _patterns(match)
    with app_state.database.read_jobs() as session:
        job = jobs.find(session, reference, among=grant.readable)
        mark = kept_files.mark(session, job.id)
        tag = conditional.tag_of(job.id[-12:], *mark.revisions, mark.as_of)
        if (same := conditional.unchanged(request, tag)) is not None:
            return same
        found = _selected(kept_files.of_job(session, job.id), patterns)
    beyond = [listed for listed in found if cursor is None or listed.name > cursor]
    page = beyond[:limit]
    conditional.mark(response, tag)
    return KeptFilesPage(
        items=[_view(listed) for listed in page],
        next_cursor=page[-1].name if len(beyond) > limit else None,
        total=len(found),
        total_bytes=sum(listed.file.bytes for listed in found),
        as_of=moment_or_none(mark.as_of),
    )


@router.get(
    "/{path:file}",
    operation_id="getJobFile",
    summary="Download a file that a job keeps",
    response_class=StreamingResponse,
    responses=stored_files.described(403, 404, 416),
)
def get_file(
    reference: Reference,
    path: FilePath,
    request: Request,
    app_state: AppStateDep,
    grant: ReadsCheckpoints,
) -> Response:
    with app_state.database.read_jobs() as session:
        job = jobs.find(session, reference, among=grant.readable)
        grant.require(job)
        file = kept_files.named(session, job.id, path)
    if file is None:
        raise _missing(job.id, path, "has no file")
    name = path.rpartition("/")[2]

    def opens() -> stored_files.OpenFile:
        try:
            opened = stored_files.opened(app_state.blobs, file.location)
        except FileNotFoundError:
            raise _missing(job.id, path, "no longer has the contents of") from None
        if opened.bytes != file.bytes:
            opened.closing.close()
            raise _missing(job.id, path, "has damaged contents of")
        return opened

    return stored_files.response(request, StoredFile(name, file.bytes, file.sha256), opens)


@router.delete(
    "",
    operation_id="deleteJobFiles",
    summary="Delete files that a job keeps",
    responses=documented(403, 404, 409, 422, 507),
)
def delete_files(
    reference: Reference, app_state: AppStateDep, grant: ChangesJobs, match: Match
) -> RemovedFiles:
    patterns = _patterns(match)
    job = grant.find_job(app_state, reference)
    with changes.of(app_state.database, grant.sender, Action.JOB_FILES_DELETE) as change:
        removal.lock(change.session, job.id)
        found = _selected(kept_files.of_job(change.session, job.id), patterns)
        removal.check_heirs(change.session, job.id, job.name, among=grant.readable)
        freed = kept_files.remove(change.session, job.id, found, actor=grant.sender.actor)
        change.of(job.id, job.project, name=job.name, files=len(found))
    try:
        app_state.blobs.delete_files(freed)
    except Exception as error:  # noqa: BLE001 - a remote store raises its library's exceptions
        # No row names them. They go with the job.
        log.warning("contents of deleted files stay in the store", job=job.id, error=repr(error))
    return RemovedFiles(files=len(found), bytes=sum(listed.file.bytes for listed in found))


def _patterns(match: list[str]) -> Patterns:
    try:
        return Patterns(match or ["**"])
    except PatternError as error:
        raise LockstepError(
            ErrorCode.INVALID, f"match: {error}", next_step="such as out/ or *.pt"
        ) from None


def _selected(files: list[ListedFile], patterns: Patterns) -> list[ListedFile]:
    names = patterns.select([listed.name for listed in files])
    return [listed for listed in files if listed.name in names]


def _missing(job_id: str, path: str, what: str) -> LockstepError:
    return LockstepError(
        ErrorCode.NOT_FOUND,
        f"job {job_id} {what} {path!r}",
        next_step=f"lockstep files ls {job_id} lists its files",
    )


def _view(listed: ListedFile) -> KeptFileView:
    file = listed.file
    return KeptFileView(
        path=listed.name,
        bytes=file.bytes,
        sha256=file.sha256,
        modified_at=moment(file.modified_at),
        executable=file.executable,
        attempt=file.attempt,
    )
