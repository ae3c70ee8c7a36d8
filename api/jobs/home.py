"""Parts of the answer about the own jobs, what needs attention, and who uses what.

Not here: the own jobs' rows (``storage.jobs.own``), shares (``api.jobs.sharing``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lockstep.api.jobs.views import moment, moment_or_none, node_state
from lockstep.domain.errors import LockstepError
from lockstep.domain.home_views import (
    BudgetNotice,
    DeviceCounts,
    JobNotice,
    NodeNotice,
    Notice,
    ProjectUse,
    UserUse,
)
from lockstep.domain.life.outcomes import Outcome
from lockstep.domain.queue_views import SharesView
from lockstep.domain.rights import Within
from lockstep.storage.control import agreed_timings, holdings
from lockstep.storage.control.holdings import Holding
from lockstep.storage.db.clock import now
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import NodeRow
from lockstep.storage.jobs.foreign import Mentions
from lockstep.storage.jobs.own import FailedJob
from lockstep.storage.series import idle
from lockstep.system.recent import Recent

REMEMBER_SECONDS: Final = 5.0
BUDGET_SHARE: Final = 0.8
"""Part of a budget from which on its project needs attention."""


class Cluster(NamedTuple):
    """State of all nodes, for every reader."""

    nodes: int
    free: int
    closed: int
    held: tuple[Holding, ...]
    idle: Counter[str]
    """Devices that are held and not used, by job."""
    notices: tuple[NodeNotice, ...]
    """Their reasons may name jobs."""


class ClusterUse:
    """State of the cluster, read from the rows at most once in a few seconds."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._recent: Recent[Cluster] = Recent()

    def read(self) -> Cluster:
        return self._recent.get(self._read, seconds=REMEMBER_SECONDS)

    def _read(self) -> Cluster:
        with self._database.read_jobs() as session:
            at, lease_seconds = now(session), agreed_timings.read(session).lease_seconds
            nodes = holdings.all_nodes(session)
            free = holdings.free(session)
            held = tuple(holdings.held(session))
        notices = tuple(_node_notices(nodes, at, lease_seconds))
        closed = sum(free.get(notice.name, 0) for notice in notices)
        open_ = sum(free.values()) - closed
        return Cluster(len(nodes), open_, closed, held, self._idle(held), notices)

    def _idle(self, held: Sequence[Holding]) -> Counter[str]:
        attempts = {each.job_id: (each.attempt, each.kind) for each in held}
        if not attempts:
            return Counter()
        try:
            with self._database.read_series() as session:
                found = idle.idle_ranks(session, attempts)
        except LockstepError:
            return Counter()  # The page goes without it.
        devices = Counter[str]()
        for each in held:
            devices[each.job_id] += each.devices
        return found & devices


def _node_notices(
    nodes: Sequence[NodeRow], at: float, lease_seconds: float
) -> Iterator[NodeNotice]:
    for node in nodes:
        state = node_state(node, now=at, lease_seconds=lease_seconds)
        if state == "ready":
            continue
        is_bad = node.quarantined_at is not None
        yield NodeNotice(
            kind="node",
            name=node.name,
            state=state,
            reason=node.quarantine if is_bad else node.drain_reason,
            since=moment_or_none(node.quarantined_at if is_bad else node.drained_at),
            drained_by=None if is_bad else node.drained_by,
            seen_at=moment(node.seen_at) if state == "lost" else None,
        )


def device_use(cluster: Cluster) -> DeviceCounts:
    """Return the numbers of devices."""
    held, unused = sum(each.devices for each in cluster.held), cluster.idle.total()
    return DeviceCounts(
        total=held + cluster.free + cluster.closed,
        in_use=held - unused,
        idle=unused,
        free=cluster.free,
        closed=cluster.closed,
    )


def project_use(cluster: Cluster, shares: SharesView, among: Within) -> list[ProjectUse]:
    """Return the projects with jobs that a reader may read, and what they do not use."""
    unused: Counter[str] = Counter()
    for job_id, project in {(each.job_id, each.project) for each in cluster.held}:
        unused[project] += cluster.idle[job_id]
    return [
        ProjectUse(
            project=share.project,
            in_use=share.in_use,
            idle=min(unused[share.project], share.in_use),
            entitled=share.entitled,
            queued=share.queued,
            people=[
                UserUse(user=each.user, in_use=each.in_use) for each in share.people if each.in_use
            ],
        )
        for share in shares.items
        if share.project in among and (share.in_use or share.queued)
    ]


def others(cluster: Cluster, among: Within) -> int:
    """Return the number of devices of jobs that a reader may not read."""
    return sum(each.devices for each in cluster.held if each.project not in among)


def notices(
    database: Database,
    cluster: Cluster,
    failed: Sequence[FailedJob],
    shares: SharesView,
    among: Within,
) -> list[Notice]:
    """Return what needs the attention of a reader."""
    reasons = [each.reason for each in cluster.notices if each.reason is not None]
    nodes = list(cluster.notices)
    if reasons:
        with database.read_jobs() as session:
            mentions = Mentions(session, reasons, among=among)
        nodes = [
            each.model_copy(update={"reason": each.reason and mentions.text(each.reason)})
            for each in nodes
        ]
    return [*nodes, *map(_job_notice, failed), *_budget_notices(shares)]


def _job_notice(job: FailedJob) -> JobNotice:
    outcome = None if job.outcome is None else Outcome.stored(job.outcome)
    return JobNotice(
        kind="job",
        id=job.id,
        name=job.name,
        project=job.project,
        message="" if outcome is None else outcome.exception or outcome.message,
        finished_at=moment(job.finished_at),
    )


def _budget_notices(shares: SharesView) -> Iterator[BudgetNotice]:
    for share in shares.items:
        budget, used = share.budget_gpu_hours, share.used_gpu_hours
        if budget is not None and used is not None and used > BUDGET_SHARE * budget:
            yield BudgetNotice(
                kind="budget",
                project=share.project,
                used_gpu_hours=round(used, 1),
                budget_gpu_hours=budget,
            )
