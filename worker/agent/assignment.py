"""One attempt on this node, from its claim to the release of its devices.

=========  =======================================================================================================
phase      work                                                               then
=========  =======================================================================================================
PREPARE    folder, code, checkpoint, ``assignment.json``, fence, launcher     WATCH; or DRAIN with an outcome
WATCH      check for the result, for the launcher's death, for a stop          DRAIN
DRAIN      kill what is left of the attempt; upload everything                 END
END        write the outcome to the jobs database, guarded by the token       CLEAR
ABANDON    the lease was lost: kill at once, write nothing                    CLEAR
CLEAR      sweep processes, seal the stream, release the devices, delete      OVER
=========  =======================================================================================================

Each has its own thread. A new agent resumes from folder and row (``adopt``). A phase that raises is
logged and retried after a pause.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum, auto

import structlog

from lockstep.domain.life import attempt as contract
from lockstep.domain.life.attempt import AssignmentFile
from lockstep.domain.life.grace import Cause, StopReason
from lockstep.domain.life.lifecycle import AssignmentState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.storage.attempts import attempts
from lockstep.storage.attempts.attempts import Claim, HeldAssignment
from lockstep.storage.attempts.stops import StopTerms
from lockstep.storage.series import streams
from lockstep.system import processes
from lockstep.system.processes import ProcessSnapshot
from lockstep.worker.agent import outcomes
from lockstep.worker.agent.addresses import Reservation
from lockstep.worker.agent.context import AttemptContext
from lockstep.worker.agent.ending import Ending
from lockstep.worker.agent.launcher_process import LauncherProcess
from lockstep.worker.agent.peers import Peers, unreachable
from lockstep.worker.agent.starting import LauncherStart
from lockstep.worker.devices.device_memory import MemoryReclaim
from lockstep.worker.devices.drivers import used_bytes
from lockstep.worker.folders import DamagedFileError, Folder
from lockstep.worker.upload.stream import Stream
from lockstep.worker.upload.uploaders import Uploaders

log = structlog.get_logger(__name__)

BACKOFF_SECONDS_MAX = 5.0


class Phase(Enum):
    PREPARE = auto()
    WATCH = auto()
    DRAIN = auto()
    END = auto()
    ABANDON = auto()
    CLEAR = auto()
    OVER = auto()


class Attempt:
    """One attempt. Every public method may be called from any thread."""

    def __init__(
        self,
        context: AttemptContext,
        folder: Folder,
        stream: Stream,
        phase: Phase,
        claim: Claim | None,
    ):
        self.stream = stream
        self.folder = folder
        self.phase = phase
        self._context = context
        self._log = log.bind(assignment=stream.assignment_id)
        self._start = None if claim is None else LauncherStart(context, folder, claim)
        grace = context.timings.stop_grace_seconds
        self._ending = Ending(folder, least_seconds=grace)
        self._launcher = LauncherProcess(folder, context.children)
        self._uploaders: Uploaders | None = None
        self._rendezvous: Reservation | None = None
        self._memory = MemoryReclaim(folder.memory_before, used_bytes)
        self._peers = Peers(context.database, context.node_name, stream, least_seconds=grace)
        self._outcome: Outcome | None = None
        self._node_failed = False
        self._assignment: AssignmentFile | None = None
        """As this agent read it first."""
        self._fence_deadline = 0.0
        self._lost = False
        self._detached = False
        self._wake = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"attempt-{stream.assignment_id}", daemon=True
        )
        self._steps: dict[Phase, Callable[[], Phase]] = {
            Phase.PREPARE: self._prepare,
            Phase.WATCH: self._watch,
            Phase.DRAIN: self._drain,
            Phase.END: self._end,
            Phase.ABANDON: self._abandon,
            Phase.CLEAR: self._clear,
        }

    @classmethod
    def begin(
        cls,
        context: AttemptContext,
        folder: Folder,
        claim: Claim,
        *,
        fence_deadline: float,
        rendezvous: Reservation,
    ) -> Attempt:
        """An attempt that this agent has just claimed.

        It keeps the port at which the ranks meet until its end.
        """
        stream = Stream(claim.assignment_id, claim.job_id, claim.attempt_number, claim.token)
        begun = cls(context, folder, stream, Phase.PREPARE, claim)
        begun._fence_deadline = fence_deadline
        begun._rendezvous = rendezvous
        return begun

    @classmethod
    def adopt(cls, context: AttemptContext, folder: Folder, held: HeldAssignment) -> Attempt:
        """An attempt that an agent before this one has claimed, wherever it has got to."""
        stream = Stream(held.assignment_id, held.job_id, held.attempt_number, held.token)
        phase = Phase.CLEAR if held.state is not AssignmentState.CLAIMED else Phase.WATCH
        adopted = cls(context, folder, stream, phase, None)
        adopted._recognise()
        return adopted

    @property
    def over(self) -> bool:
        return self.phase is Phase.OVER

    @property
    def leased(self) -> bool:
        """Return whether its lease is still renewed."""
        return self.phase not in {Phase.ABANDON, Phase.CLEAR, Phase.OVER}

    @property
    def fence_deadline(self) -> float:
        """The boottime until which its ranks may live."""
        return self._fence_deadline

    def start(self) -> None:
        self._thread.start()

    def renewed(self, fence_deadline: float) -> None:
        """The lease was renewed: the ranks may live until this moment (boottime)."""
        if self.folder.files.exists(contract.ASSIGNMENT):
            self.folder.write_fence(fence_deadline)
        # Last: after a failed write the ranks live until the old deadline.
        self._fence_deadline = fence_deadline

    def kill_lost(self) -> None:
        """Kill at once, because the lease is lost, and write nothing more."""
        if self.leased and not self._lost:  # It may have ended since the renewal.
            self._log.warning("the lease was lost: killing the ranks")
        self._lost = True
        self._wake.set()

    def request_stop(self, reason: StopReason) -> None:
        """Stop gracefully; the first reason stays."""
        if self._ending.request_stop(reason):
            self._wake.set()

    def end_with_gang(self) -> None:
        """End the ranks, because those of another node failed, and send what they wrote."""
        if self._ending.note_failed_gang():
            self._wake.set()

    def learn(self, terms: StopTerms) -> None:
        """Take over the facts about its stop that are in the database."""
        self._ending.learn(terms)

    def grace_seconds(self, cause: Cause) -> float:
        """Return the grace of a stop now, from the folder and the database."""
        # A script may write that file, too, once it runs.
        return self._ending.grace_seconds(cause, self._assignment or self.folder.assignment())

    def set_back(self) -> None:
        """Compare all that was stored with the database: it was restored from a backup."""
        if self._uploaders is not None:
            self._uploaders.set_back()

    def wake(self) -> None:
        """Wake the thread up."""
        self._wake.set()

    def remember(self, process_snapshot: ProcessSnapshot) -> None:
        """Remember the processes of the attempt."""
        self._launcher.remember(process_snapshot)

    def detach(self) -> None:
        """The agent ends and the attempt continues without it."""
        self._detached = True
        if self._uploaders is not None:
            self._uploaders.stop()
        self._wake.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the thread, after ``detach`` or once it is over."""
        deadline = time.monotonic() + timeout_seconds
        self._thread.join(timeout_seconds)
        if self._uploaders is not None:
            self._uploaders.stop()
            self._uploaders.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        failures = 0
        while not self._detached and not self.over:
            if self._lost and self.leased:
                self.phase = Phase.ABANDON
            before = self.phase
            try:
                self.phase = self._steps[before]()
                failures = 0
            except Exception as error:  # noqa: BLE001 - one attempt's trouble must not end its own supervision
                failures += 1
                self._log.warning(
                    "a transition failed and is retried",
                    phase=before.name,
                    failures=failures,
                    error=repr(error),
                )
            if self.phase is not before:
                self._log.debug("phase", phase=self.phase.name)
                continue
            watch_seconds = self._context.timings.watch_seconds
            pause = min(BACKOFF_SECONDS_MAX, watch_seconds * 2.0 ** min(failures, 10))
            self._wake.wait(pause if failures else watch_seconds)
            self._wake.clear()

    def _prepare(self) -> Phase:
        """Everything up to a running launcher. Repeated from its beginning after a failure."""
        assert self._start is not None, "only a new claim is prepared"
        claim = self._start.claim
        self._peers.node_count = claim.node_count
        ended = self._ending.outcome("before its ranks had started") or unreachable(claim)
        if ended is not None:
            return self._conclude(ended)
        started = self._start.run(self._fence_of_a_start)
        if isinstance(started, Outcome):
            self._node_failed = self._start.node_failed
            return self._conclude(started)
        self._launcher.started(self._start.launcher)
        return Phase.WATCH if started else Phase.PREPARE

    def _fence_of_a_start(self) -> float | None:
        late = processes.boottime() >= self._fence_deadline
        return None if self._lost or self._detached or late else self._fence_deadline

    def _watch(self) -> Phase:
        """Check a running attempt once."""
        if self._uploaders is None:
            assignment = self.folder.assignment()
            if assignment is None:
                return self._conclude(outcomes.unreadable(rebooted=self._launcher.rebooted))
            self._assignment = assignment
            self._peers.node_count = assignment.node_count
            self._uploaders = self._start_uploaders(assignment)
            self._launcher.at_end(self.wake)  # Otherwise the next check finds the end.
        alive = self._launcher.is_alive()
        # In this order: a launcher writes its result and then ends, and neither is missed.
        if self.folder.files.exists(contract.RESULT):
            return Phase.DRAIN
        if not alive:
            self._outcome = self._outcome_of_a_dead_launcher()
            self._log.warning("the launcher has disappeared", outcome=self._outcome.message)
            return Phase.DRAIN
        if self._ending.is_overdue():
            self._launcher.kill()
        elif self._ending.obey(self._assignment):
            self._uploaders.hurry_files()
        self._peers.pass_stop_on(self.folder)
        return Phase.WATCH

    def _outcome_of_a_dead_launcher(self) -> Outcome:
        ended = self._ending.outcome("and its processes were killed")
        if ended is not None:
            return ended
        if self._launcher.rebooted:
            return outcomes.REBOOTED
        broken = outcomes.of_a_broken_disk(self.folder)
        self._node_failed = broken is not None
        return broken or outcomes.of_a_dead_launcher(self.folder, self._launcher.status())

    def _conclude(self, outcome: Outcome) -> Phase:
        """An outcome that no launcher will write."""
        self._outcome = outcome
        return Phase.DRAIN

    def _drain(self) -> Phase:
        """End all writers of the folder, and upload the rest of it.

        A launcher has none left when it has written its result and ended by itself. A rank may have
        written that file.
        """
        if self._launcher.status() != 0 and not self._launcher.kill():
            return Phase.DRAIN
        self._peers.report(self._final_outcome())
        watch_seconds = self._context.timings.watch_seconds
        sent = self._uploaders is None or self._uploaders.finish(watch_seconds)
        return Phase.END if sent else Phase.DRAIN

    def _end(self) -> Phase:
        outcome = self._final_outcome()
        part, timings = self.stream, self._context.timings
        with self._context.database.jobs() as session:
            ended = attempts.end(
                session,
                part.assignment_id,
                part.token,
                outcome,
                timings=timings,
                node_failed=self._node_failed,
            )
        self._log.info("ended", reason=outcome.reason.value, accepted=ended)
        return Phase.CLEAR

    def _final_outcome(self) -> Outcome:
        outcome = self._outcome
        if outcome is None:
            try:
                result = self.folder.result()
            except DamagedFileError as error:
                return Outcome.of(Reason.LAUNCH_FAILED, str(error), node=self._context.node_name)
            assert result is not None, "an attempt has a result but no outcome"
            outcome = result.outcome
        details: dict[str, object] = {"node": outcome.node or self._context.node_name}
        if self._uploaders is not None:
            if outcome.last_step is None:
                details["last_step"] = self._uploaders.last_step
            if outcome.reason is Reason.SUCCEEDED and self._uploaders.result_lost:
                message = "the run ended well, but its result could not be stored"
                return Outcome.of(Reason.STORAGE, message, **details)
        return outcome.model_copy(update=details)

    def _abandon(self) -> Phase:
        """The lease is lost: kill at once; nothing that was written is sent."""
        if self._uploaders is not None:
            self._uploaders.stop()
        return Phase.CLEAR if self._launcher.kill() else Phase.ABANDON

    def _clear(self) -> Phase:
        """Release the attempt's resources, once no process of it is left."""
        # The second returns whether orphans of any attempt were found; one of this may be among
        # them.
        if (
            not self._launcher.kill()
            or self._context.children.sweep_orphans()
            or not self._memory.over()
        ):
            return Phase.CLEAR
        with self._context.database.series() as session:
            stream = self.stream
            streams.seal(
                session, stream.assignment_id, job_id=stream.job_id, attempt=stream.attempt_number
            )
        with self._context.database.jobs() as session:
            attempts.release(session, self.stream.assignment_id, self._context.node_name)
        self._context.freed()
        if self._rendezvous is not None:
            self._rendezvous.release()
        self._launcher.forget()
        self._context.retire(self.folder)
        return Phase.OVER

    def _start_uploaders(self, assignment: AssignmentFile) -> Uploaders:
        """Start sending, from where an agent before this one stopped."""
        uploaders = Uploaders(
            self._context.database,
            self._context.blobs,
            self.folder,
            self.stream,
            assignment,
            pause_seconds=self._context.timings.watch_seconds,
            sample_seconds=self._context.timings.sample_seconds,
            files_seconds=self._context.timings.files_seconds,
        )
        uploaders.start()
        return uploaders

    def _recognise(self) -> None:
        """Find out from the folder and the processes how far the agent before this one got."""
        self._fence_deadline = self.folder.fence()
        known = self._launcher.recognise() or self.folder.was_launched()
        if not known and self.leased:
            self.phase = self._conclude(outcomes.unstarted(self.folder))
        self._ending.recognise()
