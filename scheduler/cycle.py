"""Steps 2 to 10 of a reconcile cycle; ``scheduler.reconcile`` lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import structlog
from sqlalchemy.orm import Session

from lockstep.broker.messages import Notifier, StartAssignment, StopAssignment
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.lifecycle import AssignmentState, Intent
from lockstep.domain.life.quarantine import to_quarantine
from lockstep.domain.life.timings import Timings
from lockstep.domain.scheduling.decide import decide
from lockstep.domain.scheduling.reasons import sentence
from lockstep.domain.scheduling.state import Start, Wait, WaitCode, WaitReason
from lockstep.domain.spec.stored import UnreadableSpecError
from lockstep.scheduler.remembered import Remembered
from lockstep.scheduler.report import CycleReport
from lockstep.storage.attempts import attempts, gangs, ledger, nodes
from lockstep.storage.control import scheduler_lease, scheduling, snapshots
from lockstep.storage.control.snapshots import QueuedJob
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import jobs, retention, stopping
from lockstep.storage.jobs.waiting import Waiting, set_waiting
from lockstep.storage.series import series, streams

ACTOR: Final = "lockstep"


WAITING_WRITES_MAX: Final = 2_000
"""Places in the queue written in one cycle; a long queue that moves is written from its front."""


WAITING_WRITES_BATCH: Final = 100
"""In one transaction: heartbeats must get in between."""


EXPIRE_SECONDS: Final = 0.5
"""Of a cycle, for deleting: nothing hurries it, and jobs wait for the next cycle."""


log = structlog.get_logger("scheduler")


class Cycle:
    """Steps 2 to 10."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        timings: Timings,
        stopping: Callable[[], bool],
        *,
        writing: Callable[[], AbstractContextManager[Session]],
        renumber: bool,
        expires: bool,
        remembered: Remembered,
        ends_at: float,
        clock: Callable[[], float],
    ) -> None:
        self.database = database
        self.notifier = notifier
        self.timings = timings
        self.stopping = stopping
        self.writing = writing
        self.renumber = renumber
        self.expires = expires
        self.remembered = remembered
        self.ends_at = ends_at
        self.clock = clock
        self.report = CycleReport()

    def run(self) -> None:
        self.lose_expired()
        self.settle_gangs()
        self.quarantine_nodes()
        self.stop_overdue()
        sealed = self.seal_ended()
        self.place_queued(sealed)
        self.notify_again()
        if self.expires:
            self.expire()
        # Last: on a full disk it ends the cycle, and a deletion makes room.
        self.account()

    def lose_expired(self) -> None:
        with self.database.read_jobs() as session:
            expired = attempts.expired(session)
        last_steps = self._last_steps(expired) if expired else {}
        self.each(
            "lose",
            {
                gone.assignment_id: partial(
                    self._lose, gone, last_steps.get((gone.job_id, gone.attempt_number))
                )
                for gone in expired
            },
        )

    def _lose(self, gone: attempts.ExpiredAssignment, last_step: int | None) -> None:
        with self.writing() as session:
            lost = attempts.lose(
                session,
                gone.assignment_id,
                gone.token,
                timings=self.timings,
                last_step=last_step,
            )
        if lost:
            self.report.lost += 1
            log.warning("lost", job=gone.job_id, attempt=gone.attempt_number, node=gone.node_name)

    def _last_steps(self, expired: list[attempts.ExpiredAssignment]) -> dict[tuple[str, int], int]:
        """Return the last reported step by job and attempt.

        Empty if the series database does not answer.
        """
        try:
            with self.database.read_series() as session:
                found = series.progress(session, {gone.job_id for gone in expired})
        except LockstepError as error:
            self._note("last steps", "", error)
            return {}
        return {(job_id, row.attempt): row.step for job_id, row in found.items() if row.step}

    def settle_gangs(self) -> None:
        with self.database.read_jobs() as session:
            unsettled = gangs.unsettled(session, self.timings)
        self.each("settle", {each: partial(self._settle, each) for each in unsettled})

    def _settle(self, assignment_id: str) -> None:
        with self.writing() as session:
            settled = gangs.settle(session, assignment_id, timings=self.timings)
        if settled is not None:
            log.warning(settled, assignment=assignment_id)

    def quarantine_nodes(self) -> None:
        with self.database.read_jobs() as session:
            failures = nodes.failures(session)
            known = nodes.quarantined(session) if failures else set()
        found = to_quarantine(failures, together_seconds=self.timings.together_seconds)
        self.each(
            "quarantine",
            {
                name: partial(self._quarantine, name, why)
                for name, why in found.items()
                if name not in known
            },
        )

    def _quarantine(self, name: str, why: str) -> None:
        with self.writing() as session:
            new = nodes.quarantine(session, name, why)
        if new:
            self.report.quarantined += 1
            log.warning("quarantined", node=name, why=why)

    def stop_overdue(self) -> None:
        with self.database.read_jobs() as session:
            overdue = attempts.overdue(session)
        self.each("timeout", {job_id: partial(self._stop, job_id) for job_id in overdue})

    def _stop(self, job_id: str) -> None:
        with self.writing() as session:
            job = jobs.get(session, job_id)
            limit = None if job is None else job.timeout_seconds
            message = f"it has run longer than its timeout of {limit or 0:g} s"
            if job is not None and (seconds := job.spec.get("stop_grace_seconds")):
                message = f"its timeout of {limit or 0:g} s ends in {seconds:g} s"
            asked = stopping.ask(
                session,
                job_id,
                Intent.TIMEOUT,
                actor=ACTOR,
                message=message,
                least_seconds=self.timings.stop_grace_seconds,
            )
            newest = attempts.newest(session, [job_id]).get(job_id)
            parts = [] if newest is None else newest.assignments
        if asked:
            self.report.overdue += 1
            for part in parts:
                if part.state is AssignmentState.CLAIMED:
                    self.notifier.publish(StopAssignment(part.id, part.node_name))

    def seal_ended(self) -> set[str]:
        """Assignments that have ended, are not released, and are sealed now for sure."""
        with self.database.read_jobs() as session:
            ended = scheduling.ended(session)
        if not ended:
            return set()
        sealed: set[str] = set()
        try:
            with self.database.read_series() as session:
                sealed |= streams.sealed(session, [part.assignment_id for part in ended])
            for part in ended:
                if part.assignment_id not in sealed:
                    with self.database.series() as session:
                        self.report.sealed += streams.seal(
                            session, part.assignment_id, job_id=part.job_id, attempt=part.attempt
                        )
                    sealed.add(part.assignment_id)
        except LockstepError as error:
            # The jobs database may well answer: jobs of which nothing is left to seal need nothing
            # else.
            self._note("seal", "", error)
        return sealed

    def place_queued(self, sealed: set[str]) -> None:
        """Steps 6 and 7."""
        with self.database.read_jobs() as session:
            average = self.remembered.averages.read
            rows = snapshots.read(session, self.timings, average=average)
            # Of the same moment as the queue: an attempt may have ended since others were sealed.
            ended = scheduling.ended(session)
            since_restore = scheduler_lease.since_restore_seconds(session)
        queue = {job.id: job for job in rows.queue}
        for job_id in self.remembered.unreadable.keys() - queue.keys():
            del self.remembered.unreadable[job_id]
        blocked = {
            job_id: WaitReason(WaitCode.UNREADABLE, {"error": error})
            for job_id, error in self.remembered.unreadable.items()
        }
        for part in ended:
            if part.assignment_id not in sealed:
                blocked[part.job_id] = WaitReason(WaitCode.SEALING)
        if since_restore is not None and 0 <= since_restore < self.timings.replace_after_seconds:
            # An attempt that the backup lacks may still run, on devices that seem to be free.
            blocked = dict.fromkeys(queue, WaitReason(WaitCode.RESTORED))
        # Only a gang holds nodes, and only a hold depends on the ends of others.
        has_gang = any(job.devices > 1 for job in rows.queue)
        ends = snapshots.expected(self.database, rows) if has_gang else {}
        plan = decide(rows.state(ends, blocked))
        for start in plan.starts:
            work = partial(self._place, start, queue[start.job_id])
            if not self.attempt("place", start.job_id, work):
                break
        self.report.waiting = len(plan.waits)
        self._write_waiting(queue, plan.waits)

    def _place(self, start: Start, job: QueuedJob) -> None:
        try:
            with self.writing() as session:
                placed = attempts.place(
                    session,
                    start.job_id,
                    start.devices,
                    lease_seconds=self.timings.lease_seconds,
                    attempts_before=job.attempt_count,
                )
        except UnreadableSpecError as error:
            self.remembered.unreadable[start.job_id] = str(error)
            # The devices of this job are free for others.
            self.report.again = True
            log.warning("this version cannot place a job", job=start.job_id, why=str(error))
            return
        if placed is None:
            # cancelled meanwhile, or another scheduler was first: the next cycle reads the new
            # state
            return
        self.report.placed += 1
        log.info(
            "placed",
            job=placed.job_id,
            attempt=placed.number,
            nodes=[part.node_name for part in placed.assignments],
        )
        for part in placed.assignments:
            self.notifier.publish(StartAssignment(part.assignment_id, part.node_name))

    def _write_waiting(self, queue: dict[str, QueuedJob], waits: Sequence[Wait]) -> None:
        differs = [
            (wait.job_id, waiting)
            for wait in waits
            for waiting in [_waiting(wait)]
            if _differs(queue[wait.job_id], waiting)
            and (self.renumber or queue[wait.job_id].wait_reason is None)
        ]
        # Those that have no reason yet first: a job never waits in silence, however busy the front
        # of the queue is.
        differs.sort(key=lambda one: queue[one[0]].wait_reason is not None)
        for start in range(0, min(len(differs), WAITING_WRITES_MAX), WAITING_WRITES_BATCH):
            batch = dict(differs[start : start + WAITING_WRITES_BATCH])
            if not self._may_continue():
                return
            with self.writing() as session:
                set_waiting(session, batch)

    def notify_again(self) -> None:
        with self.database.read_jobs() as session:
            silent = scheduling.unclaimed(
                session, older_than_seconds=self.timings.heartbeat_seconds
            )
        for assignment_id, node_name in silent:
            self.report.notified_again += 1
            self.notifier.publish(StartAssignment(assignment_id, node_name))

    def account(self) -> None:
        """Add the use of released devices to the ledger."""
        with self.database.read_jobs() as session:
            released = ledger.due(session)
        if not released:
            return
        try:
            with self.database.read_series() as session:
                again = {one.job_id for one in released if one.attempt > 1}
                steps = streams.steps(session, again)
        except LockstepError as error:
            self._note("ledger", "", error)
            return
        self.attempt("ledger", "", partial(self._account, released, steps))

    def _account(self, released: list[ledger.Released], steps: ledger.StepsOf) -> None:
        with self.writing() as session:
            ledger.add(session, released, steps)
        self.report.accounted += len(released)

    def expire(self) -> None:
        with self.database.read_jobs() as session:
            due = retention.due(session)
        ends_at = self.clock() + EXPIRE_SECONDS
        for one in due:
            if self.clock() >= ends_at or not self.attempt(
                "expire", one.job_id, partial(self._expire, one, ends_at)
            ):
                return

    def _expire(self, due: retention.DueDeletion, ends_at: float) -> None:
        if retention.expire(
            self.database, due, lambda: self.clock() < ends_at and not self.stopping()
        ):
            self.report.expired += 1
            log.info("expired", job=due.job_id, what=due.what, days=due.days)

    def each(self, kind: str, works: Mapping[str, Callable[[], None]]) -> None:
        """Do pieces of work by their names, as long as there is time."""
        for which, work in works.items():
            if not self.attempt(kind, which, work):
                return

    def attempt(self, kind: str, which: str, work: Callable[[], None]) -> bool:
        """Do one piece of work; False when there is no time for more.

        One that raises is left to the next cycle, and the others are done: a single row that cannot
        be placed must not keep all others waiting. A database that does not answer or is full is
        not of that kind, and ends the cycle.
        """
        if not self._may_continue():
            return False
        try:
            work()
        except LockstepError as error:
            if error.code in {ErrorCode.UNAVAILABLE, ErrorCode.STORAGE_FULL}:
                raise
            self._note(kind, which, error)
        except Exception as error:  # noqa: BLE001 -- see above
            self._note(kind, which, error)
        return True

    def _may_continue(self) -> bool:
        if self.stopping() or self.clock() >= self.ends_at:
            self.report.again = True
            return False
        return True

    def _note(self, kind: str, which: str, error: Exception) -> None:
        self.report.failed.append(f"{kind} {which}".strip())
        log.error("skipped in this reconcile cycle", what=kind, which=which, exc_info=error)


def _waiting(wait: Wait) -> Waiting:
    hold = None if wait.hold is None else snapshots.stored_hold(wait.hold)
    reason = wait.reason
    return Waiting(wait.position, sentence(reason), reason.code, dict(reason.facts), hold)


def _differs(job: QueuedJob, waiting: Waiting) -> bool:
    stored = job.wait_position, job.wait_reason, job.hold
    return stored != (waiting.position, waiting.reason, waiting.hold)
