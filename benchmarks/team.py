"""Two weeks of a simulated team: its jobs, and the state of its cluster.

Not here: the rules that are compared on it (``benchmarks.scheduling``).
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

NODES, DEVICES = 8, 8
DAYS, LOAD = 14, 0.9
HOUR, DAY = 3_600.0, 86_400.0
HALF_LIFE: Final = 2 * DAY
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
    expected: float | None = None
    """Duration that its speed and its steps give; None for a job without steps."""

    @property
    def nodes(self) -> int:
        """Nodes that it needs."""
        return max(1, self.devices // DEVICES)

    @property
    def each(self) -> int:
        """Devices on each of them."""
        return self.devices // self.nodes


def workload(
    seed: int, limited: float, stepped: float = 0.0, default: float | None = None
) -> list[Job]:
    """Return the jobs of two weeks at 90 % of the devices.

    Parameters
    ----------
    seed : int
    limited : float
        Share of the jobs whose owner sets a time limit.
    stepped : float, optional
        Share of the jobs that have steps, and so an expected end: within a tenth of the real one.
    default : float, optional
        Time limit in seconds that the service gives the other jobs. The owner of a longer job sets
        one.
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
            limit: float | None = next(one for one in LIMITS if one >= min(asked, LIMITS[-1]))
            if dice.random() >= limited and (default is None or seconds <= default):
                limit = default
            jobs.append((at, size, seconds, limit, project))
            budget -= size * seconds
    jobs.sort(key=lambda job: job[0])
    # Of another source, so that the jobs are the same for each share.
    speed = random.Random(seed + 1_000)
    return [
        Job(number, *job, expected=job[2] * speed.uniform(0.9, 1.1) if has_steps else None)
        for number, job in enumerate(jobs)
        for has_steps in [speed.random() < stepped]
    ]


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
