"""The control plane as real processes, each of which can be killed, frozen and started again.

Only the test restarts them. Broker, api, schedulers and one node agent run over real databases. The
agent's launcher is the fake that runs no ranks, unless a drill is about ranks: then it is the real
one.

Not here: ``lockstep up``, which restarts killed programs (``tests.harness.service``).
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from sqlalchemy import func, select

from lockstep.client.api import Client
from lockstep.domain.life.lifecycle import AssignmentState
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, JobRow
from tests.harness.databases import Urls
from tests.harness.drills import Drill
from tests.harness.node import FAKE_LAUNCHER, Node
from tests.harness.processes import Program, Scheduler, running_broker, until

ENDED: Final = {"succeeded", "failed", "cancelled"}
PATIENCE_SECONDS: Final = 120.0
"""Limit for an effect whose time is not measured."""


class Plane:
    """Control plane of this module. Created by ``running_plane``."""

    def __init__(
        self, folder: Path, urls: Urls, broker: Any, *, scale: float, devices: int
    ) -> None:
        self.folder, self.urls, self.broker, self.scale = folder, urls, broker, scale
        self.database = Database(*urls)
        self.api = self.new_api()
        self.schedulers: list[Scheduler] = []
        self.node = Node(folder, self.database, urls, broker.url, scale=scale)
        self.devices = devices
        self._schedulers_started = 0

    def start(self, launcher: list[str], *, schedulers: int) -> None:
        """Start all programs at once."""
        with ThreadPoolExecutor() as pool:
            starts = [
                pool.submit(self.api.start),
                pool.submit(self.start_node, launcher),
                *(pool.submit(self.start_scheduler) for _ in range(schedulers)),
            ]
            for start in starts:
                start.result()

    def start_node(self, launcher: list[str] = FAKE_LAUNCHER) -> None:
        self.node.start(launcher=launcher, LOCKSTEP_CPU_SLOTS=str(self.devices))

    def start_scheduler(self) -> Scheduler:
        self._schedulers_started += 1
        number = self._schedulers_started
        made = Scheduler(
            self.folder, self.urls, self.broker.url, timings_scale=self.scale, number=number
        )
        self.schedulers.append(made)
        return made

    def new_api(self, *command: str) -> Program:
        """Return another api over the same databases, not started yet.

        ``command`` is the module with its arguments.
        """
        return Program(
            self.folder,
            *command,
            LOCKSTEP_DATABASE_URL=self.urls[0],
            LOCKSTEP_SERIES_URL=self.urls[1],
            LOCKSTEP_BROKER_URL=self.broker.url,
            LOCKSTEP_MIGRATE="off",
        )

    def close(self) -> None:
        for scheduler in self.schedulers:
            scheduler.process.kill()
            scheduler.process.wait()
        self.api.end(signal.SIGKILL)
        self.node.close()
        self.database.close()

    def client(self, url: str | None = None, **options: Any) -> Client:
        options = {"patience_seconds": PATIENCE_SECONDS, "say": lambda _line: None, **options}
        return Client(url or self.api.url, self.api.token, **options)

    def attempts(self) -> Counter[str]:
        """Return the number of attempts of each job."""
        with self.database.read_jobs() as session:
            rows = session.execute(
                select(AttemptRow.job_id, func.count()).group_by(AttemptRow.job_id)
            )
            return Counter(dict(rows.all()))

    def states(self) -> dict[str, str]:
        """Return the states of all jobs, by id."""
        with self.database.read_jobs() as session:
            return {
                job: state.value for job, state in session.execute(select(JobRow.id, JobRow.state))
            }

    def idle(self) -> bool:
        """Return True if every device is free."""
        with self.database.read_jobs() as session:
            return (
                session.query(AssignmentRow)
                .filter(AssignmentRow.state != AssignmentState.RELEASED)
                .count()
                == 0
            )

    def all_end(self, jobs: set[str], seconds: float = PATIENCE_SECONDS) -> dict[str, str]:
        """Wait until these have ended; return their states."""

        def ended() -> dict[str, str] | None:
            found = {job: state for job, state in self.states().items() if job in jobs}
            return found if set(found.values()) <= ENDED else None

        try:
            return until(ended, seconds, "the end of every job")
        except AssertionError as error:
            states = self.states()
            stuck = next(job for job in jobs if states.get(job) not in ENDED)
            found = Counter(states[job] for job in jobs)
            raise AssertionError(
                f"{error}: {found}; of {stuck}: {self.node.events(stuck)}"
            ) from None

    def end_gapless(self, job: str, flag: Path, drill: Drill) -> None:
        """End a job of ``running`` in its first attempt.

        Check that each of its points is stored.
        """
        flag.touch()
        (state,) = self.all_end({job}).values()
        assert (state, self.attempts()[job]) == ("succeeded", 1), self.node.events(job)
        steps = self.node.series(job)["loss"].step
        wanted = range(int(flag.read_text()))
        drill.lost += len(set(wanted) - set(steps))
        drill.doubled += len(steps) - len(set(steps))
        assert list(steps) == list(wanted)

    def processes(self) -> dict[str, psutil.Process]:
        """Return the running programs, by name."""
        found = {"api": self.api.process, "agent": self.node.agent}
        found |= {
            f"scheduler {number}": each.process for number, each in enumerate(self.schedulers)
        }
        return {
            name: psutil.Process(each.pid)
            for name, each in found.items()
            if each and each.poll() is None
        }


@contextmanager
def running_plane(
    folder: Path,
    urls: Urls,
    *,
    scale: float,
    devices: int = 8,
    launcher: list[str] = FAKE_LAUNCHER,
    schedulers: int = 1,
) -> Iterator[Plane]:
    """Run the control plane over migrated databases."""
    with running_broker() as broker:
        plane = Plane(folder, urls, broker, scale=scale, devices=devices)
        try:
            plane.start(launcher, schedulers=schedulers)
            yield plane
        finally:
            plane.close()


def script(source: str, *, name: str = "j", gpus: int = 1, **more: Any) -> dict[str, Any]:
    """Return a job whose command is ``source``.

    This is Python for the fake launcher, and a file for the real one.
    """
    return {
        "name": name,
        "kind": "script",
        "script": {"command": [source]},
        "resources": {"gpus": gpus},
        **more,
    }


def noted(file: Path) -> str:
    """Return the source of a job that records its start in a file and ends at once."""
    name = "json.loads((folder / 'assignment.json').read_text())['job_id']"
    return f"open({str(file)!r}, 'a').write({name} + '\\n'); ranks(); finish()"


def running(flag: Path) -> str:
    """Return the source of a job that sends a point every 20 ms until ``flag`` exists.

    Then it writes their number into that file.
    """
    return f"""
turn = 0
ranks()
while not (asked_to_stop() or fenced() or Path({str(flag)!r}).exists()):
    metric({{"step": turn, "loss": 1.0}})
    turn += 1
    time.sleep(0.02)
if fenced():
    finish("cut_off", "fenced")
Path({str(flag)!r}).write_text(str(turn))
finish()
"""


def starts_noted(file: Path) -> Counter[str]:
    """Return the number of real starts of each job's launcher."""
    return Counter(file.read_text().split()) if file.exists() else Counter()
