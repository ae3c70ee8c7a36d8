"""Transfer of a job's code to the node.

``upload``: the archive is fetched from the store, its digest is verified, and it is unpacked in one
pass, file by file, by the rules of ``domain.archive_tree``. The api checked the archive by the same
rules at the upload; it is checked again because other programs can write to the store.

``path``: the folder is on the node already and is used in place through a symbolic link. A copy was
rejected: such folders are on a shared mount and often hold the data set, too; and a user who names
a folder of the node expects the script's output files in it afterwards.

``git``: the commit that was resolved at the submit is fetched from its repository.

Not here: git itself (``storage.objects.repositories``).
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lockstep.domain import limits
from lockstep.domain.archive_tree import ArchiveTree, UnsafeMemberError
from lockstep.domain.spec.job import GitCode, PathCode, UploadedCode
from lockstep.storage.objects import repositories
from lockstep.storage.objects.blobs import BlobStore
from lockstep.system.files import replacing

_FETCH: Final = ", which is not fetched; keep it on the nodes, or send the folder with --code DIR"
_PULL: Final = "; run `git lfs pull` in the folder, and submit it again"


class CodeUnavailableError(Exception):
    """The code cannot be brought, and trying again on this node would not help.

    The message is for the job's owner.
    """


def bring(code: UploadedCode | GitCode | PathCode | None, target: Path, blobs: BlobStore) -> str:
    """Put the job's code at ``target``. Safe to repeat after an interrupted call.

    Return a clause about content that git keeps elsewhere, or an empty text.

    Raises
    ------
    CodeUnavailableError
        If the archive is missing, damaged, too large or unsafe, or the folder or the commit does
        not exist.
    OSError
        If the store or the repository does not answer; temporary.
    """
    if not target.exists():
        _put(code, target, blobs)
    if code is None or isinstance(code, PathCode):
        return ""
    missing = repositories.elsewhere(target)
    next_step = _FETCH if isinstance(code, GitCode) else _PULL
    return f"{missing}{next_step}" if missing else ""


def _put(code: UploadedCode | GitCode | PathCode | None, target: Path, blobs: BlobStore) -> None:
    if code is None:
        # The ranks' working directory all the same: in the attempt's own folder a script's
        # ``result.json`` or ``logs/``
        # would be taken for the launcher's.
        target.mkdir()
    elif isinstance(code, UploadedCode):
        _bring_upload(code, target, blobs)
    elif isinstance(code, PathCode):
        if not Path(code.path).is_dir():
            raise CodeUnavailableError(f"there is no folder {code.path} on this node")
        target.unlink(missing_ok=True)  # a link to a folder that was not there before
        target.symlink_to(code.path, target_is_directory=True)
    else:
        try:
            repositories.bring(code.git, code.ref, target)
        except repositories.RepositoryError as error:
            raise CodeUnavailableError(str(error)) from None


def _bring_upload(code: UploadedCode, target: Path, blobs: BlobStore) -> None:
    archive = target.with_name("code.tar.gz")
    key = f"uploads/{code.upload}.tar.gz"
    try:
        if not blobs.exists(key):
            raise CodeUnavailableError(
                f"the uploaded code {code.upload[:12]}… is no longer in the store"
            )
        blobs.get_file(key, archive)
        found = _sha256(archive)
        if found != code.upload:
            raise CodeUnavailableError(
                f"the uploaded code is damaged: sha256 {found} instead of {code.upload}"
            )
        with replacing(target) as partial:
            unpack(archive, partial)
    finally:
        archive.unlink(missing_ok=True)


def unpack(archive: Path, target: Path) -> None:
    """Unpack a ``.tar.gz`` into the new folder ``target``.

    Raises
    ------
    CodeUnavailableError
        If it is no such archive, holds more than the limits allow, or a member that leads out of
        ``target``.
    """
    target.mkdir()
    try:
        with tarfile.open(archive, "r:gz") as opened:
            # Members are read one by one: the headers of a bomb exceed the limit before its bytes
            # are written.
            for parts, member in _bounded(opened):
                _unpack_member(opened, member, target.joinpath(*parts))
    except (tarfile.TarError, EOFError, UnsafeMemberError, UnicodeEncodeError) as error:
        raise CodeUnavailableError(f"the uploaded code cannot be unpacked: {error}") from None


def _unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """Write a member that the archive's tree has accepted. Owners and set-id bits are ignored."""
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        path.symlink_to(member.linkname)
        return
    source = archive.extractfile(member)
    assert source is not None, "a regular file has contents"
    with source, path.open("xb") as file:
        shutil.copyfileobj(source, file)
    path.chmod(0o700 if member.mode & 0o100 else 0o600)


def _bounded(archive: tarfile.TarFile) -> Iterator[tuple[tuple[str, ...], tarfile.TarInfo]]:
    """The members and the parts of their names, each checked before it is unpacked."""
    total_bytes = 0
    tree = ArchiveTree()
    for files, member in enumerate(archive, start=1):
        total_bytes += member.size
        if files > limits.UPLOAD_FILES_MAX:
            raise CodeUnavailableError(
                f"the uploaded code has more than {limits.UPLOAD_FILES_MAX} files"
            )
        if total_bytes > limits.UPLOAD_UNPACKED_BYTES_MAX:
            raise CodeUnavailableError(
                f"the uploaded code is larger than {limits.UPLOAD_UNPACKED_BYTES_MAX} bytes "
                f"unpacked"
            )
        yield tree.add(member), member
    tree.check()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
