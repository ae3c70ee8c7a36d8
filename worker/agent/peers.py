"""Communication with the other nodes of an attempt, through the job database only.

Not here: the effect of one node's end on the attempt (``storage.attempts.gangs``,
``domain.life.gang``), and the ranks' rendezvous (``worker.agent.addresses``,
``engine.launcher.start.rendezvous``).
"""

from __future__ import annotations

from lockstep.domain.life import attempt
from lockstep.domain.life.lifecycle import Intent
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.storage.attempts import gangs
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import stopping
from lockstep.worker.agent.addresses import interface_of, is_loopback
from lockstep.worker.agent.context import AttemptContext
from lockstep.worker.folders import Folder
from lockstep.worker.upload.stream import Stream


def unreachable(claim: Claim) -> Outcome | None:
    """Return why the others cannot reach this node, if it is node rank 0 of several."""
    if claim.node_rank > 0 or claim.host_count == 1 or not is_loopback(claim.rendezvous_host):
        return None
    node, address = claim.node_name, claim.rendezvous_host
    return Outcome.of(
        Reason.LAUNCH_FAILED,
        f"the ranks of {claim.node_count} nodes cannot connect to {node}: its address "
        f"{address} is reachable from {node} only",
        advice=(
            f"Set LOCKSTEP_NODE_ADDRESS of the agent on {node} to an address that the other nodes "
            f"can reach."
        ),
    )


def interface_to_peers(claim: Claim, context: AttemptContext) -> str | None:
    """The network interface that other nodes reach this one by; None for a gang of one node."""
    return interface_of(context.node_address()) if claim.node_count > 1 else None


class Peers:
    """Messages of one assignment to the others, each once. Without others it sends nothing.

    Parameters
    ----------
    database : Database
    node_name : str
    stream : Stream
        Of this node's assignment.
    least_seconds : float
        Smallest grace of a stop.
    """

    def __init__(self, database: Database, node_name: str, stream: Stream, *, least_seconds: float):
        self._database, self._node_name, self._stream = database, node_name, stream
        self._least_seconds = least_seconds
        self._reported = self._stop_passed_on = False
        self.node_count = 1
        """Of the attempt."""

    def report(self, outcome: Outcome) -> None:
        """Report this assignment's outcome early.

        The rest of the upload may take minutes, in which the others would wait.
        """
        if self.node_count > 1 and not self._reported:
            with self._database.jobs() as session:
                gangs.report(session, self._stream.assignment_id, self._stream.token, outcome)
            self._reported = True

    def pass_stop_on(self, folder: Folder) -> None:
        """Pass a stop of this assignment on to the others.

        Rank 0 saves for all, and reads its own node's folder alone.

        All nodes receive a cancel or a timeout; only one receives the end of its agent, or a signal
        to its launcher.
        """
        if self.node_count > 1 and not self._stop_passed_on and folder.files.exists(attempt.STOP):
            message = f"node {self._node_name} stops its assignment"
            actor = f"node:{self._node_name}"
            with self._database.jobs() as session:
                stopping.ask(
                    session,
                    self._stream.job_id,
                    Intent.SHUTDOWN,
                    actor=actor,
                    message=message,
                    least_seconds=self._least_seconds,
                )
            self._stop_passed_on = True
