"""Claiming: a node takes its part of an attempt, and is given all that it needs to start it.

Not here: the life of an attempt after that (``storage.attempts.attempts``), and the choice of the
node, which refuses a draining one (``storage.attempts.placing``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Double, bindparam, func, select, update
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import AssignmentState
from lockstep.domain.spec.init_from import job_checkpoint
from lockstep.storage.attempts import checkpoints, lineage, transitions
from lockstep.storage.attempts.endings import lock_attempt
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import run, table_of
from lockstep.storage.db.tables import AssignmentRow, NodeRow


@dataclass(frozen=True)
class Published:
    """A checkpoint to resume from."""

    step: int
    location: str
    sha256: str
    """Of its manifest."""


@dataclass(frozen=True)
class Claim:
    """Everything a node needs to start its part of an attempt."""

    assignment_id: str
    token: str
    job_id: str
    attempt_id: str
    attempt_number: int
    spec: dict[str, Any]
    """With defaults filled in: ``JobSpec.model_validate`` reads it."""
    plan: dict[str, Any] | None
    """Batch plan, with values that an earlier attempt on as many ranks settled; None for a
    script."""
    node_name: str
    node_rank: int
    node_count: int
    ranks_here: int
    world_size: int
    devices: list[int]
    device_kind: str
    rendezvous_host: str
    rendezvous_port: int
    published: list[Published]
    """Checkpoints of the job, newest first: the one to resume from, and those before it in case
    that one is damaged."""
    timeout_left_seconds: float | None
    """Seconds that it may still run; None has no limit."""
    host_count: int = 1
    """Machines that the attempt's nodes run on: two agents may share one."""
    inherited: Sequence[Published] = ()
    """Checkpoints of the job that this one continues, newest first, while it has none itself."""
    former: Sequence[str] = ()
    """Jobs that this one continues (``storage.attempts.lineage``)."""
    init: str | None = None
    """Location of another job's checkpoint, where ``train.init_from`` names one that is there and
    nothing is resumed."""


def claim(
    session: Session,
    assignment_id: str,
    node_name: str,
    *,
    lease_seconds: float,
    rendezvous_port: int | None,
    rendezvous_host: str | None = None,
) -> Claim | None:
    """Take an assignment to start it; of several deliveries of its message one gets it.

    Parameters
    ----------
    session : Session
    assignment_id, node_name : str
    lease_seconds : float
    rendezvous_port : int or None
        A free port of this node, used if it is node rank 0 of several. The other nodes' claims
        succeed only after node rank 0's claim.
    rendezvous_host : str, optional
        Address at which the other nodes reach this one, used likewise; by default its name.

    Returns
    -------
    Claim or None
        None when it was claimed before, has ended, belongs to another node, or waits for node rank
        0.
    """
    attempt = lock_attempt(session, assignment_id)
    if attempt is None:
        return None
    parameters = {
        "of_assignment": assignment_id,
        "on_node": node_name,
        "rank_below": attempt.node_count if attempt.rendezvous_port is not None else 1,
        "for_seconds": lease_seconds,
    }
    part = run(session, _CLAIM_PART, parameters).one_or_none()
    if part is None:
        return None
    if part.node_rank == 0:
        attempt.rendezvous_port = rendezvous_port
        if attempt.node_count > 1 and rendezvous_host is not None:
            attempt.rendezvous_host = rendezvous_host
    job = run(session, _CLAIMED_JOB, {"of_job": attempt.job_id}).one()
    published = _published(session, attempt.job_id)
    former = lineage.line(session, job.spec.get("continues"))
    timeout_left = (
        None if job.timeout_seconds is None else job.timeout_seconds - job.running_seconds
    )
    return Claim(
        assignment_id=assignment_id,
        token=part.token,
        job_id=attempt.job_id,
        attempt_id=attempt.id,
        attempt_number=attempt.number,
        spec=job.spec,
        plan=attempt.plan,
        node_name=node_name,
        node_rank=part.node_rank,
        node_count=attempt.node_count,
        ranks_here=part.ranks_here,
        world_size=attempt.world_size,
        devices=list(part.device_indices),
        device_kind=attempt.device_kind,
        rendezvous_host=attempt.rendezvous_host,
        rendezvous_port=attempt.rendezvous_port or 0,
        published=published,
        inherited=[] if published or not former else _published(session, former[-1]),
        former=former,
        host_count=1 if attempt.node_count == 1 else _host_count(session, attempt.id),
        init=None if published else _first_weights(session, job.spec),
        timeout_left_seconds=None if timeout_left is None else max(0.0, timeout_left),
    )


def _published(session: Session, job_id: str) -> list[Published]:
    rows = checkpoints.of_job(session, job_id)
    return [Published(row.step, row.location, row.sha256) for row in rows]


def _host_count(session: Session, attempt_id: str) -> int:
    hosts = (
        select(func.count(NodeRow.boot_id.distinct()))
        .join(AssignmentRow, AssignmentRow.node_name == NodeRow.name)
        .where(AssignmentRow.attempt_id == attempt_id)
    )
    return session.execute(hosts).scalar_one()


def _first_weights(session: Session, spec: Mapping[str, Any]) -> str | None:
    source = job_checkpoint((spec.get("train") or {}).get("init_from"))
    checkpoint = None if source is None else checkpoints.named(session, source)
    return None if checkpoint is None else checkpoint.location


# --- statements

_PART: Final = table_of(AssignmentRow)
_CLAIM_PART: Final = (
    update(_PART)
    .where(
        _PART.c.id == bindparam("of_assignment"),
        _PART.c.node_name == bindparam("on_node"),
        _PART.c.state == AssignmentState.ASSIGNED,
        _PART.c.node_rank < bindparam("rank_below"),
    )
    .values(
        state=AssignmentState.CLAIMED,
        claimed_at=db_now(),
        lease_expires_at=db_now() + bindparam("for_seconds", type_=Double),
    )
    .returning(_PART.c.node_rank, _PART.c.token, _PART.c.ranks_here, _PART.c.device_indices)
)
_CLAIMED_JOB: Final = select(
    *transitions.JOBS.c["spec", "timeout_seconds", "running_seconds"]
).where(transitions.JOBS.c.id == bindparam("of_job"))
