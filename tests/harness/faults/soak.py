"""A service under load and under faults for any time.

Two nodes with simulated ranks, an api, two schedulers and a broker run a number of jobs at a time.
Clients poll the jobs, and repeatedly a program is killed or stands still for a while. The test
restarts it, like an init system, and resumes quarantined nodes, like an operator.

Not here: the required final state (``tests.faults.test_soak``).
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
from sqlalchemy import func, select

from lockstep.client.api import Client
from lockstep.client.errors import ClientError
from lockstep.domain.life.attempt import LAUNCHER
from lockstep.domain.life.lifecycle import TERMINAL, JobState
from lockstep.storage.db.tables import JobRow
from tests.harness.node import FAKE_LAUNCHER, Node
from tests.harness.plane import Plane, script

PATIENCE_SECONDS: Final = 240.0
"""Limit of a client: longer than any outage."""
LOOK_SECONDS: Final = 0.5
"""Between two polls of one client."""
CANCELLED_SHARE: Final = 0.1
STUBBORN_SHARE: Final = 0.1
POINTS: Final = (20, 200)
"""Of one job: fewest and most."""
RETRIES: Final = 100
"""High enough that no job fails because of the number of its faults."""
AWAY_SECONDS: Final = 5.0
"""Longest time until a killed program is restarted."""

WORK: Final = """
work = json.loads((folder / "assignment.json").read_text())
written = Path({folder!r}) / f"{{work['job_id']}} {{work['attempt_number']}}"
ranks(); event("running")
if {stubborn}: stubborn_child()
for step in range(1, {points} + 1):
    if stop := asked_to_stop(): finish(stop["reason"])
    if fenced(): finish("cut_off", "fenced")
    metric({{"step": step, "loss": step / 2}})
    with written.open("a") as file: file.write(".")
    if step % 10 == 0: log(f"line {{step}}")
    time.sleep(0.05)
finish()
"""
"""A rank that reports the number of its points also if the service cannot receive them."""


@dataclass(frozen=True)
class Load:
    """Amounts of the load."""

    seconds: float = 1200.0
    fault_seconds: float = 20.0
    jobs: int = 20
    clients: int = 20
    seed: int = 0

    @classmethod
    def from_environment(cls) -> Load:
        """Read ``LOCKSTEP_SOAK_SECONDS`` and so on; without a named seed, each run has its own."""
        named = {
            name: os.environ.get(f"LOCKSTEP_SOAK_{name.upper()}")
            for name in cls.__dataclass_fields__
        }
        given: dict[str, Any] = {
            name: type(getattr(cls, name))(value)
            for name, value in named.items()
            if value is not None
        }
        return cls(**{"seed": random.SystemRandom().randrange(2**32), **given})


@dataclass
class Accepted:
    """Requests that the service has accepted."""

    points: dict[str, int] = field(default_factory=dict)
    """Of each job."""
    cancelled: set[str] = field(default_factory=set)
    """Jobs with a requested cancel."""


class Seen(NamedTuple):
    """Resources of a program at one moment."""

    warm_seconds: float
    """Time that it has lived under this load."""
    descriptors: int
    resident_bytes: int


class Soak:
    """Soak test of this module."""

    def __init__(self, plane: Plane, second: Node, load: Load, folder: Path) -> None:
        self.plane, self.load, self.written = plane, load, folder
        self.nodes = {node.name: node for node in (plane.node, second)}
        self.accepted = Accepted()
        self.faults: Counter[str] = Counter()
        self.looks = 0
        self.broken: list[str] = []
        """Violations that clients observed."""
        self.held: dict[tuple[str, int], list[Seen]] = defaultdict(list)
        """By program and process."""
        self._chance = random.Random(load.seed)
        self._over = threading.Event()

    def run(self) -> None:
        """Run until the time is over and every job has ended."""
        ends_at = time.monotonic() + self.load.seconds
        crowd = [self._thread(self._submit, ends_at), self._thread(self._sample)]
        crowd += [self._thread(self._look, number) for number in range(self.load.clients)]
        try:
            while (left := ends_at - time.monotonic()) > 0:
                next_at = time.monotonic() + min(left, self.load.fault_seconds)
                self._break_something()
                time.sleep(max(0.0, next_at - time.monotonic()))
            crowd.pop(0).join()
            self._drain()
        finally:
            self._over.set()
            for thread in crowd:
                thread.join()

    def client(self) -> Client:
        return self.plane.client(patience_seconds=PATIENCE_SECONDS)

    def living(self) -> int:
        """Return the number of jobs that have not ended."""
        with self.plane.database.read_jobs() as session:
            return session.execute(
                select(func.count()).where(JobRow.state.not_in(TERMINAL))
            ).scalar_one()

    def _thread(self, work: Callable[..., None], *names: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                work(*names)
            except Exception as error:  # noqa: BLE001 -- the test reports it at its end
                self.broken.append(f"{work.__name__}: {error!r}")

        thread = threading.Thread(target=guarded, name=work.__name__, daemon=True)
        thread.start()
        return thread

    def _drain(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.living():
            assert time.monotonic() < deadline, f"{self.living()} jobs do not end"
            self._resume_nodes()
            time.sleep(LOOK_SECONDS)

    # -- users
    # ----------------------------------------------------------------------------------------------

    def _submit(self, ends_at: float) -> None:
        """Keep a number of jobs active, and cancel some of them at any moment of their lives."""
        chance = random.Random(self.load.seed + 1)
        due: list[tuple[float, str]] = []
        with self.client() as client:
            while time.monotonic() < ends_at or due:
                for moment, job in [one for one in due if one[0] <= time.monotonic()]:
                    due.remove((moment, job))
                    self._cancel(client, job)
                if time.monotonic() < ends_at and self.living() < self.load.jobs:
                    points = chance.randint(*POINTS)
                    stubborn = chance.random() < STUBBORN_SHARE
                    source = WORK.format(folder=str(self.written), points=points, stubborn=stubborn)
                    job = client.submit(script(source, retry={"max": RETRIES})).id
                    self.accepted.points[job] = points
                    if chance.random() < CANCELLED_SHARE:
                        due.append((time.monotonic() + chance.uniform(0, 12), job))
                else:
                    time.sleep(0.05)

    def _cancel(self, client: Client, job: str) -> None:
        self.accepted.cancelled.add(job)
        try:
            client.cancel(job)
        except ClientError:
            if client.job(job).state not in TERMINAL:  # too late is no error
                raise

    def _look(self, number: int) -> None:
        """Poll jobs permanently as one client: an ended job never changes."""
        chance = random.Random(self.load.seed + 2 + number)
        ended: dict[str, JobState] = {}
        with self.client() as client:
            while not self._over.wait(LOOK_SECONDS):
                jobs = list(self.accepted.points)[-4 * self.load.jobs :]
                if not jobs:
                    continue
                job = client.job(chance.choice(jobs))
                if ended.get(job.id, job.state) != job.state:
                    self.broken.append(f"{job.id} was {ended[job.id]} and is {job.state}")
                if job.state in TERMINAL:
                    ended[job.id] = job.state
                what: Callable[[], object] = chance.choice(
                    [
                        lambda job=job: client.metrics(job.id),
                        lambda job=job: client.log_page(job.id),
                        lambda job=job: list(client.events(job.id)),
                        client.nodes,
                        lambda: list(client.queue()),
                    ]
                )
                what()
                self.looks += 1

    # -- faults
    # ----------------------------------------------------------------------------------------------

    def _break_something(self) -> None:
        kinds: list[Callable[[], str | None]] = [
            self._kill_api,
            self._kill_scheduler,
            self._kill_agent,
            self._kill_broker,
            self._kill_launcher,
            self._kill_node,
            self._freeze,
            self._freeze,
        ]
        what = self._chance.choice(kinds)()
        if what is not None:
            self.faults[what] += 1
        self._resume_nodes()

    def _kill_api(self) -> str:
        self.plane.api.end(signal.SIGKILL)
        self._stay_away()
        self.plane.api.start()
        return "SIGKILL api"

    def _kill_scheduler(self) -> str:
        victim = self._chance.choice(self.plane.schedulers)
        victim.process.kill()
        victim.process.wait()
        self.plane.schedulers.remove(victim)
        self._stay_away()
        self.plane.start_scheduler()
        return "SIGKILL scheduler"

    def _kill_agent(self) -> str:
        node = self._a_node()
        node.kill()
        self._stay_away()
        self._start(node)
        return "SIGKILL agent"

    def _kill_node(self) -> str:
        node = self._a_node()
        node.close()
        self._stay_away()
        self._start(node)
        return "SIGKILL a whole node"

    def _kill_broker(self) -> str:
        self.plane.broker.kill()
        self._stay_away()
        self.plane.broker.start()
        return "SIGKILL broker"

    def _kill_launcher(self) -> str | None:
        pids = self._launchers()
        if not pids:
            return None
        try:
            psutil.Process(self._chance.choice(pids)).kill()
        except psutil.NoSuchProcess:
            return None
        return "SIGKILL launcher"

    def _freeze(self) -> str | None:
        """SIGSTOP for some seconds, also for longer than a lease."""
        programs = {name.split()[0]: process for name, process in self.programs().items()}
        launchers = self._launchers()
        if launchers:
            programs["launcher"] = psutil.Process(self._chance.choice(launchers))
        name = self._chance.choice(sorted(programs))
        try:
            programs[name].suspend()
            time.sleep(self._chance.uniform(1.0, self.load.fault_seconds))
            programs[name].resume()
        except psutil.NoSuchProcess:
            return None
        return f"SIGSTOP {name}"

    def _stay_away(self) -> None:
        time.sleep(self._chance.uniform(0.0, AWAY_SECONDS))

    def _a_node(self) -> Node:
        return self.nodes[self._chance.choice(sorted(self.nodes))]

    def _start(self, node: Node) -> None:
        node.start(launcher=FAKE_LAUNCHER, LOCKSTEP_CPU_SLOTS=str(self.plane.devices))

    def _resume_nodes(self) -> None:
        with self.client() as client:
            for name in self.nodes:
                client.resume_node(name)

    def _launchers(self) -> list[int]:
        """Return the pids of running launchers."""
        found = []
        for node in self.nodes.values():
            for file in node.dir.glob(f"*/{LAUNCHER}"):
                try:
                    pid = int(file.read_text().split('"pid": ')[1].split(",")[0])
                    if str(file.parent) in psutil.Process(pid).cmdline():
                        found.append(pid)
                except (OSError, psutil.Error):
                    continue  # it has just ended
        return sorted(found)

    # -- resources of programs
    # --------------------------------------------------------------------------------------

    def programs(self) -> dict[str, psutil.Process]:
        """Return the running programs, by name."""
        found = {
            name: process for name, process in self.plane.processes().items() if name != "agent"
        }
        for name, node in self.nodes.items():
            if node.runs and node.agent is not None:
                found[f"agent {name}"] = psutil.Process(node.agent.pid)
        return found

    def _sample(self) -> None:
        began = time.time()
        while not self._over.wait(2.0):
            for name, process in self.programs().items():
                try:
                    warm = time.time() - max(began, process.create_time())
                    seen = Seen(warm, process.num_fds(), process.memory_info().rss)
                except psutil.Error:
                    continue
                self.held[name.split()[0], process.pid].append(seen)
