"""Two weeks of a simulated team under several rules of scheduling, and the time of one decision.

Run ``python benchmarks/scheduling.py [--seeds 3] [--limits 1.0] [--json FILE]``. Prints two tables.

The rules: *fifo* starts the oldest job or none; *before* is ``domain.placement``; *easy* reserves
devices for the oldest job that does not fit, and starts others that end before (Lifka, "The ANL/IBM
SP scheduling system", 1995); *easy + share* is the same in the order of the projects' shares; *ours*
is ``domain.scheduling.decide``. None of them knows how long a job really takes: they know its time
limit, if it has one.

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
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any, Final

from lockstep.domain.placement.decide import place
from lockstep.domain.placement.requests import Node as PlacementNode
from lockstep.domain.placement.requests import Placed, PlacementRequest
from lockstep.domain.scheduling.decide import decide
from lockstep.domain.scheduling.state import Hold, Node, Project, QueuedJob, Running, Snapshot

NODES, DEVICES = 8, 8
DAYS, LOAD = 14, 0.9
HOUR, DAY = 3_600.0, 86_400.0
HALF_LIFE: Final = 2 * DAY
GANG: Final = 8
SIZES: Final = {1: 0.62, 2: 0.09, 4: 0.09, 8: 0.15, 16: 0.03, 32: 0.02}
MEDIANS: Final = {1: 150.0, 2: 200.0, 4: 400.0, 8: 900.0, 16: 2_400.0, 32: 3_600.0}
SIGMA, LONGEST = 2.3, 7 * DAY
SWEEPS, SWEEP_JOBS = 0.03, 15
WEIGHTS: Final = {f"p{number}": 1.0 / number for number in range(1, 11)}
LIMITS: Final = (0.5 * HOUR, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, DAY, 2 * DAY, 4 * DAY, 14 * DAY)
"""Round times that people ask for."""


@dataclass(frozen=True)
class Job:
    """One job of the workload."""

    number: int
    at: float
    devices: int
    seconds: float
    limit: float | None
    project: str

    @property
    def nodes(self) -> int:
        """Nodes that it needs."""
        return max(1, self.devices // DEVICES)

    @property
    def each(self) -> int:
        """Devices on each of them."""
        return self.devices // self.nodes


def workload(seed: int, limited: float) -> list[Job]:
    """Return the jobs of two weeks at 90 % of the devices.

    Parameters
    ----------
    seed : int
    limited : float
        Share of the jobs that have a time limit.
    """
    dice = random.Random(seed)
    jobs: list[tuple[float, int, float, float | None, str]] = []
    budget = LOAD * NODES * DEVICES * DAYS * DAY
    while budget > 0:
        at = _moment(dice)
        size = dice.choices(list(SIZES), list(SIZES.values()))[0]
        project = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        for _ in range(dice.randint(10, 20) if dice.random() < SWEEPS else 1):
            seconds = min(LONGEST, dice.lognormvariate(math.log(MEDIANS[size]), SIGMA))
            asked = seconds * dice.uniform(1.1, 4.0)
            limit = next(one for one in LIMITS if one >= min(asked, LIMITS[-1]))
            jobs.append((at, size, seconds, limit if dice.random() < limited else None, project))
            budget -= size * seconds
    jobs.sort(key=lambda job: job[0])
    return [Job(number, *job) for number, job in enumerate(jobs)]


def _moment(dice: random.Random) -> float:
    """Draw a time: by day more than by night, at the weekend half as much."""
    while True:
        at = dice.uniform(0, DAYS * DAY)
        day, hour = int(at // DAY) % 7, at % DAY / HOUR
        busy = (1.0 if 8 <= hour < 20 else 0.35) * (0.5 if day >= 5 else 1.0)
        if dice.random() < busy:
            return at


@dataclass
class World:
    """State of the simulated cluster."""

    now: float = 0.0
    free: list[int] = field(default_factory=lambda: [DEVICES] * NODES)
    running: dict[int, tuple[Job, tuple[int, ...], float]] = field(default_factory=dict)
    """Job, its nodes, and its start."""
    queue: dict[int, Job] = field(default_factory=dict)
    usage: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Devices of each project on average, older use counting less."""

    def advance(self, to: float) -> None:
        """Let time go on to a moment, and account the devices in use."""
        kept = 0.5 ** ((to - self.now) / HALF_LIFE)
        in_use = self.in_use()
        for project in WEIGHTS:
            self.usage[project] = self.usage[project] * kept + in_use[project] * (1 - kept)
        self.now = to

    def in_use(self) -> defaultdict[str, int]:
        """Return the devices in use by project."""
        found: defaultdict[str, int] = defaultdict(int)
        for job, _, _ in self.running.values():
            found[job.project] += job.devices
        return found

    def share(self, job: Job) -> float:
        """Return the devices of the job's project for one unit of weight."""
        return (self.usage[job.project] + self.in_use()[job.project]) / WEIGHTS[job.project]

    def end_of(self, number: int) -> float:
        """Return the latest end of a running job; infinite without a limit."""
        job, _, began = self.running[number]
        return math.inf if job.limit is None else began + job.limit

    def fit(self, job: Job, free: list[int]) -> tuple[int, ...] | None:
        """Return the nodes that leave the fewest devices over."""
        able = sorted((free[node], node) for node in range(NODES) if free[node] >= job.each)
        return None if len(able) < job.nodes else tuple(node for _, node in able[: job.nodes])

    def start(self, job: Job, nodes: tuple[int, ...]) -> None:
        """Start a job."""
        del self.queue[job.number]
        for node in nodes:
            self.free[node] -= job.each
            assert self.free[node] >= 0, "more devices than there are"
        self.running[job.number] = job, nodes, self.now

    def finish(self, number: int) -> None:
        """End a job."""
        job, nodes, _ = self.running.pop(number)
        for node in nodes:
            self.free[node] += job.each


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
    """The rule of ``domain.placement``."""

    def apply(self, world: World) -> None:
        kinds = dict.fromkeys(range(DEVICES), "A")
        nodes = [
            PlacementNode(str(node), kinds, frozenset(range(world.free[node])))
            for node in range(NODES)
        ]
        requests = [
            PlacementRequest(str(job.number), 50, job.at, job.devices, job.nodes)
            for job in world.queue.values()
        ]
        for decision in place(requests, nodes, now=world.now):
            if isinstance(decision, Placed):
                chosen = tuple(int(name) for name, _ in decision.devices)
                world.start(world.queue[int(decision.job_id)], chosen)


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
        former, self._holds = self._holds, {}
        for wait in plan.waits:
            if wait.hold is not None:
                self._holds[wait.job_id] = wait.hold
                was = former.get(wait.job_id)
                known = was is not None and was.starts_at is not None
                moved = wait.hold.starts_at is None or (
                    known and wait.hold.starts_at > max(was.starts_at, world.now)  # type: ignore[union-attr, type-var]
                )
                self.late += known and moved

    def _snapshot(self, world: World) -> Snapshot:
        kinds = dict.fromkeys(range(DEVICES), "A")
        taken: defaultdict[int, int] = defaultdict(int)
        running = []
        for number, (job, nodes, _) in world.running.items():
            devices = []
            for node in nodes:
                # Free ones are the first; which of the others a job has means nothing here.
                first = world.free[node] + taken[node]
                taken[node] += job.each
                devices += [(str(node), index) for index in range(first, first + job.each)]
            end = world.end_of(number)
            latest = None if end == math.inf else end
            running.append(Running(str(number), job.project, "u", tuple(devices), latest))
        return Snapshot(
            world.now,
            tuple(Node(str(n), kinds, frozenset(range(world.free[n]))) for n in range(NODES)),
            tuple(self._queued(job) for job in world.queue.values()),
            tuple(running),
            {name: Project(weight) for name, weight in WEIGHTS.items()},
            {(name, "u"): world.usage[name] for name in WEIGHTS},
        )

    def _queued(self, job: Job) -> QueuedJob:
        found = QueuedJob(str(job.number), job.project, "u", 50, job.at, job.devices, job.nodes)
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


def _busy(count: int, queued: int, share_free: float) -> Snapshot:
    dice, kinds = random.Random(1337), ("H200", "L4")
    nodes, running = [], []
    for number in range(count):
        name = f"node-{number:04d}"
        free = frozenset(index for index in range(DEVICES) if dice.random() < share_free)
        nodes.append(Node(name, dict.fromkeys(range(DEVICES), kinds[number % 2]), free))
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
        QueuedJob(
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
    return Snapshot(0.0, tuple(nodes), tuple(jobs), tuple(running))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limits", type=float, default=1.0, help="share of jobs with a time limit")
    parser.add_argument("--rounds", type=int, default=21, help="of each decision's time")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    print(f"{NODES} x {DEVICES} devices, {DAYS} days, load {LOAD}, limits on {options.limits:.0%}")
    print("minutes         seed   jobs      wait    median       p90  gang wait  completion  late")
    found = []
    for seed in range(1, options.seeds + 1):
        jobs = workload(seed, options.limits)
        for name, make in RULES.items():
            row = {"rule": name, "seed": seed, "jobs": len(jobs), **simulate(jobs, make())}
            found.append(row)
            print(
                f"{name:14} {seed:5} {len(jobs):6} {row['wait']:9.0f} {row['median']:9.1f} "
                f"{row['p90']:9.0f} {row['gang_wait']:10.0f} {row['completion']:11.0f} "
                f"{row['late_holds']:5.0f}",
                flush=True,
            )
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
