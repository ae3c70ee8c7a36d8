"""Main loop of the agent: notifications, leases, intents, and the claims that are due.

It has its own thread, so heartbeats depend only on the database and the clock: slow work (code,
checkpoints, uploads, kills) runs in the attempts' threads. It needs no broker: a notification only
makes it act earlier.

Each heartbeat, in this order:

1. Note the time (boottime), *then* read the timings and renew all leases in one transaction. Ranks
   may live until that time plus the fence: it is earlier than the moment at which the database
   began to count the lease, so the node stops before the lease is given away. No renewal ends
   before a fence that was written with longer timings.
2. An assignment missing in the answer is lost: its processes are killed at once and nothing more is
   written. Without any row of it, a backup was restored (``worker.agent.restores``).
3. Intents in the answer (cancel, timeout, shutdown) become graceful stops.
4. Unclaimed assignments are claimed: their notification may have been lost. Held ones without a
   thread here are adopted: after a restart all; later, one whose claim was committed while the
   answer was lost.
5. A database that was restored from a backup may lack this node, which is registered again, and
   have an assignment as unclaimed whose ranks run here, which is claimed again. Every attempt
   compares what it has stored with a restored database.

Between heartbeats intents are read more often, while the database answers.

Not here: the claims themselves (``worker.agent.claims``), one attempt
(``worker.agent.assignment``), and Celery (``worker.service``).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import structlog
from sqlalchemy.orm import Session

from lockstep.domain.life.grace import REASON_OF
from lockstep.domain.life.timings import Timings
from lockstep.storage.attempts import attempts, gangs, nodes, stops
from lockstep.storage.attempts.nodes import DeviceInfo
from lockstep.storage.control import agreed_timings
from lockstep.storage.control.places import place_and_start
from lockstep.storage.db.database import Database
from lockstep.storage.db.whole import NotWholeError
from lockstep.storage.objects.blobs import BlobStore
from lockstep.system import processes
from lockstep.system.processes import ProcessSnapshot, become_subreaper
from lockstep.worker.agent.addresses import address_of
from lockstep.worker.agent.assignment import Attempt
from lockstep.worker.agent.claims import Claims
from lockstep.worker.agent.context import AttemptContext
from lockstep.worker.agent.ending import KILL_MARGIN_SECONDS
from lockstep.worker.agent.restores import Restores, may_live
from lockstep.worker.devices.inventory import offers
from lockstep.worker.folders import folders_in, retire
from lockstep.worker.health import HealthFile
from lockstep.worker.launch import launching
from lockstep.worker.launch.fork_client import ForkServer
from lockstep.worker.launch.sweeping import Children
from lockstep.worker.settings import AgentSettings

log = structlog.get_logger(__name__)

SWEEP_SECONDS = 1.0
"""Interval of process scans and orphan kills; one scan of ``/proc`` serves every attempt. Intents
are read at the same interval: a cancel whose notification was lost has ten seconds, of which grace
and kill take eight."""
ENDING_SECONDS = 10.0
"""Time after the grace to store the ends of stopped jobs before this agent exits. The upload of the
last checkpoints has a third of the grace in addition, as long as their save took. The next agent
completes the rest."""
ANNOUNCE_SECONDS = 1.0
"""For writing that the node leaves."""
LEAVING_SECONDS = 5.0
"""Time for the attempts' threads to finish."""


@dataclass(frozen=True)
class WakeUp:
    """Notification to handle now."""

    kind: Literal["start", "stop"]
    assignment_id: str


class Supervisor:
    """See the module.

    Public methods may be called from any thread; ``request_stop`` also from a signal's handler.
    """

    def __init__(
        self,
        settings: AgentSettings,
        *,
        heartbeats: Database,
        uploads: Database,
        blobs: BlobStore,
        devices: list[DeviceInfo],
        version: str,
        freed: Callable[[], None],
        environment: Mapping[str, str],
        fork_server: ForkServer | None = None,
        launcher_command: Sequence[str] = launching.LAUNCHER_COMMAND,
        report: Callable[[], None] = lambda: None,
    ):
        self._report = report
        # Two pools of connections: attempts that wait for one must not keep a heartbeat waiting.
        self._database = heartbeats
        self._settings = settings
        self._timings = agreed_timings.DEFAULTS
        self._devices, self._version = devices, version
        self._children, self._fork_server = Children(), fork_server
        context = AttemptContext(
            database=uploads,
            blobs=blobs,
            children=self._children,
            timings=self._timings,
            node_name=settings.node_name,
            node_address=lambda: address_of(settings.node_address, settings.database_url),
            fork_server=fork_server,
            launcher_command=launcher_command,
            environment=environment,
            freed=freed,
            retire=lambda folder: retire(folder, keep=settings.keep_folders),
        )
        self._wake_ups: queue.SimpleQueue[WakeUp] = queue.SimpleQueue()
        self._health = HealthFile(settings.node_dir, self._timings.lease_seconds)
        self._restores = Restores()
        self._claims = Claims(heartbeats, context, settings.node_dir, self._restores)
        self._attempts = self._claims.attempts
        self._registered = False
        self._in_touch = False
        self._next_heartbeat = 0.0
        self._next_sweep = 0.0
        self._stopping = False
        self._grace_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        self._settings.node_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._guarded("health", self._health.remove)
        become_subreaper()
        self._thread.start()

    def wake(self, wake_up: WakeUp) -> None:
        """Handle a notification soon. Never blocks."""
        self._wake_ups.put(wake_up)

    def request_stop(self) -> None:
        """Start the end: leave training running, or stop it (``stop_jobs_on_exit``)."""
        self._stopping = True

    def join(self) -> None:
        """Wait until the loop has ended, at most about ``end_seconds``."""
        self._thread.join()

    def runs(self) -> bool:
        """Return whether the loop's thread is alive."""
        return self._thread.is_alive()

    def end_seconds(self) -> float:
        """Return the time limit of an orderly end, from its request.

        It may grow while the jobs end, and does not shrink.
        """
        jobs = self._jobs_end_seconds() if self._settings.stop_jobs_on_exit else 0.0
        return ANNOUNCE_SECONDS + LEAVING_SECONDS + jobs

    def _jobs_end_seconds(self) -> float:
        graces = [attempt.grace_seconds("shutdown") for attempt in list(self._attempts.values())]
        self._grace_seconds = max(self._grace_seconds, self._timings.stop_grace_seconds, *graces)
        return self._grace_seconds * 4 / 3 + KILL_MARGIN_SECONDS + ENDING_SECONDS

    def _run(self) -> None:
        while not self._stopping:
            self._tick()
        self._announce_end()
        if self._settings.stop_jobs_on_exit:
            self._finish_jobs()
        self._guarded("health", self._health.remove)
        for attempt in self._attempts.values():
            attempt.detach()
        deadline = time.monotonic() + LEAVING_SECONDS
        for attempt in self._attempts.values():
            attempt.join(max(0.0, deadline - time.monotonic()))
        self._children.release_all()
        if self._fork_server is not None:
            self._fork_server.close()

    def _announce_end(self) -> None:
        """Mark this node as leaving before a job of it is placed here again.

        In a thread, because the end must not wait for a database that does not answer.
        """
        leaving = threading.Thread(
            target=self._guarded, args=("leave", self._report_leaving), name="leave", daemon=True
        )
        leaving.start()
        leaving.join(ANNOUNCE_SECONDS)

    def _finish_jobs(self) -> None:
        for attempt in self._attempts.values():
            attempt.request_stop("shutdown")
        started = time.monotonic()
        while self._attempts and time.monotonic() < started + self._jobs_end_seconds():
            self._tick()

    def _tick(self) -> None:
        """Run one iteration. It never raises: the loop would not be restarted."""
        self._report()
        self._guarded("notification", self._await_notification)
        now = time.monotonic()
        if now >= self._next_heartbeat:
            # After a failure sooner than after a success: the fence comes nearer.
            self._in_touch = self._guarded("heartbeat", self._heartbeat)
            period_seconds = self._timings.heartbeat_seconds
            self._next_heartbeat = now + (period_seconds if self._in_touch else period_seconds / 5)
        if now >= self._next_sweep:
            self._guarded("sweep", self._sweep)
            if self._fork_server is not None and not self._stopping:
                self._guarded("warm", self._fork_server.tend)
            if self._in_touch and self._claims.leased():
                self._in_touch = self._guarded("intents", self._read_intents)
            if self._in_touch and self._claims.waiting and not self._stopping:
                self._in_touch = self._guarded("claim", self._claims.claim_waiting)
            self._next_sweep = now + min(SWEEP_SECONDS, 4 * self._timings.watch_seconds)
        self._claims.forget_ended()

    def _guarded(self, what: str, act: Callable[[], None]) -> bool:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - see _tick
            log.warning("supervision failed and is retried", what=what, error=repr(error))
            return False
        return True

    def _await_notification(self) -> None:
        """Wait for a notification, at most one interval, and handle it at once."""
        try:
            wake_up = self._wake_ups.get(timeout=self._timings.watch_seconds)
        except queue.Empty:
            return
        if wake_up.kind == "start":
            if self._registered and not self._stopping:
                self._claims.claim(wake_up.assignment_id)
        elif wake_up.assignment_id in self._attempts:
            self._next_heartbeat = 0.0

    def _heartbeat(self) -> None:
        sent_at = processes.boottime()
        try:
            if not self._registered:
                self._register()
            self._renew()
        except NotWholeError as error:
            if error.same_server and self._restores.may_hold(sent_at):
                for attempt in self._claims.leased().values():
                    self._extend(attempt, sent_at)
            raise
        self._guarded("health", self._health.note_heartbeat)
        if not self._stopping:
            self._check_assignments()

    def _report_leaving(self) -> None:
        """Write that this node gets no more work until an agent is here again."""
        with self._database.jobs() as session:
            nodes.leave(session, self._settings.node_name)

    def _register(self) -> None:
        """Register this node, and find the attempts of a previous agent.

        Repeated until the database answers. A database that has lost this node gets it again once
        no ranks of an attempt live that it may have lost, too.
        """
        name = self._settings.node_name
        folders = folders_in(self._settings.node_dir)
        with self._database.jobs() as session:
            if not nodes.is_registered(session, name) and may_live(folders, processes.boottime()):
                log.warning("the database lacks this node: it is registered after the fence")
                return
            self._describe(session)
            held = {assignment.assignment_id for assignment in attempts.held(session, name)}
        self._claims.remove_others(folders, held)
        self._registered = True
        log.info("registered", node=name, devices=len(self._devices), held=len(held))

    def _describe(self, session: Session) -> None:
        """Write this node and its devices as they are now."""
        nodes.register(
            session,
            self._settings.node_name,
            self._devices,
            version=self._version,
            boot_id=processes.boot_id(),
            offers=offers(self._settings.node_offers, self._devices),
        )

    def _renew(self) -> None:
        name, leased = self._settings.node_name, self._claims.leased()
        sent_at = processes.boottime()
        last_fence = max((attempt.fence_deadline for attempt in leased.values()), default=0.0)
        with self._database.jobs() as session:
            self._follow(agreed_timings.read(session, self._timings))
            excess_seconds = last_fence - sent_at - self._timings.fence_seconds
            answer = attempts.renew(
                session,
                name,
                {key: attempt.stream.token for key, attempt in leased.items()},
                lease_seconds=self._timings.lease_seconds + max(0.0, excess_seconds),
            )
            place = place_and_start(session.connection())
            # The backup may be of before this agent. A node that it lacks is registered later.
            if self._restores.is_elsewhere(place) and nodes.is_registered(session, name):
                self._describe(session)
            if self._stopping:
                nodes.leave(session, name)
            known = attempts.known(session, leased.keys() - answer.keys())
            self._learn_stop_terms(session)
        if self._restores.renewed(place):
            for attempt in leased.values():
                attempt.set_back()
        for key, attempt in leased.items():
            if key not in answer:
                if key in known or self._restores.is_over(key, attempt.fence_deadline, sent_at):
                    attempt.kill_lost()
                continue
            self._restores.present(key)
            self._extend(attempt, sent_at)
            if (intent := answer[key]) is not None:
                attempt.request_stop(REASON_OF[intent])

    def _follow(self, timings: Timings) -> None:
        """Take over the timings of the installation. A running attempt keeps its own waits."""
        if timings == self._timings:
            return
        log.info("the timings have changed", **timings.changes(self._timings))
        self._timings = timings
        self._claims.context = replace(self._claims.context, timings=timings)
        self._guarded("health", self._health.remove)
        self._health = HealthFile(self._settings.node_dir, timings.lease_seconds)

    def _extend(self, attempt: Attempt, sent_at: float) -> None:
        try:
            attempt.renewed(sent_at + self._timings.fence_seconds)
        except OSError as error:
            # A full disk, for example. Its ranks end at the last written fence; others continue.
            assignment_id = attempt.stream.assignment_id
            log.warning("writing a fence failed", assignment=assignment_id, error=repr(error))

    def _read_intents(self) -> None:
        with self._database.read_jobs() as session:
            wanted = attempts.wanted(session, self._settings.node_name)
            if wanted:
                self._learn_stop_terms(session)
            to_end = gangs.to_end(session, self._settings.node_name)
        for key, intent in wanted.items():
            if key in self._attempts:
                self._attempts[key].request_stop(REASON_OF[intent])
        for key in to_end & self._attempts.keys():
            self._attempts[key].end_with_gang()

    def _learn_stop_terms(self, session: Session) -> None:
        """Read the facts that decide the grace of a stop, before the stop itself is obeyed."""
        for key, terms in stops.terms(session, self._settings.node_name).items():
            if key in self._attempts:
                self._attempts[key].learn(terms)

    def _check_assignments(self) -> None:
        name = self._settings.node_name
        with self._database.read_jobs() as session:
            self._registered = nodes.is_registered(session, name)
            unclaimed = attempts.unclaimed(session, name)
            held = attempts.held(session, name)
        unknown = [each for each in held if each.assignment_id not in self._attempts]
        for assignment in unknown:
            # Separately: a failure of one must not prevent the adoption of the others.
            self._guarded("adopt", partial(self._claims.adopt, assignment))
        if unknown:
            # They were not renewed while no agent ran: their fence may precede the next heartbeat.
            self._renew()
        for assignment_id in self._attempts.keys() & set(unclaimed):
            self._guarded(
                "claim again",
                partial(self._claims.claim_again, self._attempts[assignment_id]),
            )
        self._claims.waiting = set(unclaimed) - self._attempts.keys()
        self._claims.claim_waiting()

    def _sweep(self) -> None:
        process_snapshot = ProcessSnapshot.take()
        for attempt in self._attempts.values():
            attempt.remember(process_snapshot)
        self._children.sweep_orphans()
