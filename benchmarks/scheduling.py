"""Two weeks of a simulated team under several rules of scheduling, and the time of one decision.

Run ``python -m benchmarks.scheduling [--seeds 3] [--limits 1.0] [--default 24] [--json FILE]``. Prints two tables.

The rules: *fifo* starts the oldest job or none; *before* is the rule until decision 31; *easy*
reserves devices for the oldest job that does not fit, and starts others that end before (Lifka, "The ANL/IBM
SP scheduling system", 1995); *easy + share* is the same in the order of the projects' shares;
*ours* is ``domain.scheduling.decide``. None of them knows how long a job really takes: they know
its time limit, if it has one (``--limits``, and ``--default`` for the others: a service with
projects gives 24 h). *ours* also expects an end of a running job whose steps and speed are
known (``--steps``), as the service does.

The workload follows published figures of clusters for deep learning: sizes and durations as in
Helios (Hu et al., SC 2021), where most jobs are short and small and few large ones use most of the
time; days and weeks have cycles; some arrivals are sweeps of many equal jobs. Ten projects have the
weights 1, 1/2, 1/3, ….

Not here: the service around a decision (``benchmarks.service``).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any, Final

from benchmarks.team import DAY, DAYS, DEVICES, HOUR, LOAD, NODES, WEIGHTS, Job, World, workload
from lockstep.domain.scheduling.decide import decide
from lockstep.domain.scheduling.state import (
    ClusterNode,
    ClusterState,
    Hold,
    JobRequest,
    Project,
    Running,
)

GANG: Final = 8


class Rule(ABC):
    """One rule of scheduling."""

    @abstractmethod
    def apply(self, world: World) -> None:
        """Start what may start now."""


class Fifo(Rule):
    """The oldest job, or none."""

    def apply(self, world: World) -> None:
        for job in sorted(world.queue.values(), key=lambda job: job.number):
            nodes = world.fit(job, world.free)
            if nodes is None:
                return
            world.start(job, nodes)


class Easy(Rule):
    """A reservation for the first job that does not fit; others fill in if they end before."""

    def __init__(self, order: Callable[[World, Job], Any]) -> None:
        self._order = order

    def apply(self, world: World) -> None:
        reserved: tuple[Job, tuple[int, ...], float] | None = None
        for job in sorted(world.queue.values(), key=lambda job: self._order(world, job)):
            if reserved is None:
                nodes = world.fit(job, world.free)
                if nodes is None:
                    reserved = job, *self._earliest(world, job)
                else:
                    world.start(job, nodes)
                continue
            nodes = self._beside(world, job, reserved)
            if nodes is not None:
                world.start(job, nodes)

    def _earliest(self, world: World, job: Job) -> tuple[tuple[int, ...], float]:
        times = []
        for node in range(NODES):
            ends = [
                world.end_of(number)
                for number, (other, nodes, _) in world.running.items()
                if node in nodes
                for _ in range(other.each)
            ]
            free = [world.now] * world.free[node] + sorted(ends)
            times.append((free[job.each - 1], -world.free[node], node))
        best = sorted(times)[: job.nodes]
        return tuple(node for *_, node in best), max(at for at, *_ in best)

    def _beside(
        self, world: World, job: Job, reserved: tuple[Job, tuple[int, ...], float]
    ) -> tuple[int, ...] | None:
        _, nodes, start = reserved
        ends_before = job.limit is not None and world.now + job.limit <= start < math.inf
        free = [
            0 if node in nodes and not ends_before else count
            for node, count in enumerate(world.free)
        ]
        return world.fit(job, free)


class Before(Rule):
    """The rule until decision 31: by age; each job that does not fit holds the emptiest nodes."""

    def apply(self, world: World) -> None:
        held: set[int] = set()
        for job in sorted(world.queue.values(), key=lambda job: job.number):
            free = [0 if node in held else count for node, count in enumerate(world.free)]
            nodes = world.fit(job, free)
            if nodes is not None:
                world.start(job, nodes)
                continue
            emptiest = sorted(
                (-world.free[node], node) for node in range(NODES) if node not in held
            )
            if len(emptiest) >= job.nodes:
                held |= {node for _, node in emptiest[: job.nodes]}


class Ours(Rule):
    """The rule of ``domain.scheduling``."""

    def __init__(self) -> None:
        self._holds: dict[str, Hold] = {}
        self.late = 0
        """Holds that moved later."""

    def apply(self, world: World) -> None:
        plan = decide(self._snapshot(world))
        for start in plan.starts:
            chosen = tuple(int(name) for name, _ in start.devices)
            world.start(world.queue[int(start.job_id)], chosen)
        former = self._holds
        self._holds = {wait.job_id: wait.hold for wait in plan.waits if wait.hold is not None}
        for job_id, hold in self._holds.items():
            before = former[job_id].starts_at if job_id in former else None
            start = math.inf if hold.starts_at is None else hold.starts_at
            self.late += before is not None and start > max(before, world.now)

    def _snapshot(self, world: World) -> ClusterState:
        kinds = dict.fromkeys(range(DEVICES), "A")
        taken: defaultdict[int, int] = defaultdict(int)
        running = []
        for number, (job, nodes, began) in world.running.items():
            devices = []
            for node in nodes:
                # Free ones are the first; which of the others a job has means nothing here.
                first = world.free[node] + taken[node]
                taken[node] += job.each
                devices += [(str(node), index) for index in range(first, first + job.each)]
            end = world.end_of(number)
            latest = None if end == math.inf else end
            about = None if job.expected is None else began + job.expected
            owner = job.project, job.project
            running.append(Running(str(number), *owner, tuple(devices), latest, about))
        return ClusterState(
            world.now,
            tuple(
                ClusterNode(str(n), kinds, frozenset(range(world.free[n]))) for n in range(NODES)
            ),
            tuple(self._queued(job) for job in world.queue.values()),
            tuple(running),
            {name: Project(weight) for name, weight in WEIGHTS.items()},
            {(name, name): world.usage[name] for name in WEIGHTS},
        )

    def _queued(self, job: Job) -> JobRequest:
        found = JobRequest(
            str(job.number), job.project, job.project, 50, job.at, job.devices, job.nodes
        )
        hold = self._holds.get(found.job_id)
        return replace(found, limit_seconds=job.limit, hold=hold)


RULES: Final[dict[str, Callable[[], Rule]]] = {
    "fifo": Fifo,
    "before": Before,
    "easy": lambda: Easy(lambda _, job: job.number),
    "easy + share": lambda: Easy(lambda world, job: (world.share(job), job.number)),
    "ours": Ours,
}


def simulate(jobs: list[Job], rule: Rule) -> dict[str, float]:
    """Run all jobs under a rule; return its figures, in minutes."""
    world, starts = World(), {}
    moments = [job.at for job in jobs]
    heapify(moments)
    ends: list[tuple[float, int]] = []
    arriving = 0
    while arriving < len(jobs) or world.queue or ends:
        now = min(
            jobs[arriving].at if arriving < len(jobs) else math.inf,
            ends[0][0] if ends else math.inf,
        )
        world.advance(now)
        while arriving < len(jobs) and jobs[arriving].at <= now:
            world.queue[jobs[arriving].number] = jobs[arriving]
            arriving += 1
        while ends and ends[0][0] <= now:
            world.finish(heappop(ends)[1])
        waiting = dict(world.queue)
        rule.apply(world)
        for number, job in waiting.items():
            if number not in world.queue:
                starts[number] = now
                heappush(ends, (now + job.seconds, number))
    waits = [(starts[job.number] - job.at) / 60 for job in jobs]
    gangs = [wait for wait, job in zip(waits, jobs, strict=True) if job.devices >= GANG]
    return {
        "wait": statistics.fmean(waits),
        "median": statistics.median(waits),
        "p90": statistics.quantiles(waits, n=10)[-1],
        "gang_wait": statistics.fmean(gangs),
        "completion": statistics.fmean(
            [wait + job.seconds / 60 for wait, job in zip(waits, jobs, strict=True)]
        ),
        "late_holds": getattr(rule, "late", 0),
    }


def decision_times(rounds: int) -> list[dict[str, Any]]:
    """Return the time of one decision, for a team's cluster and a large one."""
    rows = []
    for nodes, queued in ((25, 2_000), (1_000, 10_000)):
        for share in (1.0, 0.4, 0.0):
            snapshot = _busy(nodes, queued, share)
            seconds = []
            for _ in range(rounds):
                began = time.perf_counter()
                plan = decide(snapshot)
                seconds.append(time.perf_counter() - began)
            rows.append(
                {
                    "nodes": nodes,
                    "queued": queued,
                    "free": share,
                    "median_ms": 1e3 * statistics.median(seconds),
                    "p95_ms": 1e3 * sorted(seconds)[math.ceil(0.95 * rounds) - 1],
                    "started": len(plan.starts),
                }
            )
    return rows


def _busy(count: int, queued: int, share_free: float) -> ClusterState:
    dice, kinds = random.Random(1337), ("H200", "L4")
    nodes, running = [], []
    for number in range(count):
        name = f"node-{number:04d}"
        free = frozenset(index for index in range(DEVICES) if dice.random() < share_free)
        nodes.append(ClusterNode(name, dict.fromkeys(range(DEVICES), kinds[number % 2]), free))
        running += [
            Running(
                f"{name}-{index}",
                f"p{dice.randrange(10)}",
                f"u{dice.randrange(40)}",
                ((name, index),),
                ends_at=dice.choice((None, dice.uniform(0, DAY))),
            )
            for index in set(range(DEVICES)) - free
        ]
    jobs = [
        JobRequest(
            f"job-{number:05d}",
            f"p{dice.randrange(10)}",
            f"u{dice.randrange(40)}",
            dice.choice((0, 50, 50, 100)),
            float(number),
            (on := dice.choice((1, 1, 1, 4))) * dice.choice((1, 2, 4, 8)),
            on,
            dice.choice((None, *kinds)),
            limit_seconds=dice.choice((None, 600.0, HOUR, DAY)),
        )
        for number in range(queued)
    ]
    return ClusterState(0.0, tuple(nodes), tuple(jobs), tuple(running))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limits", type=float, default=1.0, help="share of jobs with a time limit")
    parser.add_argument("--default", type=float, help="time limit of the other jobs, in hours")
    parser.add_argument("--steps", type=float, default=0.0, help="share of jobs with known steps")
    parser.add_argument("--rounds", type=int, default=21, help="of each decision's time")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    default = None if options.default is None else options.default * HOUR
    others = "none" if default is None else f"{options.default:g} h"
    shares = f"limits on {options.limits:.0%} (others {others}), steps in {options.steps:.0%}"
    print(f"{NODES} x {DEVICES} devices, {DAYS} days, load {LOAD}, {shares}")
    print("minutes         seed   jobs      wait    median       p90  gang wait  completion  late")
    found = []
    for seed in range(1, options.seeds + 1):
        jobs = workload(seed, options.limits, options.steps, default)
        for name, make in RULES.items():
            row = {"rule": name, "seed": seed, "jobs": len(jobs), **simulate(jobs, make())}
            found.append(row)
            print(
                f"{name:14} {seed:5} {len(jobs):6} {row['wait']:9.0f} {row['median']:9.1f} "
                f"{row['p90']:9.0f} {row['gang_wait']:10.0f} {row['completion']:11.0f} "
                f"{row['late_holds']:5.0f}",
                flush=True,
            )
    for name in RULES:
        rows = [row for row in found if row["rule"] == name]
        wait, gang = (statistics.fmean(row[key] for row in rows) for key in ("wait", "gang_wait"))
        print(f"{name:14}  mean {'':6} {wait:9.0f} {'':9} {'':9} {gang:10.0f}")
    print("one decision    nodes  queued  free  median ms    p95 ms  started")
    times = decision_times(options.rounds)
    for row in times:
        print(
            f"{'':14} {row['nodes']:6} {row['queued']:7} {row['free']:5.0%} "
            f"{row['median_ms']:10.1f} {row['p95_ms']:9.1f} {row['started']:8}"
        )
    if options.json is not None:
        document = {"simulation": found, "decisions": times}
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
