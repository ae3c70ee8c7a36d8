"""A run of three jobs by the programs' own code, without a process.

One succeeds, one is cancelled, and one has to wait for a device and then exceeds its timeout.

The api answers a client that retries, the scheduler runs cycles, and the agent is the real
supervisor with its real attempts, uploaders and reporters. Only three parts are not real. There is
no launcher: its files are written according to the contract of the attempt's folder. No process is
killed. The threads of an agent are turns that run one after the other, so that the n-th call to a
database is much the same in every run.

Each program handles a failing database in its own way: the client sends the same key again, the
scheduler runs another cycle, the agent logs it and retries.

Not here: faults of databases (``tests.harness.faults.database_faults``).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from lockstep.domain.errors import LockstepError
from lockstep.domain.life import attempt as contract
from lockstep.domain.life.attempt import EngineEvent, LogRecord, ResultFile
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.training import event_files
from lockstep.storage.attempts import kept_files
from lockstep.storage.attempts.nodes import DeviceInfo
from lockstep.storage.db.database import Database
from lockstep.storage.logs import log_pages
from lockstep.storage.objects.blobs import BlobStore
from lockstep.worker.agent.assignment import Attempt, Phase
from lockstep.worker.agent.launcher_process import LauncherProcess
from lockstep.worker.agent.supervisor import Supervisor
from lockstep.worker.folders import Folder
from lockstep.worker.launch.sweeping import Children, ProcessTree
from lockstep.worker.settings import AgentSettings
from lockstep.worker.upload import uploaders
from lockstep.worker.upload.upload_loop import UploadLoop
from tests.harness.life.in_process import Look, Service

ROUNDS_MAX: Final = 60
"""A run without a fault takes about eight."""
SECONDS_PER_ROUND: Final = 5.0
TRIES: Final = 20
POINTS: Final = 4
LINES: Final = 3
GOOD: Final[dict[str, Any]] = {
    "name": "good",
    "kind": "train",
    "resources": {"gpus": 1},
    "train": {"task": "image_classification", "batch": {"size": 8, "micro_size": 8}, "steps": 4},
}
STOPPED: Final[dict[str, Any]] = {
    "name": "stopped",
    "kind": "script",
    "script": {"command": ["forever"]},
}
LATE: Final[dict[str, Any]] = {**STOPPED, "name": "late", "timeout_seconds": 8}
KEPT: Final = "out.txt"
"""File that each job writes."""
ENDS: Final = {"good": "succeeded", "stopped": "cancelled", "late": "failed"}
MAY_REPEAT: Final = ("placed", "checkpoint", "warning")
"""Placements and checkpoints are counted in another way, and a warning may be repeated."""


class Turns(UploadLoop):
    """An upload loop without a thread: one step per call of ``turn``."""

    all: list[Turns] = []  # noqa: RUF012 -- emptied by each run

    def __init__(self, *arguments: Any, **how: Any) -> None:
        super().__init__(*arguments, **how)
        self._over = False
        Turns.all.append(self)

    def start(self) -> None: ...

    def stop(self) -> None:
        self._over = True

    def ended(self) -> bool:
        return self._over

    def join(self, _timeout_seconds: float) -> bool:
        return self._over

    def turn(self) -> None:
        with suppress(Exception):  # as the upload loop does: any error is retried
            while not self._over:
                last = self._finishing
                if not self._step(last):
                    self._over = last
                    return


class Agent:
    """A node's agent. ``turn`` is a second of its life."""

    def __init__(
        self, database: Database, folder: Path, urls: tuple[str, str], sent: list[Any]
    ) -> None:
        settings = AgentSettings(
            database_url=urls[0],
            series_url=urls[1],
            broker_url="redis+socket:///none.sock",
            store=str(folder / "store"),
            node_name="n1",
            node_dir=folder / "node",
        )
        settings.node_dir.mkdir(parents=True, exist_ok=True)
        self.supervisor = Supervisor(
            settings,
            heartbeats=database,
            uploads=database,
            blobs=BlobStore(settings.store),
            devices=[DeviceInfo(index, "cpu", "cpu") for index in range(2)],
            version="1",
            freed=lambda: sent.append("freed"),
            environment={},
        )

    def turn(self) -> None:
        supervisor = self.supervisor
        supervisor._guarded("heartbeat", supervisor._heartbeat)
        supervisor._guarded("intents", supervisor._read_intents)
        for attempt in list(supervisor._attempts.values()):
            self._live(attempt)
        for key in [key for key, attempt in supervisor._attempts.items() if attempt.over]:
            del supervisor._attempts[key]

    @staticmethod
    def _live(attempt: Attempt) -> None:
        for _step in range(8):
            if attempt.over:
                return
            if attempt._lost and attempt.leased:
                attempt.phase = Phase.ABANDON
            _let_the_launcher_work(attempt)
            for pump in Turns.all:
                pump.turn()
            before = attempt.phase
            with suppress(Exception):  # as its thread does
                attempt.phase = attempt._steps[before]()
            if attempt.phase is before:
                return


@dataclass
class Telling:
    """Record of one run."""

    service: Service
    folder: Path
    ids: dict[str, str] = field(default_factory=dict)
    rounds: int = 0

    def tell(self) -> None:
        """Run from the submits to the end of all jobs."""
        service = self.service
        Turns.all.clear()
        with ExitStack() as stack:
            for target, name, stand_in in (
                (uploaders, "UploadLoop", Turns),
                (Attempt, "start", lambda _self: None),
                (
                    LauncherProcess,
                    "is_alive",
                    lambda self: not self._folder.file(contract.RESULT).exists(),
                ),
                (ProcessTree, "kill", lambda _self, seconds=1.0: True),
                (Children, "sweep_orphans", lambda _self: 0),
            ):
                stack.enter_context(patch.object(target, name, stand_in))
            stack.enter_context(
                patch("lockstep.worker.launch.launching.launch", lambda *_all: None)
            )
            agent = Agent(service.database, self.folder, service.urls, service.notifications.sent)
            agent.turn()
            for body in (GOOD, STOPPED, LATE):
                self.ids[body["name"]] = self._submit(body)
            for self.rounds in range(1, ROUNDS_MAX + 1):
                with suppress(LockstepError):  # as its loop does
                    service.run_one_cycle("one")
                agent.turn()
                self._cancel_once_it_runs()
                service.clock.advance(SECONDS_PER_ROUND)
                if self._over():
                    return
        raise AssertionError(f"after {ROUNDS_MAX} rounds not over: {service.look().jobs}")

    def _over(self) -> bool:
        """Return True if no work is left; these reads are not counted."""
        with unwatched(self.service):
            look = self.service.look()
        return (
            all(job.finished_at is not None for job in look.jobs.values())
            and all(holder is None for holder in look.holders.values())
            and all(stream.sealed for stream in look.streams.values())
        )

    def _submit(self, body: dict[str, Any]) -> str:
        answer = self._asked("/v1/jobs", body, headers={"Idempotency-Key": f"key-{body['name']}"})
        assert answer.status_code in (200, 201), answer.text
        found: str = answer.json()["id"]
        return found

    def _cancel_once_it_runs(self) -> None:
        address = f"/v1/jobs/{self.ids['stopped']}"
        seen = self.service.http.get(address)
        assert seen.status_code in (200, 503), seen.text
        if (
            seen.status_code == 200
            and seen.json()["state"] == "running"
            and seen.json()["intent"] is None
        ):
            answer = self._asked(f"{address}/cancel", None)
            assert answer.status_code in (202, 409), answer.text

    def _asked(self, address: str, body: Any, **more: Any) -> Any:
        """Repeat until there is an answer, as the client does.

        A failing database is never a defect of the server.
        """
        for _try in range(TRIES):
            answer = self.service.http.post(address, json=body, **more)
            if answer.status_code != 503:
                return answer
            assert answer.headers["retry-after"]
        raise AssertionError(f"{address} does not answer: {answer.text}")

    # -- required final state
    # ---------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that each job ended once with the right outcome, and no row was written twice."""
        look = self.service.look()
        assert look.jobs.keys() == set(self.ids.values()), "no job twice"
        states = {name: look.jobs[job_id].state.value for name, job_id in self.ids.items()}
        assert states == ENDS
        for name, job_id in self.ids.items():
            self._check_events(look, job_id)
            self._check_uploads(look, job_id, whole=name == "good")

    def _check_events(self, look: Look, job_id: str) -> None:
        mine = [event for event in look.events if event.job == job_id]
        once = Counter(
            (event.attempt, event.kind) for event in mine if event.kind not in MAY_REPEAT
        )
        assert max(once.values()) == 1, f"no event twice: {once}"
        assert sum(event.kind in ("succeeded", "failed", "cancelled") for event in mine) == 1
        assert mine[0].kind == "submitted"
        assert [e.kind for e in mine].count("placed") == sum(
            row.job_id == job_id for row in look.attempts
        )
        saved = Counter((job, attempt) for job, attempt, _step in look.checkpoints)
        told = Counter((event.job, event.attempt) for event in mine if event.kind == "checkpoint")
        assert told == {key: count for key, count in saved.items() if key[0] == job_id}

    def _check_uploads(self, look: Look, job_id: str, *, whole: bool) -> None:
        attempts = [row for row in look.attempts if row.job_id == job_id]
        assert [row.number for row in attempts] == list(range(1, len(attempts) + 1))
        last = attempts[-1].number
        for row in attempts:
            for found in (look.points, look.scalars):
                steps = [step for step, _value in found.get((job_id, row.number), [])]
                expected = list(range(1, POINTS + 1))
                missing = (
                    not whole or row.number < last or found is look.scalars
                )  # A train job writes no event files.
                assert steps == expected or (steps == [] and missing), "each point once"
        with self.service.database.read_series() as session:
            lines = log_pages.page(session, job_id, limit=1000).lines
        for number in {line.attempt for line in lines} | ({last} if whole else set()):
            texts = [line.text for line in lines if line.attempt == number]
            assert texts == [f"line {index}" for index in range(LINES)], "each line once"
        if whole:
            with self.service.database.read_jobs() as session:
                (kept,) = kept_files.of_job(session, job_id)
            stored = BlobStore(str(self.folder / "store")).read(kept.file.location)
            assert (kept.name, stored) == (KEPT, b"result")
            assert (job_id, last, POINTS) in look.checkpoints


class unwatched:  # noqa: N801 -- used like a statement
    """Context in which calls of the test itself neither fail nor count."""

    def __init__(self, service: Service) -> None:
        self._faulty: Any = service.faulty

    def __enter__(self) -> None:
        self._before, self._faulty.watching = self._faulty.watching, False

    def __exit__(self, *_error: object) -> None:
        self._faulty.watching = self._before


def _let_the_launcher_work(attempt: Attempt) -> None:
    """Write the files that the launcher and rank 0 would have written by now."""
    folder = attempt.folder
    assignment = folder.assignment() if folder.exists() else None
    if assignment is None or folder.file(contract.RESULT).exists():
        return
    if not folder.file(contract.RANKS).exists():
        _write_the_run(
            folder,
            plan=None if assignment.plan is None else assignment.plan.model_dump(mode="json"),
        )
    if assignment.spec.kind == "train":
        _end(folder, Reason.SUCCEEDED)
    elif (stop := folder.stop()) is not None:
        _end(folder, Reason(stop.reason))


def _write_the_run(folder: Folder, *, plan: dict[str, Any] | None) -> None:
    records = [
        {"step": step, "time": 1.0, "values": {"train/loss": 1.0 / step}}
        for step in range(1, POINTS + 1)
    ]
    folder.file(contract.METRICS).write_text(
        "".join(json.dumps(record) + "\n" for record in records)
    )
    lines = [
        LogRecord(time=1.0, rank=0, stream="stdout", text=f"line {index}") for index in range(LINES)
    ]
    event_file = folder.file(contract.TENSORBOARD) / "tb/events.out.tfevents.1"
    event_file.parent.mkdir(parents=True, exist_ok=True)
    scalars = (event_files.record(step, 1.0, {"score": 1.0}) for step in range(1, POINTS + 1))
    event_file.write_bytes(event_files.header(1.0) + b"".join(scalars))
    segment = folder.file(contract.LOGS) / contract.segment_name(0)
    segment.write_text("".join(line.model_dump_json() + "\n" for line in lines))
    events = [
        EngineEvent(kind="running", time=1.0),
        EngineEvent(kind="warning", time=1.0, data={"message": "w"}),
    ]
    if plan is not None:
        events.append(EngineEvent(kind="plan", time=1.0, data={**plan, "parameters": 10}))
        checkpoint = folder.file(contract.CHECKPOINTS) / f"step-{POINTS:08d}"
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "weights").touch()
        files = {"weights": {"bytes": 0, "sha256": hashlib.sha256().hexdigest()}}
        manifest = json.dumps({"format": 1, "step": POINTS, "files": files}).encode()
        (checkpoint / contract.MANIFEST).write_bytes(manifest)
        saved = {"step": POINTS, "folder": checkpoint.name, "bytes": 2, "final": True}
        digest = hashlib.sha256(manifest).hexdigest()
        events.append(EngineEvent(kind="checkpoint", time=1.0, data={**saved, "sha256": digest}))
    folder.file(contract.EVENTS).write_text(
        "".join(event.model_dump_json() + "\n" for event in events)
    )
    (folder.file(contract.CODE) / KEPT).write_text("result")
    folder.file(contract.RANKS).write_text('{"ranks": []}')


def _end(folder: Folder, reason: Reason) -> None:
    result = ResultFile(outcome=Outcome.of(reason, "it ended"), ended_at=1.0)
    folder.file(contract.RESULT).write_text(result.model_dump_json())
