"""Helpers that create the initial states of the tests of storage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import update

from lockstep.domain.kinds.offers import PAUSES
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.life.timings import Timings
from lockstep.domain.rights import EVERY
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.training.plan import plan_of
from lockstep.storage.attempts import attempts, events, nodes
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import AssignmentRow, JobRow
from lockstep.storage.jobs import jobs, removal
from lockstep.storage.jobs.waiting import Waiting, set_waiting
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.series import streams

T = TypeVar("T")
LEASE_SECONDS = 60.0
QUICK = Timings().scaled(1e-6)
"""Timings without a backoff."""


def document(**changes: Any) -> dict[str, Any]:
    return {
        "name": "digits",
        "kind": "train",
        "resources": {"gpus": 2},
        "train": {
            "task": "image_classification",
            "batch": {"size": 64, "micro_size": 8},
            "steps": 20,
        },
        **changes,
    }


def submit(
    database: Database, *, idempotency: tuple[str, str] | None = None, **changes: Any
) -> str:
    body = document(**changes)
    spec = JobSpec.model_validate(body)
    with database.jobs() as session:
        job, _new = jobs.create(
            session,
            document=body,
            spec=spec,
            plan=plan_of(spec),
            actor="ada",
            idempotency=idempotency,
        )
        return job.id


def add_node(
    database: Database, name: str = "n1", devices: int = 4, offers: Sequence[str] = (PAUSES,)
) -> None:
    with database.jobs() as session:
        found = [nodes.DeviceInfo(index, "cpu", "cpu") for index in range(devices)]
        nodes.register(session, name, found, version="0.1.0", boot_id="boot", offers=offers)


def place(
    database: Database, job_id: str, *devices: tuple[str, tuple[int, ...]]
) -> attempts.PlacedAttempt | None:
    with database.jobs() as session:
        return attempts.place(
            session, job_id, devices or (("n1", (0, 1)),), lease_seconds=LEASE_SECONDS
        )


def claim(database: Database, assignment_id: str, node_name: str = "n1") -> Claim | None:
    with database.jobs() as session:
        return attempts.claim(
            session, assignment_id, node_name, lease_seconds=LEASE_SECONDS, rendezvous_port=29500
        )


def placed_on(
    database: Database, job_id: str, *devices: tuple[str, tuple[int, ...]]
) -> attempts.PlacedAttempt:
    """Place a job; it must succeed."""
    placed = place(database, job_id, *devices)
    assert placed is not None
    return placed


def claimed_on(database: Database, job_id: str, devices: tuple[int, ...] = (0, 1)) -> Claim:
    """Place a job on devices of node n1, which claims it."""
    part = placed_on(database, job_id, ("n1", devices)).assignments[0]
    claimed = claim(database, part.assignment_id)
    assert claimed is not None
    return claimed


def start(database: Database, job_id: str, devices: tuple[int, ...] = (0, 1)) -> Claim:
    """Place a job on devices of node n1, which claims it and opens its stream."""
    claimed = claimed_on(database, job_id, devices)
    open_stream(database, claimed)
    return claimed


def placed_gang(database: Database) -> attempts.PlacedAttempt:
    """Place a job on the nodes n1 and n2, which have one device each."""
    for name in ("n1", "n2"):
        add_node(database, name, 1)
    return placed_on(database, submit(database), ("n1", (0,)), ("n2", (0,)))


def gang(database: Database) -> tuple[Claim, Claim]:
    """Return the claims of both nodes of a gang."""
    first, second = (
        claim(database, part.assignment_id, part.node_name)
        for part in placed_gang(database).assignments
    )
    assert first is not None
    assert second is not None
    return first, second


def run(database: Database, **changes: Any) -> Claim:
    """Return a job that is running on node n1."""
    add_node(database)
    claimed = start(database, submit(database, **changes))
    with database.jobs() as session:
        assert attempts.mark_running(session, claimed.assignment_id, claimed.token)
    return claimed


def open_stream(database: Database, claimed: Claim) -> None:
    with database.series() as session:
        assert streams.open_stream(session, writer_of(claimed))


def writer_of(claimed: Claim) -> streams.Writer:
    """Return the grant to write of a new claim, from the jobs database."""
    return streams.Writer(
        claimed.assignment_id, claimed.job_id, claimed.attempt_number, claimed.token
    )


def seal(database: Database, claimed: Claim) -> bool:
    with database.series() as session:
        return streams.seal(
            session, claimed.assignment_id, job_id=claimed.job_id, attempt=claimed.attempt_number
        )


def end(
    database: Database,
    claimed: Claim,
    reason: Reason,
    *,
    timings: Timings = QUICK,
    node_failed: bool = False,
    **details: object,
) -> bool:
    with database.jobs() as session:
        outcome = Outcome.of(reason, f"it ended: {reason}", **details)
        return attempts.end(
            session,
            claimed.assignment_id,
            claimed.token,
            outcome,
            timings=timings,
            node_failed=node_failed,
        )


def release(database: Database, claimed: Claim) -> bool:
    with database.jobs() as session:
        return attempts.release(session, claimed.assignment_id, claimed.node_name)


def renew(database: Database, claimed: Claim, token: str | None = None) -> dict[str, Any]:
    with database.jobs() as session:
        tokens = {claimed.assignment_id: token or claimed.token}
        return dict(attempts.renew(session, claimed.node_name, tokens, lease_seconds=LEASE_SECONDS))


def expire(database: Database, assignment_id: str) -> None:
    """Set the expiry of an assignment's lease to a second ago."""
    with database.jobs() as session:
        past = update(AssignmentRow).where(AssignmentRow.id == assignment_id)
        session.execute(past.values(lease_expires_at=db_now() - 1.0))


def skip_backoff(database: Database, job_id: str) -> None:
    with database.jobs() as session:
        session.execute(update(JobRow).where(JobRow.id == job_id).values(not_before=0.0))


def job_of(database: Database, job_id: str) -> JobRow:
    with database.read_jobs() as session:
        job = jobs.get(session, job_id)
        assert job is not None
        return job


def state_of(database: Database, job_id: str) -> JobState:
    return job_of(database, job_id).state


def kinds(database: Database, job_id: str) -> list[str]:
    """Return the kinds of the job's events, oldest first."""
    with database.read_jobs() as session:
        return [event.kind for event in events.page(session, job_id, limit=500)]


def remove(database: Database, blobs: BlobStore, job_id: str) -> None:
    """Delete an ended job, as a request does."""
    with database.jobs() as session:
        removal.mark(session, job_id, among=EVERY)
    removal.finish(database, blobs, job_id)


def free_devices(database: Database, name: str = "n1") -> list[int]:
    with database.read_jobs() as session:
        node = next(node for node in nodes.all_nodes(session) if node.name == name)
        return [device.index for device in node.devices if device.free]


def at_once(*actions: Callable[[], T]) -> list[T]:
    """Run actions in threads that start together; return their results in order.

    The first exception is raised here.
    """
    gate = threading.Barrier(len(actions))
    results: list[T | BaseException] = [RuntimeError("did not run")] * len(actions)

    def work(index: int) -> None:
        gate.wait()
        try:
            results[index] = actions[index]()
        except BaseException as error:  # noqa: BLE001 -- raised again by the test's own thread
            results[index] = error

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]  # exceptions were raised above


def wait(
    database: Database, job_id: str, position: int = 1, reason: str = "waits", **facts: object
) -> None:
    with database.jobs() as session:
        set_waiting(session, {job_id: Waiting(position, reason, "behind", facts)})
