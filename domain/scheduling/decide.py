"""Decision about all queued jobs, as a pure function.

Rules, in order:

1. Jobs with a hold go first, the oldest hold before the others. Then ``domain.scheduling.shares``
   gives the order.
2. A gang is placed whole or not at all, on devices of one type. Among equal choices it takes the
   nodes with the fewest devices left over, to keep large groups of devices free for large gangs.
3. A gang that does not fit holds the nodes on which it can start earliest; four gangs at most hold
   nodes. Others may start there only if they end before, or leave enough devices: a hold never
   moves later by a decision. A hold without a known start is for one gang, after a week; at once
   where all jobs are of one person, who then has the order of priority and age.
4. A job in backoff, and one beyond a limit or the budget of its project, neither starts nor holds.
5. Nodes on which a job failed for the node's own reasons are tried last.
6. A job starts and holds only on nodes that offer all that it needs.

Not here: storing the decision (``storage.attempts.placing``), which is guarded and may fail; texts
(``domain.scheduling.reasons``).
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, Final

from lockstep.domain.scheduling.capacity import DevicePool, End, Fit
from lockstep.domain.scheduling.offers import Offers
from lockstep.domain.scheduling.shapes import asked
from lockstep.domain.scheduling.shares import Standing, by_age, line, turns
from lockstep.domain.scheduling.state import (
    ClusterNode,
    ClusterState,
    Hold,
    JobRequest,
    Plan,
    Project,
    Running,
    Start,
    Wait,
    WaitCode,
    WaitReason,
)

HOLDS_MAX: Final = 4
"""Gangs that hold nodes at one time."""
UNTIMED_HOLDS_MAX: Final = 1
"""Of them without a known start: no job without a time limit may start on their nodes."""
UNTIMED_AFTER_SECONDS: Final = 7 * 24 * 3_600.0
"""Wait of a gang before it holds nodes without a known start, beside jobs of other people. Such a
hold costs much, and without it, a stream of jobs without time limits could starve a gang."""
_DELAYING: Final = (WaitCode.HOLDS, WaitCode.BEHIND, WaitCode.FAIR_SHARE, WaitCode.FRAGMENTED)
"""Reasons of jobs that are in a line. Jobs of each other reason go behind them: they delay none."""

_ROUNDING: Final = ((600.0, 60.0), (3_600.0, 300.0), (86_400.0, 900.0))
"""Pairs (upper limit of the distance, rounding), in seconds; beyond the last, whole hours."""


def nodes_asked(nodes: int | None) -> int:
    """Return the number of nodes for the spec's ``resources.nodes``.

    A job that does not request several nodes gets one: a gang that no single node can hold waits
    with a message, instead of being spread over a network that may be a hundred times slower.
    """
    return 1 if nodes is None else nodes


def decide(snapshot: ClusterState) -> Plan:
    """Decide about every queued job. The order of the input changes nothing."""
    with _uncollected():
        return _decided(snapshot)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause the collector of reference cycles: nothing here makes one.

    It would visit each job of a long queue again and again, a sixth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _decided(snapshot: ClusterState) -> Plan:
    standing = Standing.of(snapshot)
    decision = _Decision(snapshot, standing)
    queued = by_age(snapshot.queued)
    held = [job for job in queued if job.hold is not None]
    held.sort(key=lambda job: (job.hold.since if job.hold else 0.0, job.submitted_at, job.job_id))
    # All of them before the first is decided about: an older hold takes no node of a younger one.
    for job in held:
        decision.keep_hold(job)
    for job in held:
        decision.about(job)
    for job in turns([job for job in queued if job.hold is None], standing):
        decision.about(job)
        if not decision.open:
            break
    # No other job starts or holds nodes: the order of their answers means nothing.
    started = {start.job_id for start in decision.starts}
    waiting = [job for job in queued if job.job_id not in started]
    for job in waiting:
        if job.job_id not in decision.waits:
            decision.about(job)
    return Plan(tuple(decision.starts), tuple(_waits(_in_order(waiting, decision), decision)))


class _Decision:
    """Decision in progress."""

    def __init__(self, snapshot: ClusterState, standing: Standing) -> None:
        self.now = snapshot.now
        self.old_at = snapshot.now - UNTIMED_AFTER_SECONDS
        """A gang that was submitted before may hold nodes without a known start."""
        self.standing = standing
        self.projects = snapshot.projects
        self.nodes = snapshot.nodes
        ready = [node for node in snapshot.nodes if node.ready]
        ends = _ends(snapshot.running, self.now)
        having: defaultdict[str, list[ClusterNode]] = defaultdict(list)
        for node in ready:
            for kind in set(node.devices.values()):
                having[kind].append(node)
        self.pools = [DevicePool(kind, having[kind], ends, self.now) for kind in sorted(having)]
        self.offers = Offers(ready)
        users = {job.user for job in snapshot.queued} | {user for _, user in standing.in_use_by}
        self.is_alone = len(users) <= 1
        self.starts: list[Start] = []
        self.waits: dict[str, WaitReason] = {}
        self.holds: dict[str, Hold] = {}
        """Holds of jobs that wait, for the plan."""
        self._holding: dict[str, tuple[JobRequest, Hold]] = {}
        """Jobs that hold nodes, by their ids."""
        self._asked = asked(snapshot.queued, self.offers, self.now, self.old_at)
        self.open = {shape for shape, _ in self._asked.values()}
        """Shapes of which a job may still start or hold nodes."""

    def keep_hold(self, job: JobRequest) -> None:
        """Keep the nodes of a job's former hold, as far as they are ready."""
        if job.hold is None or self._excluded(job) is not None:
            return
        for pool in self.pools:
            if (kept := pool.kept(job)) is not None and self._may_hold(job, kept):
                pool.hold(job, kept)
                self._holding[job.job_id] = job, kept
                return

    def about(self, job: JobRequest) -> None:
        """Start a job, let it hold nodes, or note why it waits."""
        shape, end = self._asked[job.job_id]
        refused, reason = shape.begin(end), self._excluded(job)
        if reason is None and refused is not None:
            reason = _with_needs_of(job, refused)
        if reason is None:
            pools = [pool for pool in self.pools if job.device_type in (None, pool.kind)]
            if not self._start(job, pools, end) and not self._hold(job, pools):
                reason = self._why(job, pools)
                shape.refuse(end, reason)
        if reason is not None:
            self.waits[job.job_id] = reason
        if shape.is_settled:
            self.open.discard(shape)

    def _excluded(self, job: JobRequest) -> WaitReason | None:
        if job.blocked is not None:
            return job.blocked
        if job.not_before > self.now:
            return WaitReason(WaitCode.BACKOFF, {"seconds": job.not_before - self.now})
        if job.needs and self.pools and (refusal := self.offers.refusal(job)) is not None:
            return refusal
        if job.project in self.projects:
            return self._beyond(job, self.projects[job.project])
        return None

    def _beyond(self, job: JobRequest, project: Project) -> WaitReason | None:
        """Return the limit of its project beyond which a job would be."""
        if project.is_held and project.is_over_budget:
            return over_budget(job.project, project)
        if project.gpus_max is None and project.gpus_per_user_max is None:
            return None
        # Devices for which others of the project hold nodes count: no hold ends by a start.
        held = [one for one, _ in self._holding.values() if one.project == job.project]
        held = [one for one in held if one.job_id != job.job_id]
        own, standing = [one for one in held if one.user == job.user], self.standing
        for user, in_use, holders, most in (
            (None, standing.in_use[job.project], held, project.gpus_max),
            (job.user, standing.in_use_by[job.project, job.user], own, project.gpus_per_user_max),
        ):
            reserved = sum(one.devices for one in holders)
            if most is not None and in_use + reserved + job.devices > most:
                about = {"project": job.project, "user": user, "needs": job.devices}
                now = {"in_use": in_use, "held": reserved, "gpus_max": most}
                return WaitReason(WaitCode.LIMIT, {**about, **now})
        return None

    def _start(self, job: JobRequest, pools: list[DevicePool], end: float) -> bool:
        fits = [choice for pool in pools if (choice := pool.fit(job, end)) is not None]
        if not fits:
            return False
        best = min(fits, key=Fit.rank)
        self._let_go(job)
        self.starts.append(Start(job.job_id, best.pool.take(best, job, end)))
        self.standing.charge(job)
        return True

    def _hold(self, job: JobRequest, pools: list[DevicePool]) -> bool:
        if not job.is_gang:
            for pool in pools:
                pool.expect(job)
            return False
        if len(self._holding) >= HOLDS_MAX and job.job_id not in self._holding:
            return False
        found = [earliest for pool in pools if (earliest := pool.earliest(job)) is not None]
        if not found:
            return False
        _, hold, pool = min(found, key=lambda one: (one[0], one[2].kind))
        if not self._may_hold(job, hold):
            self._let_go(job)
            return False
        self._let_go(job)
        pool.hold(job, hold)
        self._holding[job.job_id] = job, hold
        start = hold.starts_at
        if start is not None:
            # Up in each case: a latest time that is named must be the latest.
            start = -(-start // 60) * 60 if hold.is_sure else rounded(start, now=self.now)
        facts = {"nodes": list(hold.nodes), "starts_at": start, "is_sure": hold.is_sure}
        about = {"needs": job.devices, "type": pool.kind, "free": pool.free_on(hold.nodes, job)}
        reason = WaitReason(WaitCode.HOLDS, {**about, **facts})
        self.waits[job.job_id], self.holds[job.job_id] = reason, hold
        return True

    def _may_hold(self, job: JobRequest, hold: Hold) -> bool:
        others = [each for one, each in self._holding.values() if one.job_id != job.job_id]
        if len(others) >= HOLDS_MAX:
            return False
        if hold.starts_at is not None or self.is_alone:
            return True
        untimed = sum(each.starts_at is None for each in others)
        return job.submitted_at <= self.old_at and untimed < UNTIMED_HOLDS_MAX

    def _let_go(self, job: JobRequest) -> None:
        if self._holding.pop(job.job_id, None) is not None:
            for pool in self.pools:
                pool.release(job)

    def _why(self, job: JobRequest, pools: list[DevicePool]) -> WaitReason:
        about: dict[str, Any] = {
            "needs": job.devices,
            "nodes": job.nodes,
            "type": job.device_type,
            "offers": tuple(sorted(job.needs)),
        }
        if not self.pools:
            return WaitReason(WaitCode.NO_NODE, {"registered": len(self.nodes)})
        if not pools:
            types = [pool.kind for pool in self.pools]
            return WaitReason(WaitCode.NEVER_FITS, {**about, "types": types})
        able = [pool for pool in pools if pool.capable(job) >= job.nodes]
        if not able:
            most = max(pool.capable(job) for pool in pools)
            largest = max(pool.largest(job) for pool in pools)
            return WaitReason(WaitCode.NEVER_FITS, {**about, "largest": largest, "capable": most})
        free = max(pool.free(job) for pool in able)
        holder = next((found for pool in able if (found := pool.holder(job)) is not None), None)
        if holder is None and free >= job.devices:
            return WaitReason(WaitCode.FRAGMENTED, {**about, "free": free})
        behind = None if holder is None else holder.job_id
        return WaitReason(WaitCode.BEHIND, {**about, "job": behind, "free": free})


def over_budget(name: str, project: Project) -> WaitReason:
    """Return that a project has used up its budget."""
    facts = {"budget_hours": project.budget_hours, "used_hours": round(project.used_hours, 1)}
    return WaitReason(WaitCode.BUDGET, {"project": name, **facts})


def rounded(start: float, *, now: float) -> float:
    """Round an expected time up: the farther away, the more coarsely.

    Such a time is not more precise than that. A reader of a time that changed with each decision
    would get each page again.
    """
    ahead = start - now
    to = next((to for less, to in _ROUNDING if ahead < less), 3_600.0)
    return -(-start // to) * to


def _with_needs_of(job: JobRequest, reason: WaitReason) -> WaitReason:
    """Return the reason of another job of the same shape, with what this one needs."""
    known = reason.facts.get("offers")
    if known is None or not (known or job.needs):
        return reason
    return WaitReason(reason.code, {**reason.facts, "offers": tuple(sorted(job.needs))})


def _ends(running: Iterable[Running], now: float) -> dict[tuple[str, int], End]:
    """Return the end of each device that a job has, where it is known."""
    found: dict[tuple[str, int], End] = {}
    for job in running:
        limit = inf if job.ends_at is None else max(now, job.ends_at)
        if job.expected_at is not None and now < job.expected_at < limit:
            end = End(job.expected_at, is_sure=False)
        elif limit < inf:
            end = End(limit)
        else:
            continue
        found.update(dict.fromkeys(job.devices, end))
    return found


def _in_order(waiting: list[JobRequest], decision: _Decision) -> Iterable[JobRequest]:
    """Return the waiting jobs in the order in which they would start, one after the other."""
    holding: list[tuple[float, float, str, JobRequest]] = []
    in_line, last = [], []
    for job in waiting:
        code = decision.waits[job.job_id].code
        if code is WaitCode.HOLDS:
            since = decision.holds[job.job_id].since
            holding.append((since, job.submitted_at, job.job_id, job))
        elif code in _DELAYING:
            in_line.append(job)
        else:
            last.append(job)
    return [*(job for *_, job in sorted(holding)), *line(in_line, decision.standing), *last]


def _waits(order: Iterable[JobRequest], decision: _Decision) -> Iterable[Wait]:
    newest, owner = -inf, ("", "")
    """Newest submission of the jobs before, and the user of that job."""
    other = -inf
    """Newest submission of another user than that."""
    passed: dict[tuple[str, int], WaitReason] = {}
    """Reasons of jobs behind later ones, by project and the reason of their shape."""
    waits, holds = decision.waits, decision.holds
    for position, job in enumerate(order, start=1):
        reason, at = waits[job.job_id], job.submitted_at
        is_passed = at < other
        if at >= other:
            user = job.project, job.user
            is_passed = at < newest and user != owner
            if user == owner:
                newest = max(newest, at)
            elif at > newest:
                newest, owner, other = at, user, newest
            else:
                other = at
        if is_passed and reason.code is WaitCode.BEHIND:
            key = job.project, id(reason)
            fair = passed.get(key)
            if fair is None:
                facts = {"project": job.project, **reason.facts}
                passed[key] = fair = WaitReason(WaitCode.FAIR_SHARE, facts)
            reason = fair
        yield Wait(job.job_id, position, reason, holds.get(job.job_id))
