"""A node agent process for a test, with its part of the control plane: placement and reads."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lockstep.domain.life.timings import Timings
from lockstep.domain.series_views import SeriesView
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.views import LogLine
from lockstep.storage.attempts import attempts, checkpoints, events, nodes
from lockstep.storage.attempts.nodes import DeviceInfo
from lockstep.storage.control import agreed_timings
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import AssignmentRow, AttemptRow, JobRow
from lockstep.storage.jobs import jobs, stopping
from lockstep.storage.logs import log_pages
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.series import series_query
from lockstep.system import processes
from lockstep.system.processes import ProcessSnapshot
from lockstep.worker.agent.supervisor import Supervisor
from lockstep.worker.launch.identity import started_in
from lockstep.worker.settings import AgentSettings
from tests.harness import forks
from tests.harness.databases import Urls
from tests.harness.processes import ROOT, START_SECONDS, inherited, until

FAKE_LAUNCHER = [sys.executable, str(ROOT / "tests/worker/fake_launcher.py")]
NAME = "node-under-test"
SCALE = 0.1
"""Heartbeat 0.5 s, fence 5 s, lease 6 s, grace 0.5 s."""
RARE = 15.0
"""Heartbeat 75 s, lease 15 min: an effect within the minute of ``until`` has another cause."""
SLOW = 0.3
"""Fence 15 s: an agent is killed and started again within it, also on a busy machine."""


class Node:
    """One node: its folder, its agent, its database.

    Several nodes may have one database and store, with different names.
    """

    def __init__(
        self,
        folder: Path,
        database: Database,
        urls: tuple[str, str],
        broker_url: str,
        *,
        scale: float = SCALE,
        name: str = NAME,
    ):
        self.name = name
        self.dir = folder / ("node" if name == NAME else name)
        self.store = folder / "store"
        self.log = folder / ("agent.log" if name == NAME else f"{name}.log")
        self.database = database
        self.urls = urls
        self.broker_url = broker_url
        self.agent: subprocess.Popen[bytes] | None = None
        self.timings = Timings().scaled(scale)
        self._has_timings = False

    def store_timings(self, scale: float | None = None) -> None:
        """Store timings for the installation; without ``scale``, those of this node if none are."""
        with self.database.jobs() as session:
            if scale is not None or agreed_timings.stored(session) is None:
                timings = self.timings if scale is None else Timings().scaled(scale)
                agreed_timings.store(session, timings)
        self._has_timings = True

    def start(
        self, *, launcher: list[str] = FAKE_LAUNCHER, scale: float | None = None, **settings: str
    ) -> None:
        """Start an agent and wait until it has registered the node."""
        self.started(lambda: self.spawn(launcher=launcher, scale=scale, **settings))

    def start_with_rare_heartbeats(self, source: str, **spec: Any) -> str:
        """Start an agent that claims a job at its first heartbeat.

        The next is later than ``until`` waits.

        Returns the job's id.
        """
        self.start()  # registers the devices on which the job is placed
        self.kill()
        job_id = self.submit(source, **spec)
        self.start(scale=RARE)
        return job_id

    def started(self, spawn: Callable[[], subprocess.Popen[bytes]]) -> None:
        """Start an agent with ``spawn``, and wait until it has registered the node."""
        before = self.said("registered")
        self.agent = spawn()
        until(
            lambda: self.said("registered") > before or self._died(),
            START_SECONDS,
            "the node registers",
        )
        assert self.agent.poll() is None, self.log.read_text()

    def spawn(
        self,
        *,
        launcher: list[str] = FAKE_LAUNCHER,
        scale: float | None = None,
        module: str = "tests.worker.agent",
        **settings: str,
    ) -> subprocess.Popen[bytes]:
        """Start an agent. ``launcher`` is the command line of its module.

        ``scale`` changes the timings of the installation before that. Without a scheduler, the
        first agent has those of this node.
        """
        if scale is not None or not self._has_timings:
            self.store_timings(scale)
        environment = {
            **inherited(),
            "LOCKSTEP_DATABASE_URL": self.urls[0],
            "LOCKSTEP_SERIES_URL": self.urls[1],
            "LOCKSTEP_BROKER_URL": self.broker_url,
            "LOCKSTEP_STORE": str(self.store),
            "LOCKSTEP_NODE_NAME": self.name,
            "LOCKSTEP_NODE_DIR": str(self.dir),
            "LOCKSTEP_CPU_SLOTS": "4",
            **settings,
        }
        with self.log.open("ab") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            # The engine's launcher is forked by a warm process, which needs the engine's modules.
            return forks.with_all_below(
                module,
                *launcher,
                modules=forks.SERVICE if launcher else forks.UP,
                env=environment,
                cwd=ROOT,
                **streams,
            )

    @property
    def runs(self) -> bool:
        return self.agent is not None and self.agent.poll() is None

    def said(self, what: str) -> int:
        """Return the number of times that the agents of this node have logged it."""
        return self.log.read_text().count(what) if self.log.exists() else 0

    def _died(self) -> bool:
        return self.agent is not None and self.agent.poll() is not None

    def kill(self) -> None:
        """SIGKILL the agent only."""
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait()

    def terminate(self, seconds: float = 60.0) -> int:
        """SIGTERM the agent and wait for its end."""
        assert self.agent is not None
        self.agent.terminate()
        return self.agent.wait(seconds)

    def close(self) -> None:
        """End the agent and all its processes."""
        if self.runs:
            self.kill()
        for path in self.dir.iterdir() if self.dir.is_dir() else ():
            until(lambda path=path: self._end_all(path))

    @staticmethod
    def _end_all(folder: Path) -> bool:
        process_snapshot = ProcessSnapshot.take()
        found = [
            each
            for marked in started_in(folder, process_snapshot)
            for each in (marked, *process_snapshot.descendants(marked.key.pid))
        ]
        for process in found:
            processes.send(process.key, signal.SIGKILL)
        return not found

    # Actions of the api and the scheduler.

    def submit(self, source: str, *, devices: int = 1, place: bool = True, **spec: Any) -> str:
        """Submit a script job whose launcher runs ``source``, and place it at once.

        Returns the job's id.
        """
        document = {"name": "test", "kind": "script", "script": {"command": [source]}, **spec}
        document["resources"] = {"gpus": devices}
        job_id = self.create(document)
        if place:
            self.place(job_id, devices=devices)
        return job_id

    def submit_command(self, command: list[str], code: Path, *, ranks: int = 1, **spec: Any) -> str:
        """Submit a script with its code, for the real launcher, and place it at once."""
        document = {"name": "test", "kind": "script", "script": {"command": command}, **spec}
        job_id = self.create(
            {"resources": {"gpus": ranks}, "code": {"path": str(code)}, **document}
        )
        self.place(job_id, devices=ranks)
        return job_id

    def create(self, document: dict[str, Any]) -> str:
        """Submit any job; return its id."""
        spec = read_spec(document)
        with self.database.jobs() as session:
            job, _ = jobs.create(session, document=document, spec=spec, plan=None, actor="test")
            return job.id

    def place(self, job_id: str, *, devices: int = 1) -> str:
        """Place a queued job on the first free devices as soon as possible.

        Returns the assignment's id.
        """

        def placed() -> attempts.PlacedAttempt | None:
            with self.database.jobs() as session:
                (node,) = nodes.all_nodes(session)
                free = tuple(device.index for device in node.devices if device.free)[:devices]
                if len(free) < devices:
                    return None
                return attempts.place(session, job_id, ((NAME, free),), lease_seconds=60)

        return until(placed, what="the job is placed").assignments[0].assignment_id

    def cancel(self, job_id: str) -> None:
        with self.database.jobs() as session:
            stopping.cancel(session, job_id, "test")

    def checkpoints(self, job_id: str) -> list[int]:
        """Return the steps of the published checkpoints, newest first."""
        with self.database.read_jobs() as session:
            return [row.step for row in checkpoints.of_job(session, job_id)]

    def child(self, job_id: str) -> int:
        """Return the pid of the child that the job started."""
        file = self.folder(job_id) / "child"
        return int(until(lambda: file.read_text() if file.exists() else None))

    def job(self, job_id: str) -> JobRow:
        with self.database.read_jobs() as session:
            row = jobs.get(session, job_id)
            assert row is not None
            session.expunge(row)
            return row

    def wait(self, job_id: str, *states: str, seconds: float = 120.0) -> JobRow:
        """Return the job as soon as it is in one of these states."""
        try:
            return until(
                lambda: row if (row := self.job(job_id)).state.value in states else None, seconds
            )
        except AssertionError:
            row = self.job(job_id)
            raise AssertionError(
                f"{row.state} ({row.outcome}); the agent says:\n{self.log.read_text()}"
            ) from None

    def attempts(self, job_id: str) -> list[AttemptRow]:
        with self.database.read_jobs() as session:
            return list(
                session.query(AttemptRow).filter_by(job_id=job_id).order_by(AttemptRow.number)
            )

    def assignment(self, job_id: str) -> AssignmentRow:
        """Return the newest assignment."""
        with self.database.read_jobs() as session:
            return (
                session.query(AssignmentRow)
                .filter_by(job_id=job_id)
                .order_by(AssignmentRow.id.desc())
                .first()
            )

    def folder(self, job_id: str) -> Path:
        return self.dir / self.assignment(job_id).id

    def released(self, job_id: str) -> None:
        """Wait until the newest assignment's devices are free."""
        until(lambda: self.assignment(job_id).state.value == "released", what="released")

    def logs(self, job_id: str) -> list[LogLine]:
        with self.database.read_series() as session:
            lines, cursor, _ = log_pages.page(session, job_id, limit=5000)
            while more := log_pages.page(session, job_id, limit=5000, cursor=cursor):
                if not more.lines:
                    return lines
                lines, cursor = lines + more.lines, more.next_cursor
        return lines

    def series(self, job_id: str) -> dict[str, SeriesView]:
        with self.database.read_series() as session:
            return {view.name: view for view in series_query.read(session, job_id)}

    def events(self, job_id: str) -> list[tuple[str, str]]:
        with self.database.read_jobs() as session:
            return [(row.kind, row.message) for row in events.page(session, job_id, limit=500)]


@contextmanager
def node_on(folder: Path, urls: tuple[str, str], *, scale: float = SCALE) -> Iterator[Node]:
    """Yield a node without a broker, whose agent is not started yet."""
    database = Database(*urls)
    made = Node(folder, database, urls, f"redis+socket://{folder}/no-broker.sock", scale=scale)
    yield made
    made.close()
    database.close()


def supervisor_in(
    folder: Path, database: Database, urls: Urls, *, broker_url: str, name: str
) -> Supervisor:
    """Return the loop of an agent in this process, with one CPU slot."""
    settings = AgentSettings(
        database_url=urls[0],
        series_url=urls[1],
        broker_url=broker_url,
        store=str(folder / "store"),
        node_name=name,
        node_dir=folder / "node",
    )
    settings.node_dir.mkdir()
    return Supervisor(
        settings,
        heartbeats=database,
        uploads=database,
        blobs=BlobStore(settings.store),
        devices=[DeviceInfo(0, "cpu", "cpu")],
        version="1",
        freed=lambda: None,
        environment={},
    )
