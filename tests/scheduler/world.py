"""A job database with nodes and jobs, and a notifier that only records."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, update

from lockstep.broker.messages import Message
from lockstep.domain.life.lifecycle import AssignmentState, JobState
from lockstep.domain.life.timings import Timings
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.training.plan import plan_of
from lockstep.scheduler.reconcile import run_cycle
from lockstep.scheduler.report import CycleReport
from lockstep.storage.attempts import attempts, nodes
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.attempts.nodes import DeviceInfo
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import AssignmentRow, DeviceRow, JobRow, NodeRow, SchedulerLeaseRow
from lockstep.storage.jobs import jobs
from lockstep.storage.series import streams


class Notifications:
    """Record of the sent notifications."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def publish(self, message: Message) -> None:
        self.sent.append(message)

    def take(self) -> list[Message]:
        taken, self.sent = self.sent, []
        return taken


def standing_still() -> float:
    """Return a constant time, so that a cycle never exceeds its time on a slow machine."""
    return 0.0


class World:
    """Environment of a scheduler, with actions of nodes and users.

    Waits end by moving rows back in time.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.notifications = Notifications()
        self.timings = Timings()

    def run_one(self, owner: str = "one", **options: Any) -> CycleReport:
        options = {"clock": standing_still, **options}
        return run_cycle(self.database, self.notifications, self.timings, owner=owner, **options)

    def node(
        self, name: str, devices: int = 4, kind: str = "cpu", offers: tuple[str, ...] = ()
    ) -> None:
        found = [DeviceInfo(index, "cpu", kind) for index in range(devices)]
        with self.database.jobs() as session:
            nodes.register(session, name, found, version="1", boot_id="b", offers=offers)

    def submit(self, gpus: int = 1, **fields: Any) -> str:
        document: dict[str, Any] = {
            "name": "j",
            "kind": "script",
            "resources": {"gpus": gpus, **fields.pop("resources", {})},
            "script": {"command": ["true"]},
            **fields,
        }
        spec = JobSpec.model_validate(document)
        with self.database.jobs() as session:
            row, _new = jobs.create(
                session,
                document=document,
                spec=spec,
                plan=plan_of(spec),
                actor="a",
                idempotency=None,
            )
            return row.id

    def job(self, job_id: str) -> JobRow:
        with self.database.read_jobs() as session:
            row = jobs.get(session, job_id)
            assert row is not None
            return row

    def state(self, job_id: str) -> JobState:
        return self.job(job_id).state

    def assignments(self, job_id: str) -> list[AssignmentRow]:
        with self.database.read_jobs() as session:
            statement = (
                select(AssignmentRow)
                .where(AssignmentRow.job_id == job_id)
                .order_by(AssignmentRow.id)
            )
            return list(session.scalars(statement))

    def claim(self, job_id: str, *, running: bool = True) -> Claim:
        """Claim the job's newest assignment, as its node does."""
        part = self.assignments(job_id)[-1]
        with self.database.jobs() as session:
            claim = attempts.claim(
                session, part.id, part.node_name, lease_seconds=60, rendezvous_port=1
            )
            assert claim is not None
            if running:
                assert attempts.mark_running(session, claim.assignment_id, claim.token)
        with self.database.read_jobs() as session:
            writer = attempts.writer(session, claim.assignment_id, claim.token)
        assert writer is not None
        with self.database.series() as session:
            assert streams.open_stream(session, writer)
        return claim

    def sealed(self, assignment_id: str) -> bool:
        with self.database.read_series() as session:
            state = streams.state(session, assignment_id)
            assert state is not None
            return state.sealed

    def held(self) -> list[tuple[str, int]]:
        """Return (node, index) of every device that is held."""
        with self.database.read_jobs() as session:
            statement = select(DeviceRow.node_name, DeviceRow.index).where(
                DeviceRow.assignment_id.is_not(None)
            )
            return [(name, index) for name, index in session.execute(statement)]

    def hear(self, *names: str) -> None:
        with self.database.jobs() as session:
            for name in names:
                nodes.touch(session, name)

    # -- time
    # ----------------------------------------------------------------------------------------------

    def silence(self, node: str, seconds: float) -> None:
        """Set the time of the node's last heartbeat, and its leases accordingly."""
        with self.database.jobs() as session:
            session.execute(
                update(NodeRow).where(NodeRow.name == node).values(seen_at=db_now() - seconds)
            )
            live = AssignmentRow.state.in_((AssignmentState.ASSIGNED, AssignmentState.CLAIMED))
            expires = db_now() - seconds + self.timings.lease_seconds
            session.execute(
                update(AssignmentRow)
                .where(AssignmentRow.node_name == node, live)
                .values(lease_expires_at=expires, created_at=db_now() - seconds)
            )

    def past_backoff(self, job_id: str) -> None:
        with self.database.jobs() as session:
            session.execute(update(JobRow).where(JobRow.id == job_id).values(not_before=0.0))

    def no_cycle_for(self, seconds: float) -> None:
        with self.database.jobs() as session:
            session.execute(update(SchedulerLeaseRow).values(finished_at=db_now() - seconds))
