"""Start of one attempt on this node: everything up to a running launcher.

Not here: the folder's contents (``worker.launch.preparing``), and the phases of an attempt
(``worker.agent.assignment``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.kinds.devices import named
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.spec.stored import read_stored_spec
from lockstep.storage.attempts import events
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.objects.repositories import RepositoryUnreachableError
from lockstep.storage.series import inherited
from lockstep.system.processes import ProcessKey
from lockstep.worker.agent.context import AttemptContext
from lockstep.worker.agent.outcomes import UNPREPARABLE, unfetched, unprepared
from lockstep.worker.agent.peers import interface_to_peers
from lockstep.worker.devices.drivers import used_bytes
from lockstep.worker.folders import Folder
from lockstep.worker.launch import launching
from lockstep.worker.launch.preparing import is_disk_failure, is_full_disk, prepare
from lockstep.worker.upload.kept import restoring
from lockstep.worker.upload.reconciling import reconciled

_OF_THE_DATABASE: Final = (ErrorCode.UNAVAILABLE, ErrorCode.STORAGE_FULL)
PREPARE_TRIES: Final = 4
"""Failures of store or disk in a row after which another node takes the attempt."""
FULL_DISK_SECONDS: Final = 120.0
"""An attempt waits so long for space on a full disk before such a failure counts, like a
checkpoint. Without the wait, a disk that is full for a moment would use up a job's retries, and
quarantine its node."""

log = structlog.get_logger(__name__)


class LauncherStart:
    """Start of the launcher of one new claim.

    Parameters
    ----------
    context : AttemptContext
    folder : Folder
    claim : Claim
    """

    def __init__(self, context: AttemptContext, folder: Folder, claim: Claim):
        self.claim = claim
        self._context, self._folder = context, folder
        self._failures = 0
        self._full_since: float | None = None
        self._reason = Reason.STORAGE
        self.node_failed = False
        """True if the failure is one of the node."""
        self.launcher: ProcessKey | None = None
        """None also if it died at once."""

    def run(self, fence: Callable[[], float | None]) -> Outcome | bool:
        """Start the launcher, or return the reason why it cannot be started.

        Repeated from its beginning after a failure.

        Parameters
        ----------
        fence : callable
            Return the boottime until which ranks may live, or None if none may be started now.

        Returns
        -------
        Outcome or bool
            The outcome of an attempt that cannot start here. True if the launcher was started,
            False to try again.

        Raises
        ------
        Exception
            Any, to try again.
        """
        try:
            return self._start(fence)
        except UNPREPARABLE as error:
            return unprepared(error, self._context.node_name)
        except Exception as error:
            if isinstance(error, LockstepError) and error.code in _OF_THE_DATABASE:
                # One that is away, being restored, or full: no other node can do better.
                raise
            if is_full_disk(error) and self._may_wait_for_space(error):
                raise
            self._failures += 1
            if self._failures < PREPARE_TRIES:
                raise
            if isinstance(error, RepositoryUnreachableError):
                return unfetched(error)
            # Nothing of the job has run yet. Its code or checkpoint may fail, but not with a disk
            # error.
            self.node_failed = self._reason is Reason.LAUNCH_FAILED or is_disk_failure(error)
            message = f"preparing the attempt on this node failed: {type(error).__name__}: {error}"
            return Outcome.of(self._reason, message)

    def _may_wait_for_space(self, error: Exception) -> bool:
        """Return whether the disk may still become free in time; report the wait once."""
        if self._full_since is None:
            self._full_since = time.monotonic()
            try:
                self._report_wait(error)
            except LockstepError as failure:  # The wait counts, not its event.
                log.warning("the wait for space was not reported", error=failure.message)
        return time.monotonic() < self._full_since + FULL_DISK_SECONDS

    def _report_wait(self, error: Exception) -> None:
        claim, node = self.claim, self._context.node_name
        with self._context.database.jobs() as session:
            events.add(
                session,
                job_id=claim.job_id,
                attempt=claim.attempt_number,
                kind="warning",
                message=f"the disk of node {node} is full: the attempt waits for space, at most "
                f"{FULL_DISK_SECONDS:g} s ({error})",
                actor=f"node:{node}",
                origin=f"{claim.assignment_id}:full_disk",
            )

    def _start(self, fence: Callable[[], float | None]) -> bool:
        context, folder = self._context, self._folder
        self._reason = Reason.STORAGE
        interface = interface_to_peers(self.claim, context)
        claim, others = reconciled(self.claim, context.database, context.blobs)
        prepare(folder, claim, context.blobs, context.timings, interface=interface, others=others)
        spec = read_stored_spec(claim.spec)
        restoring.bring(folder, claim, spec, context.database, context.blobs)
        if spec.continues is not None and claim.node_rank == 0:
            inherited.inherit(context.database, of=claim.former, by=claim.job_id)
        # After a long preparation the lease may be nearly over, or lost: ranks are not started to
        # be killed.
        deadline = fence()
        if deadline is None:
            return False
        folder.write_fence(deadline)
        if not named(claim.device_kind).is_slot:
            folder.write_memory_before(used_bytes(claim.devices))
        self._reason = Reason.LAUNCH_FAILED
        self.launcher = launching.launch(
            folder,
            context.children,
            context.fork_server,
            context.launcher_command,
            context.environment,
        )
        # Nothing may fail from here on: this would be repeated, and a second launcher started.
        return True
