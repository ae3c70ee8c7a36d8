"""Attempts of this node: their claims, their adoption after a restart, and the start of each.

Not here: leases and intents (``worker.agent.supervisor``), and one attempt
(``worker.agent.assignment``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Set
from pathlib import Path

import structlog

from lockstep.storage.attempts import attempts
from lockstep.storage.attempts.attempts import HeldAssignment
from lockstep.storage.db.database import Database
from lockstep.system import processes
from lockstep.system.processes import ProcessSnapshot
from lockstep.worker.agent.addresses import Reservation
from lockstep.worker.agent.assignment import Attempt
from lockstep.worker.agent.context import AttemptContext
from lockstep.worker.agent.restores import Restores
from lockstep.worker.folders import Folder, empty_trash
from lockstep.worker.launch.identity import launcher_key
from lockstep.worker.launch.sweeping import ProcessTree

log = structlog.get_logger(__name__)


class Claims:
    """See the module. For the thread of the supervisor.

    Parameters
    ----------
    database : Database
    context : AttemptContext
        Of the attempts that begin from now on; replaced when the timings change.
    node_dir : Path
    restores : Restores
    """

    def __init__(
        self, database: Database, context: AttemptContext, node_dir: Path, restores: Restores
    ):
        self._database, self._node_dir, self._restores = database, node_dir, restores
        self.context = context
        self.attempts: dict[str, Attempt] = {}
        """Each attempt that has a thread here, by its assignment."""
        self.waiting: set[str] = set()
        """Assignments of this node that could not be claimed at the last check."""

    def leased(self) -> dict[str, Attempt]:
        return {key: attempt for key, attempt in self.attempts.items() if attempt.leased}

    def forget_ended(self) -> None:
        for assignment_id in [key for key, attempt in self.attempts.items() if attempt.over]:
            del self.attempts[assignment_id]

    def remove_others(self, folders: Iterable[Folder], held: Set[str]) -> None:
        """End what runs in folders of attempts that this node does not hold, and delete them.

        Each in a thread, and what earlier agents had begun to delete in another.
        """
        for folder in folders:
            if folder.assignment_id not in held | self.attempts.keys():
                log.info(
                    "no lease exists for this attempt: removing it", assignment=folder.assignment_id
                )
                threading.Thread(target=_remove, args=(folder,), daemon=True).start()
        threading.Thread(target=empty_trash, args=(self._node_dir,), daemon=True).start()

    def adopt(self, held: HeldAssignment) -> None:
        """Continue an attempt of an earlier agent, or one whose claim was answered by nothing."""
        log.info("adopting", assignment=held.assignment_id, state=held.state.value)
        self._take(Attempt.adopt(self.context, self._folder(held.assignment_id), held))

    def claim_waiting(self) -> None:
        """Retry assignments that could not be claimed.

        Those of gangs whose node rank 0 had not claimed.
        """
        for assignment_id in sorted(self.waiting):
            self.claim(assignment_id)

    def claim(self, assignment_id: str) -> None:
        """Claim an assignment and start its attempt, unless another has it or it has to wait."""
        if assignment_id in self.attempts:
            return
        if self._restores.in_doubt(self.attempts):
            self.waiting.add(assignment_id)
            return
        sent_at = processes.boottime()
        address, rendezvous = self.context.node_address(), Reservation()
        claim = None
        try:
            with self._database.jobs() as session:
                claim = attempts.claim(
                    session,
                    assignment_id,
                    self.context.node_name,
                    lease_seconds=self.context.timings.lease_seconds,
                    rendezvous_port=rendezvous.port,
                    rendezvous_host=address,
                )
        finally:
            if claim is None or claim.node_count == 1 or claim.node_rank > 0:
                rendezvous.release()
        if claim is None:
            # Delivered twice, or withdrawn: nothing to do. Or node rank 0 of its gang has not
            # claimed yet.
            log.debug("not claimed", assignment=assignment_id)
            self.waiting.add(assignment_id)
            return
        self.waiting.discard(assignment_id)
        log.info(
            "claimed", assignment=assignment_id, job=claim.job_id, attempt=claim.attempt_number
        )
        deadline = sent_at + self.context.timings.fence_seconds
        folder = self._folder(assignment_id)
        self._take(
            Attempt.begin(
                self.context, folder, claim, fence_deadline=deadline, rendezvous=rendezvous
            )
        )

    def claim_again(self, attempt: Attempt) -> None:
        """Let the database have the claim of an attempt that runs.

        It was restored from a backup made before that.
        """
        assignment = attempt.folder.assignment()
        if assignment is None or not attempt.leased:
            return
        log.warning(
            "the database was restored: claiming again", assignment=attempt.stream.assignment_id
        )
        with self._database.jobs() as session:
            attempts.claim(
                session,
                attempt.stream.assignment_id,
                self.context.node_name,
                lease_seconds=self.context.timings.lease_seconds,
                rendezvous_port=assignment.rendezvous_port,
                rendezvous_host=assignment.rendezvous_host,
            )
        attempt.set_back()

    def _take(self, attempt: Attempt) -> None:
        # In this order: an attempt whose thread cannot be started must not be renewed forever. It
        # is adopted later.
        attempt.start()
        self.attempts[attempt.stream.assignment_id] = attempt

    def _folder(self, assignment_id: str) -> Folder:
        return Folder(self._node_dir / assignment_id)


def _remove(folder: Folder) -> None:
    """End all processes of a folder without a holder, then delete it."""
    tree = ProcessTree(folder.path, launcher_key(folder.launcher()))
    tree.remember(ProcessSnapshot.take())
    if tree.kill(seconds=60):
        folder.delete()
