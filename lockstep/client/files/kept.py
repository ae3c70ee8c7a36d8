"""Kept files of a job on this machine: each whole or not at all, and never outside its folder.

The paths come from the server, which has them from the job. Each file is verified on arrival and
then gets its name. One that is there with the same contents is not fetched again, so the same call
goes on where another one ended.

Not here: the requests (``client.job_files``).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

from lockstep.client.errors import ChangedError, ClientError, NotFoundError, UsageError
from lockstep.client.files.checkpoints import DigestMismatchError
from lockstep.system.files import replacing

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.file_views import KeptFileView

ROUNDS: Final = 3
"""Lists that are read of a job that changes its files while they are fetched."""
_MAY_PASS: Final = (ChangedError, DigestMismatchError, NotFoundError)


class UnsafePathError(ClientError):
    """A path of the list that leads out of the folder."""


class FetchedFiles(NamedTuple):
    """Result of a fetch."""

    written: int
    unchanged: int
    """Files that were there with the same contents."""


def fetch(
    client: Client,
    job_id: str,
    match: Sequence[str],
    folder: Path,
    *,
    begins: Callable[[KeptFileView], object],
    wrote: Callable[[Path], object],
) -> FetchedFiles:
    """Fetch the matching files of a job. A local file that differs is replaced.

    Raises
    ------
    UnsafePathError
        Before the first file is fetched.
    ClientError
        The first failure, after all other files are fetched.
    """
    done: dict[str, str] = {}
    written: set[str] = set()
    for rounds_left in reversed(range(ROUNDS)):
        files = client.files(job_id, match).items
        failures: list[ClientError] = []
        places = {file.path: place_of(folder, file.path) for file in files}
        for file in files:
            if done.get(file.path) == file.sha256:
                continue
            place = places[file.path]
            try:
                if not _has(place, file):
                    begins(file)
                    _fetch(client, job_id, file, place)
                    wrote(place)
                    written.add(file.path)
                done[file.path] = file.sha256
            except _MAY_PASS as failure:
                failures.append(failure)
        if not failures:
            break
        if not rounds_left:
            raise failures[0]
    return FetchedFiles(len(written), len(done) - len(written))


def place_of(folder: Path, name: str) -> Path:
    """Return the place of a listed path below a folder.

    Raises
    ------
    UnsafePathError
        If it would lead out of the folder, by its parts or through a link.
    """
    path = PurePath(name)
    parts = path.parts
    if path.anchor or parts != tuple(name.split("/")) or ".." in parts or "\0" in name:
        raise UnsafePathError(
            f"the server lists {name!r}, which is not a path below {folder}; it was not fetched",
            next_step="name the other files, and report this one to the server's administrator",
        )
    place = folder
    for part in parts:
        place /= part
        if place.is_symlink():
            raise UnsafePathError(
                f"{place} is a link, and nothing is written through a link",
                next_step="remove it, or give another folder with -o",
            )
    return place


def verified(
    client: Client, job_id: str, file: KeptFileView, take: Callable[[bytes], object]
) -> None:
    """Read a file from the server and compare its digest; ``take`` gets its bytes.

    Raises
    ------
    DigestMismatchError
        After all bytes, if they are not those of the list.
    """
    digest = hashlib.sha256()

    def takes(block: bytes) -> None:
        digest.update(block)
        take(block)

    client.read_file(job_id, file, takes)
    if digest.hexdigest() != file.sha256:
        raise DigestMismatchError(
            f"{file.path!r} arrived damaged: its SHA-256 differs from the list",
            next_step="request it again",
        )


def _fetch(client: Client, job_id: str, file: KeptFileView, place: Path) -> None:
    if place.is_dir():
        raise UsageError(
            f"{place} is a folder here and a file of the job",
            next_step="remove it, or give another folder with -o",
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    with replacing(place) as temporary:
        with temporary.open("wb") as out:
            verified(client, job_id, file, out.write)
        if file.executable:
            temporary.chmod(temporary.stat().st_mode | 0o100)
        modified = file.modified_at.timestamp()
        os.utime(temporary, (modified, modified))


def _has(place: Path, file: KeptFileView) -> bool:
    """Return whether the file is there with these contents."""
    if not place.is_file() or place.stat().st_size != file.bytes:
        return False
    with place.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
