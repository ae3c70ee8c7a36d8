"""Blob store: code archives and checkpoints, in a folder or behind an fsspec URL.

A blob is whole or absent: it is written under a temporary name beside its target and then renamed.
A checkpoint is a copy of a job's files, and a fetched blob is a copy again, because a job may write
to both. Behind a URL a tree's ``manifest.json`` is sent last, and a tree without it counts as
absent.

A stored blob without a row is not published: rows are in ``storage.attempts.checkpoints``.

Not here: packing and unpacking of archives, and verification of digests (``api``, ``worker``).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import fsspec
from fsspec.registry import known_implementations

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.attempt import MANIFEST
from lockstep.domain.life.manifest import Manifest
from lockstep.storage.objects.unpublished import (
    UnsafeCheckpointError,
    copy_checked,
    manifest_in,
    send_checked,
    synced,
    write_published,
)
from lockstep.system.files import replacing, sync_file_system, try_to_write, write_atomically
from lockstep.system.untrusted import Untrusted, copied

_KEY: Final = re.compile(r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")
"""Parts of letters and digits that do not begin with a dot: no key can lead out of the store."""

FREE_BYTES_MIN: Final = 512 * 1024 * 1024
"""Left on the disk of a local store by files of jobs: checkpoints and databases may be there."""
SYNCED_SINGLY_MAX: Final = 64
"""More files are synced with all others of the disk at once: each of them costs milliseconds."""
FILES: Final = "files"
"""Folder of the contents of kept files: ``files/<job id>/<assignment id>/<name>``."""


class BlobStore:
    """A store of files by key, such as ``jobs/<job id>/<attempt>/step-00000050``.

    Parameters
    ----------
    url : str
        An absolute folder, or an fsspec URL (``file:///…``, ``s3://bucket/prefix``,
        ``memory://…``).

    Raises
    ------
    LockstepError
        If no such kind of store exists, or the package for it is not installed.
    """

    def __init__(self, url: str) -> None:
        if "://" not in url and not Path(url).is_absolute():
            raise ValueError(
                f"expected an absolute folder or a URL such as s3://bucket/prefix, got {url!r}"
            )
        self._files: Any
        self._files, root = _opened(url)
        self._root = str(root).rstrip("/")
        self._local = "file" in _protocols(self._files)

    def location(self, key: str) -> str:
        """Return the location of a key for messages: a path or a URL."""
        path = self._path(key)
        return path if self._local else str(self._files.unstrip_protocol(path))

    def create(self) -> None:
        """Make the folder of a local store, if it is missing. A remote store has none.

        Raises
        ------
        OSError
            If it cannot be made.
        """
        if self._local:
            Path(self._root).mkdir(parents=True, exist_ok=True)

    def trouble(self) -> str:
        """Write and delete an empty file; return why that failed, empty when it did not.

        May hang with the file system.

        A missing folder is not made: where a network file system is not mounted, that would write
        beside it.
        """
        try:
            if self._local:
                try_to_write(self._root)
            else:
                name = f"{self._root}/.probe-{uuid.uuid4().hex}"
                self._files.pipe_file(name, b"")
                self._files.rm_file(name)
        except OSError as error:
            return f"{self._root} cannot be written: {error.strerror or error}"
        return ""

    def exists(self, key: str) -> bool:
        """Return whether a file or a whole tree exists."""
        path = self._path(key)
        if self._local:
            return Path(path).exists()
        return bool(self._files.isfile(path) or self._files.isfile(f"{path}/{MANIFEST}"))

    def put_file(self, path: Path, key: str) -> None:
        """Store a file. One that is there already under the same key is replaced."""
        target = self._path(key)
        if not self._local:
            self._files.put_file(str(path), target)
            return
        with replacing(_in_a_folder(target)) as temporary:
            _link_or_copy(path, temporary)

    def get_file(self, key: str, path: Path) -> None:
        """Fetch a file.

        Raises
        ------
        FileNotFoundError
            If it is not there.
        """
        with replacing(_in_a_folder(path)) as temporary:
            self._files.get_file(self._path(key), str(temporary))

    def read(self, key: str) -> bytes:
        """A small file's bytes.

        Raises
        ------
        FileNotFoundError
            If it is not there.
        """
        found: bytes = self._files.cat_file(self._path(key))
        return found

    def write(self, key: str, content: bytes) -> None:
        """Store a small file. One that is there already under the same key is replaced."""
        target = self._path(key)
        if not self._local:
            self._files.pipe_file(target, content)
            return
        write_atomically(_in_a_folder(target), content)

    def find(self, key: str) -> list[str]:
        """Return the keys of all files below a key, in order; none where nothing is there."""
        self._files.invalidate_cache()  # Other programs write to the store as well.
        start = len(self._root) + 1
        return sorted(
            found
            for path in self._files.find(self._path(key))
            if _KEY.fullmatch(found := str(path)[start:])
        )

    def open(self, key: str) -> AbstractContextManager[BinaryIO]:
        """A file, to be read from any place; a remote one is fetched as it is read.

        Raises
        ------
        FileNotFoundError
            If it is not there.
        """
        opened: AbstractContextManager[BinaryIO] = self._files.open(self._path(key), "rb")
        return opened

    def put_checkpoint(self, files: Untrusted, folder: str, key: str, sha256: str) -> None:
        """Store a checkpoint from a folder that a job writes, as its manifest describes it.

        Each file is cloned or copied and hashed in one pass, so the stored one does not change with
        the job's. The same whole checkpoint that is there already under this key is left as it is.
        Another one is replaced: it is there when the database was set back and a number of an
        attempt is used again.

        Parameters
        ----------
        files : Untrusted
        folder, key : str
        sha256 : str
            Of the manifest, as it was reported.

        Raises
        ------
        UnsafeCheckpointError
            If the folder has something else than the files of the manifest.
        Exception
            From the store's library, if the store does not answer.
        """
        stored = self._manifest_of(key)
        if stored is not None and hashlib.sha256(stored).hexdigest() == sha256:
            return
        text, manifest = manifest_in(files, folder, sha256)
        self.delete_tree(key)
        if not self._local:
            self._send_checkpoint(files, folder, key, manifest)
            self._files.pipe_file(f"{self._path(key)}/{MANIFEST}", text)
            return
        try:
            with replacing(_in_a_folder(self._path(key))) as temporary:
                temporary.mkdir()
                for name, expected in manifest.files.items():
                    copy_checked(files, f"{folder}/{name}", temporary / name, expected)
                write_published(temporary / MANIFEST, text)
                synced(temporary)
            synced(Path(self._path(key)).parent)
        except UnsafeCheckpointError:
            raise
        except OSError:
            # Of two that store the same checkpoint at once one moves it; the other finds it there.
            if not self.exists(key):
                raise

    def _send_checkpoint(self, files: Untrusted, folder: str, key: str, manifest: Manifest) -> None:
        for name, expected in manifest.files.items():
            target = f"{self._path(key)}/{name}"
            try:
                with self._files.open(target, "wb") as sink:
                    send_checked(files, f"{folder}/{name}", sink, expected)
            except UnsafeCheckpointError:
                self.delete_tree(key)
                raise

    def has_room(self, bytes: int) -> bool:  # noqa: A002 -- the name it has everywhere else
        """Return whether a local store's disk has space for so much and for the service."""
        if not self._local:
            return True
        place = Path(self._root)
        while not place.exists():  # The first file makes the folder.
            place = place.parent
        return shutil.disk_usage(place).free >= bytes + FREE_BYTES_MIN

    def put_copy(
        self, files: Untrusted, name: str, key: str, *, most: int, cut: bool = False
    ) -> tuple[int, str]:
        """Store a file that a job may change meanwhile; return the bytes and SHA-256 of the copy.

        The key must be new, and counts only once a row names it. The copy survives a power cut
        after :meth:`sync`.

        Raises
        ------
        UnsafeFileError
            Also if there are more than ``most`` bytes, unless the rest is to be ``cut``.
        FileNotFoundError
        Exception
            From the store's library, if the store does not answer.
        """
        target = self._path(key)
        try:
            if self._local:
                return files.copy(name, _in_a_folder(target), most=most, cut=cut, sync=False)
            with files.open(name) as source, self._files.open(target, "wb") as sink:
                return copied(source, sink, name, most=most, cut=cut)
        except BaseException:
            with suppress(Exception):
                self.delete_files([key])
            raise

    def sync(self, keys: Iterable[str]) -> None:
        """Sync stored files and their folders to the disk. A remote store has done it."""
        paths = [Path(self._path(key)) for key in keys] if self._local else []
        if len(paths) > SYNCED_SINGLY_MAX:
            sync_file_system(Path(self._root))
            return
        for path in [*paths, *sorted({path.parent for path in paths})]:
            synced(path)

    def delete_files(self, keys: Iterable[str]) -> None:
        """Delete files; one that is not there is deleted already."""
        for key in keys:
            with suppress(FileNotFoundError):
                self._files.rm_file(self._path(key))

    def get_tree(self, key: str, folder: Path) -> None:
        """Fetch a folder; ``folder`` must not exist yet, and exists only once it is whole.

        Raises
        ------
        FileNotFoundError
            If it is not there.
        """
        if not self.exists(key):
            raise FileNotFoundError(f"{self.location(key)} is not in the store")
        source = self._path(key)
        with replacing(_in_a_folder(folder)) as temporary:
            for path in self._files.find(source):
                file = temporary / str(path)[len(source) :].lstrip("/")
                self._files.get_file(str(path), str(_in_a_folder(file)))

    def delete_tree(self, key: str) -> None:
        """Delete a file or a tree; one that is not there is deleted already."""
        path = self._path(key)
        # A reader that comes meanwhile must not take half a tree for a whole one.
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{path}/{MANIFEST}")
        with suppress(FileNotFoundError):
            self._files.rm(path, recursive=True)

    def _manifest_of(self, key: str) -> bytes | None:
        try:
            return self.read(f"{key}/{MANIFEST}")
        except FileNotFoundError:
            return None

    def _path(self, key: str) -> str:
        if not _KEY.fullmatch(key):
            raise ValueError(
                f"{key!r} is not a key: expected parts of letters, digits, '.', '_' and '-' that "
                "do not begin with a dot"
            )
        return f"{self._root}/{key}"


def _protocols(files: Any) -> tuple[str, ...]:
    protocol = files.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _in_a_folder(target: str | Path) -> Path:
    """The path, whose folder is made if it is missing."""
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _link_or_copy(source: str | Path, target: str | Path) -> None:
    """A second name for the same file where the file system allows it, a copy elsewhere."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    scheme = url.partition("://")[0] if "://" in url else "file"
    try:
        files, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        package = str(known_implementations.get(scheme, {}).get("class", "")).partition(".")[0]
        raise LockstepError(
            ErrorCode.INVALID,
            f"LOCKSTEP_STORE: a {scheme}:// store needs a package that is not installed here: "
            f"{error}",
            next_step=f"pip install '{package or scheme}' where the api and the agents run",
        ) from None
    except ValueError as error:
        raise LockstepError(
            ErrorCode.INVALID,
            f"LOCKSTEP_STORE: {error}",
            next_step="use an absolute folder, or s3://bucket/prefix",
        ) from None
    return files, str(root)
