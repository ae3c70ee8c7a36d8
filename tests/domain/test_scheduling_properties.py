"""Properties of a decision in random worlds: against exhaustive search, and over time.

The oracle has no pools: it tries every set of nodes of every type.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from itertools import combinations
from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lockstep.domain.scheduling.capacity import LATE_SECONDS
from lockstep.domain.scheduling.decide import HOLDS_MAX, decide
from lockstep.domain.scheduling.reasons import sentence
from lockstep.domain.scheduling.shares import Standing, by_age, line, turns
from lockstep.domain.scheduling.state import (
    ClusterNode,
    ClusterState,
    Hold,
    JobRequest,
    Plan,
    Project,
    Running,
    WaitCode,
    WaitReason,
)
from tests.domain.worlds import KINDS, after, clusters, queues, snapshots

EXCLUDED = {WaitCode.BACKOFF, WaitCode.LIMIT}
"""A job that waits for one of these may have room."""


def of_kind(node: ClusterNode, kind: str, *, free: bool) -> int:
    indices = node.free if free else node.devices
    return sum(1 for index in indices if node.devices[index] == kind)


def ways(
    job: JobRequest, nodes: list[ClusterNode], *, free: bool = True
) -> list[tuple[str, tuple[str, ...]]]:
    """Return every (type, set of nodes) on which a job has room, by trying all."""
    found = []
    for kind in KINDS if job.device_type is None else (job.device_type,):
        able = [
            node
            for node in nodes
            if node.ready
            and of_kind(node, kind, free=free) >= job.each
            and not job.needs - node.offers
        ]
        found += [
            (kind, tuple(node.name for node in chosen)) for chosen in combinations(able, job.nodes)
        ]
    return found


@given(queues(jobs_max=1), clusters())
def test_a_job_starts_exactly_if_nodes_can_run_it(
    queue: list[JobRequest], nodes: list[ClusterNode]
) -> None:
    (job,) = [replace(job, not_before=0.0) for job in queue]
    plan = decide(ClusterState(100.0, tuple(nodes), (job,)))
    possible = ways(job, nodes)
    assert bool(plan.starts) == bool(possible)
    if not plan.starts:
        return
    used = {name for name, _ in plan.starts[0].devices}
    good = [names for _, names in possible if not job.avoid.intersection(names)]
    assert not good or not used & job.avoid
    by_name = {node.name: node for node in nodes}
    first, (index, *_) = plan.starts[0].devices[0]
    kind = by_name[first].devices[index]

    def left(kind: str, names: tuple[str, ...]) -> int:
        return sum(of_kind(by_name[name], kind, free=True) for name in names) - job.devices

    equals = [
        left(*way)
        for way in possible
        if len(used & job.avoid) == len(job.avoid.intersection(way[1]))
    ]
    assert left(kind, tuple(used)) == min(equals)


@given(snapshots())
def test_gangs_are_complete_on_free_devices_of_one_type(snapshot: ClusterState) -> None:
    by_name = {node.name: node for node in snapshot.nodes}
    by_id = {job.job_id: job for job in snapshot.queued}
    taken: set[tuple[str, int]] = set()
    plan = decide(snapshot)
    assert sorted([one.job_id for one in (*plan.starts, *plan.waits)]) == sorted(by_id)
    assert [wait.position for wait in plan.waits] == list(range(1, len(plan.waits) + 1))
    for start in plan.starts:
        job = by_id[start.job_id]
        devices = [(name, index) for name, indices in start.devices for index in indices]
        assert len(devices) == len(set(devices)) == job.devices
        assert not taken & set(devices)
        taken |= set(devices)
        kinds = {by_name[name].devices[index] for name, index in devices}
        assert len(kinds) == 1
        assert job.device_type in (None, *kinds)
        assert all(by_name[name].ready and index in by_name[name].free for name, index in devices)
        assert all(job.needs <= by_name[name].offers for name, _ in devices)
        assert [len(indices) for _, indices in start.devices] == [job.each] * job.nodes
        assert job.not_before <= snapshot.now
    assert all(sentence(wait.reason) for wait in plan.waits)


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(
    snapshot: ClusterState, dice: random.Random
) -> None:
    plan = decide(snapshot)
    shuffled = replace(
        snapshot,
        nodes=tuple(dice.sample(snapshot.nodes, len(snapshot.nodes))),
        queued=tuple(dice.sample(snapshot.queued, len(snapshot.queued))),
        running=tuple(dice.sample(snapshot.running, len(snapshot.running))),
    )
    assert decide(shuffled) == plan


def holds_of(plan: Plan) -> list[Hold]:
    return [wait.hold for wait in plan.waits if wait.hold is not None]


@given(snapshots())
def test_no_job_waits_that_fits_on_nodes_without_a_hold(snapshot: ClusterState) -> None:
    plan = decide(snapshot)
    left = after(snapshot, plan, LATE_SECONDS)
    held = {(hold.kind, name) for hold in holds_of(plan) for name in hold.nodes}
    jobs = {job.job_id: job for job in left.queued}
    for wait in plan.waits:
        could = ways(jobs[wait.job_id], list(left.nodes))
        free = [way for way in could if not {(way[0], name) for name in way[1]} & held]
        assert wait.reason.code in EXCLUDED or not free


def release_times(snapshot: ClusterState) -> dict[tuple[str, int], float]:
    """Return when each busy device is expected to be free; inf if it is unknown."""
    found = {}
    for job in snapshot.running:
        ends = [inf]
        if job.ends_at is not None:
            ends.append(max(job.ends_at, snapshot.now))
        if job.expected_at is not None and job.expected_at > snapshot.now:
            ends.append(job.expected_at)
        found.update(dict.fromkeys(job.devices, min(ends)))
    return found


def free_at(node: ClusterNode, kind: str, moment: float, ends: dict[tuple[str, int], float]) -> int:
    return sum(
        1
        for index, type_ in node.devices.items()
        if type_ == kind and (index in node.free or ends.get((node.name, index), inf) <= moment)
    )


@given(snapshots(all_ready=True))
def test_a_gang_alone_holds_the_nodes_on_which_it_starts_earliest(snapshot: ClusterState) -> None:
    job = replace(snapshot.queued[0], not_before=0.0, avoid=frozenset(), project="p")
    (*_, wait) = (None, *decide(replace(snapshot, queued=(job,))).waits)
    if wait is None or wait.hold is None:
        return
    ends, nodes = release_times(snapshot), {node.name: node for node in snapshot.nodes}
    moments = sorted({snapshot.now, *ends.values()})
    earliest = min(
        (
            moment
            for kind, names in ways(job, list(snapshot.nodes), free=False)
            for moment in moments
            if all(free_at(nodes[name], kind, moment, ends) >= job.each for name in names)
        ),
        default=inf,
    )
    assert wait.hold.starts_at == (None if earliest == inf else earliest)


@given(snapshots(all_ready=True))
def test_no_start_delays_a_hold(snapshot: ClusterState) -> None:
    plan = decide(snapshot)
    left = after(snapshot, plan, LATE_SECONDS)
    ends, by_name = release_times(left), {node.name: node for node in left.nodes}
    jobs = {job.job_id: job for job in left.queued}
    holds = [(jobs[wait.job_id], wait.hold) for wait in plan.waits if wait.hold is not None]
    assert len(holds) <= HOLDS_MAX
    held = [(hold.kind, name) for _, hold in holds for name in hold.nodes]
    assert len(held) == len(set(held))
    for job, hold in holds:
        assert len(hold.nodes) == job.nodes
        assert all(job.needs <= by_name[name].offers for name in hold.nodes)
        start = inf if hold.starts_at is None else hold.starts_at
        if start < inf:
            assert job.device_type in (None, hold.kind)
            assert all(
                free_at(by_name[name], hold.kind, start, ends) >= job.each for name in hold.nodes
            )
    # The next free device there goes to a job that is no gang.
    awaited = [
        (kind, name)
        for wait in plan.waits
        if not jobs[wait.job_id].is_gang and wait.reason.code not in EXCLUDED
        for kind, (name,) in ways(jobs[wait.job_id], list(left.nodes), free=False)
    ]
    for wait in plan.waits:
        job, could = jobs[wait.job_id], ways(jobs[wait.job_id], list(left.nodes), free=False)
        taken = {*held, *awaited, *((kind, name) for kind in KINDS for name in job.avoid)}
        free = [way for way in could if not {(way[0], name) for name in way[1]} & taken]
        timed = any(
            all(free_at(by_name[name], kind, 1e9, ends) >= job.each for name in names)
            for kind, names in free
        )
        blocked = job.is_gang and wait.hold is None and wait.reason.code not in EXCLUDED
        assert not (blocked and timed and len(holds) < HOLDS_MAX), "a gang without a hold"


@given(snapshots(all_ready=True), st.randoms(use_true_random=False))
def test_a_hold_never_moves_later(snapshot: ClusterState, dice: random.Random) -> None:
    """Time goes on, jobs end at their limit or before, new jobs come: no hold's start grows."""
    number = 0
    snapshot = replace(
        snapshot,
        running=tuple(replace(job, expected_at=None) for job in snapshot.running),
    )
    starts: dict[str, float] = {}
    for _ in range(12):
        plan = decide(snapshot)
        for wait in plan.waits:
            if wait.hold is not None:
                start = inf if wait.hold.starts_at is None else wait.hold.starts_at
                # A start in the past counts as now: the world is late, not the decision.
                assert max(start, 0.0) <= max(starts.get(wait.job_id, inf), snapshot.now)
                starts[wait.job_id] = start
        snapshot = after(snapshot, plan, LATE_SECONDS)
        now = snapshot.now + dice.choice([1.0, 20.0, 90.0])
        over = [
            job
            for job in snapshot.running
            if (job.ends_at is not None and job.ends_at <= now) or dice.random() < 0.1
        ]
        freed = {device for job in over for device in job.devices}
        nodes = tuple(
            replace(node, free=node.free | {i for n, i in freed if n == node.name})
            for node in snapshot.nodes
        )
        more = []
        for _ in range(dice.randrange(4)):
            number += 1
            size, limit = dice.randint(1, 4), dice.choice([None, 5.0, 50.0, 500.0])
            owner = dice.choice("pq"), dice.choice("uv")
            more.append(
                JobRequest(f"k{number}", *owner, dice.randrange(9), now, size, limit_seconds=limit)
            )
        running = tuple(job for job in snapshot.running if job not in over)
        snapshot = replace(
            snapshot, now=now, nodes=nodes, running=running, queued=(*snapshot.queued, *more)
        )


@given(snapshots())
def test_the_line_is_the_order_of_turns_in_which_each_job_is_charged(
    snapshot: ClusterState,
) -> None:
    standing, expected = Standing.of(snapshot), []
    for job in turns(by_age(snapshot.queued), standing):
        expected.append(job.job_id)
        standing.charge(job)
    found = line(by_age(snapshot.queued), Standing.of(snapshot))
    assert [job.job_id for job in found] == expected


@given(snapshots())
def test_each_waiting_job_has_a_sentence_that_names_nothing_of_others(
    snapshot: ClusterState,
) -> None:
    """A job that it is behind is a fact of its own, which the api hides from other projects."""
    marked = _with_marks(snapshot)
    jobs = {job.job_id: job for job in marked.queued}
    plan = decide(marked)
    assert {wait.job_id for wait in plan.waits} == {
        *jobs.keys() - {start.job_id for start in plan.starts}
    }
    for wait in plan.waits:
        job, facts = jobs[wait.job_id], dict(wait.reason.facts)
        if facts.get("job") is not None:
            facts["job"] = "HIDDEN"
        text = sentence(WaitReason(wait.reason.code, facts))
        assert set(re.findall(r"<\w+>", text)) <= {job.project, job.user}, text


def _with_marks(snapshot: ClusterState) -> ClusterState:
    """Return the snapshot with names of jobs, projects and users that a text gives away."""

    def named(job: Any, **fields: Any) -> Any:
        project, user = f"<{job.project}>", f"<{job.project}{job.user}>"
        return replace(job, job_id=f"<{job.job_id}>", project=project, user=user, **fields)

    return replace(
        snapshot,
        queued=tuple(named(job) for job in snapshot.queued),
        running=tuple(named(job) for job in snapshot.running),
        projects={f"<{name}>": project for name, project in snapshot.projects.items()},
        usage={(f"<{name}>", f"<{name}{user}>"): n for (name, user), n in snapshot.usage.items()},
    )


def test_endless_jobs_of_two_projects_share_by_weight() -> None:
    """Weights 2 : 1, 1-device jobs of ten minutes: within one device of 2 : 1 in every hour."""
    dice = random.Random(7)
    nodes = tuple(
        ClusterNode(f"n{n}", dict.fromkeys(range(6), "A"), frozenset(range(6))) for n in range(2)
    )
    running: list[tuple[float, Running]] = []
    projects = {"big": Project(2.0), "small": Project(1.0)}
    used: Counter[tuple[int, str]] = Counter()
    number = 0
    for minute in range(6 * 60):
        now = 60.0 * minute
        running = [(end, job) for end, job in running if end > now]
        held = {device for _, job in running for device in job.devices}
        free = [
            replace(node, free=frozenset(i for i in range(6) if (node.name, i) not in held))
            for node in nodes
        ]
        queue = []
        for project in projects:
            for _ in range(12):
                number += 1
                queue.append(JobRequest(f"{number:06}", project, "u", 50, now, 1))
        snapshot = ClusterState(
            now, tuple(free), tuple(queue), tuple(job for _, job in running), projects
        )
        by_id = {job.job_id: job for job in queue}
        for start in decide(snapshot).starts:
            ((name, (index,)),) = start.devices
            project = by_id[start.job_id].project
            end = now + 60 * dice.randint(8, 12)
            running.append((end, Running(start.job_id, project, "u", ((name, index),))))
        for _, job in running:
            used[minute // 60, job.project] += 1
    for hour in range(1, 6):
        assert abs(used[hour, "big"] / 60 - 8) <= 1
        assert abs(used[hour, "small"] / 60 - 4) <= 1
