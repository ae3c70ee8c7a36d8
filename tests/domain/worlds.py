"""Random clusters and queues for the tests of scheduling, and what a plan leaves of them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from lockstep.domain.scheduling.state import (
    ClusterNode,
    ClusterState,
    JobRequest,
    Plan,
    Project,
    Running,
)

KINDS = ("A", "B")
OFFERS = ("x", "y")
NEEDS = tuple(map(frozenset, ("", "", "", "x", "y", "xy", "z")))


@st.composite
def clusters(draw: st.DrawFn, nodes_max: int = 5, *, all_ready: bool = False) -> list[ClusterNode]:
    nodes = []
    for number in range(draw(st.integers(0, nodes_max))):
        kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
        free = draw(st.frozensets(st.integers(0, len(kinds) - 1)))
        ready = all_ready or draw(st.integers(0, 4)) > 0
        offers = draw(st.frozensets(st.sampled_from(OFFERS)))
        nodes.append(ClusterNode(f"n{number}", dict(enumerate(kinds)), free, ready, offers))
    return nodes


@st.composite
def queues(draw: st.DrawFn, jobs_max: int = 8) -> list[JobRequest]:
    jobs = []
    for number in range(draw(st.integers(1, jobs_max))):
        nodes = draw(st.sampled_from([1, 1, 1, 2]))
        jobs.append(
            JobRequest(
                job_id=f"j{number}",
                project=draw(st.sampled_from(["p", "q"])),
                user=draw(st.sampled_from(["u", "v"])),
                priority=draw(st.integers(0, 2)),
                submitted_at=float(draw(st.integers(0, 3))),
                devices=draw(st.integers(1, 4)) * nodes,
                nodes=nodes,
                device_type=draw(st.sampled_from([None, *KINDS])),
                needs=draw(st.sampled_from(NEEDS)),
                avoid=draw(st.frozensets(st.sampled_from(["n0", "n1"]))),
                not_before=draw(st.sampled_from([0.0, 0.0, 0.0, 150.0])),
                limit_seconds=draw(st.sampled_from([None, 10.0, 100.0, 1_000.0])),
            )
        )
    return jobs


@st.composite
def snapshots(draw: st.DrawFn, *, all_ready: bool = False) -> ClusterState:
    """Return a state at the second 100. Each busy device belongs to a job of its own."""
    nodes = draw(clusters(all_ready=all_ready))
    busy = [
        (node.name, index) for node in nodes for index in node.devices if index not in node.free
    ]
    running = [
        Running(
            f"r{number}",
            draw(st.sampled_from(["p", "q"])),
            "u",
            (device,),
            ends_at=draw(st.sampled_from([None, 90.0, 150.0, 300.0, 2_000.0])),
            expected_at=draw(st.sampled_from([None, None, 95.0, 120.0, 250.0])),
        )
        for number, device in enumerate(busy)
    ]
    projects = {
        "p": Project(draw(st.sampled_from([1.0, 2.0]))),
        "q": Project(1.0, draw(st.sampled_from([None, 3])), draw(st.sampled_from([None, None, 2]))),
    }
    usage = {("p", "v"): draw(st.floats(0, 5)), ("q", "u"): draw(st.floats(0, 5))}
    queue = tuple(draw(queues()))
    return ClusterState(100.0, tuple(nodes), queue, tuple(running), projects, usage)


def after(snapshot: ClusterState, plan: Plan, late_seconds: float) -> ClusterState:
    """Return the state after the starts of a plan, with the holds of the others."""
    jobs = {job.job_id: job for job in snapshot.queued}
    running = list(snapshot.running)
    nodes = {node.name: node for node in snapshot.nodes}
    for start in plan.starts:
        job = jobs.pop(start.job_id)
        devices = tuple((name, index) for name, indices in start.devices for index in indices)
        end = None if job.limit_seconds is None else snapshot.now + job.limit_seconds + late_seconds
        running.append(Running(job.job_id, job.project, job.user, devices, ends_at=end))
        for name, index in devices:
            nodes[name] = replace(nodes[name], free=nodes[name].free - {index})
    queued = tuple(replace(jobs[wait.job_id], hold=wait.hold) for wait in plan.waits)
    return replace(snapshot, nodes=tuple(nodes.values()), queued=queued, running=tuple(running))
