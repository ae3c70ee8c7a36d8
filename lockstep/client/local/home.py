"""Folder of a local service, and its discovery by other programs.

======================  ==============================================================================
``lock``                held (``flock``) by the ``lockstep up`` that runs here; the kernel frees it when that dies
``run.json``            ``RunFile``: the address, for the client; removed when the service goes down in order
``token``               the bearer token, mode 0600, written by the api
``jobs.db, series.db``  the databases
``store/``              code archives and checkpoints
``node/``               the attempts' folders of this machine's node
``broker/``             the broker's data
``logs/NAME.log``       log of each program
======================  ==============================================================================

Not here: the writers of the databases, and the processes (``client.local.supervisor``).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from lockstep.client.errors import ClientError, UsageError
from lockstep.system.files import replacing, try_to_write

SOCKET_PATH_BYTES_MAX: Final = 100
"""The kernel's limit is 107; the rest is left for suffixes."""

FREE_BYTES_MIN: Final = 8 * 2**20
"""On the home's disk, for a start: logs, and SQLite's write-ahead logs."""


class RunFile(BaseModel, frozen=True):
    """A service that runs, or was killed before it could remove this file."""

    url: str
    pid: int
    """Of ``lockstep up``."""
    pids: dict[str, int] = {}
    """Of the programs at their last start."""
    started: float
    """Seconds since the epoch."""
    ready: bool = False
    """True once the service has reported ready."""
    token_file: str


class Home:
    """The folder of one local service."""

    def __init__(self, folder: Path):
        self.folder = folder.expanduser().absolute()
        self.lock_file = self.folder / "lock"
        self.run_file = self.folder / "run.json"
        self.token_file = self.folder / "token"
        self.logs = self.folder / "logs"

    @classmethod
    def of(cls, environment: Mapping[str, str], flag: Path | None = None) -> Home:
        """The home named by a flag, by ``LOCKSTEP_HOME``, or the user's own."""
        if flag is not None:
            return cls(flag)
        if named := environment.get("LOCKSTEP_HOME"):
            return cls(Path(named))
        import platformdirs

        return cls(Path(platformdirs.user_data_dir("lockstep", appauthor=False)))

    def create(self) -> None:
        """Create the folder and its subfolders with mode 0700: they hold the token and code.

        Raises
        ------
        UsageError
            If the service cannot store its data there. On a full disk its programs would end
            without a word, because their logs are there, too.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in ("logs", "store", "node", "broker"):
                (self.folder / name).mkdir(mode=0o700, exist_ok=True)
            try_to_write(str(self.folder))
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise UsageError(
                f"{self.folder}: cannot store the service's data: {error.strerror}",
                next_step="give another folder with --home or LOCKSTEP_HOME",
            ) from None
        if free < FREE_BYTES_MIN:
            raise UsageError(
                f"{self.folder}: cannot store the service's data: its disk has "
                f"{free / 2**20:.1f} MiB free, and {FREE_BYTES_MIN / 2**20:.0f} MiB are required",
                next_step="free space there, or give another folder with --home or LOCKSTEP_HOME",
            )

    def running(self) -> RunFile | None:
        """Return the contents of ``run.json``, which may be outdated."""
        try:
            return RunFile.model_validate_json(self.run_file.read_bytes())
        except (OSError, ValidationError):
            return None

    def write_run_file(self, content: RunFile) -> None:
        with replacing(self.run_file) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_text(content.model_dump_json(indent=2))

    def is_locked(self) -> bool:
        """Return whether a ``lockstep up`` runs in this home."""
        try:
            with self._locked():
                return False
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the home for as long as the service runs.

        Raises
        ------
        ClientError
            If another ``lockstep up`` holds it; the message names its address.
        """
        self.lock_file.touch(mode=0o600)
        try:
            with self._locked():
                yield
        except BlockingIOError:
            other = self.running()
            where = f"at {other.url} (process {other.pid})" if other else "and is starting"
            raise ClientError(
                f"a service already runs in {self.folder}, {where}",
                next_step=(
                    "use it, stop it with `lockstep down`, or give another folder with --home"
                ),
            ) from None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # Here and not above: a machine that only submits may have no such module.
        import fcntl

        # The descriptor is closed on exec, so the lock is this process's alone and ends with it.
        try:
            descriptor = os.open(self.lock_file, os.O_RDWR)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            # `lockstep down` must end a service whose disk has become read-only.
            descriptor = os.open(self.lock_file, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)

    def socket(self) -> Path:
        """Path of the broker's unix socket.

        In this home, or in a short private folder where that is too long.
        """
        inside = self.folder / "broker" / "broker.sock"
        if len(os.fsencode(inside)) <= SOCKET_PATH_BYTES_MAX:
            return inside
        digest = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:12]
        short = Path("/tmp") / f"lockstep-{os.getuid()}-{digest}"  # noqa: S108 - short is the point; checked below
        _own_private_folder(short)
        return short / "broker.sock"


def _own_private_folder(folder: Path) -> None:
    """Create ``folder`` with mode 0700, or check that this user owns it.

    In ``/tmp`` another user may have created it first.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.getuid()
        or stat.S_IMODE(found.st_mode) & 0o077
    ):
        raise ClientError(
            f"{folder} is not a private folder of this user, so the broker's socket cannot be "
            f"created in it",
            next_step="use a --home with a path shorter than 80 characters",
        )
