"""A team's service whose clock stands still: the same data in each run, for pictures of the pages.

The api of this process answers over SQLite files. Their clock is set by hand: the code of the
product plays some days of a team, each act at its time, and the last moment lasts. Ids are counted.

Not here: a service that runs jobs (``tests.harness.service``).
"""

from __future__ import annotations

import hashlib
import math
import random
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
import uuid_utils
import uvicorn
from sqlalchemy import Engine, event

from lockstep.api.app import create_app
from lockstep.api.dashboard.files import FOLDER, Dashboard
from lockstep.api.protocol import ProblemProtocol
from lockstep.broker.messages import Message
from lockstep.domain.audit import Action, AuditOutcome
from lockstep.domain.job_marks import JobMarks
from lockstep.domain.kinds.offers import PAUSES
from lockstep.domain.life.attempt import LogRecord
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.life.timings import Timings
from lockstep.domain.people_views import ProjectNew, UserChange, UserNew
from lockstep.domain.rights import ProjectRole, Right, ServiceRole
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.domain.training.metrics import StepValues
from lockstep.domain.training.plan import plan_of
from lockstep.scheduler.reconcile import run_cycle
from lockstep.storage.attempts import attempts, checkpoints, kept_files, nodes
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import TokenRow
from lockstep.storage.jobs import jobs, marks
from lockstep.storage.logs import logs
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.people import audit, credentials, projects, users
from lockstep.storage.series import series, streams
from tests.api.conftest import settings_for
from tests.harness.databases import Urls
from tests.harness.processes import until

MOMENT: Final = datetime(2026, 3, 14, 10, 0, tzinfo=UTC).timestamp()
TOKENS: Final = {"ada": "lockstep_of-ada-at-this-site", "cleo": "lockstep_of-cleo-at-this-site"}
"""Of an admin of the service, and of the admin of one project."""
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
GIB: Final = 2**30
FOREVER: Final = 1e9
LOWER: Final = SeriesDefinition(direction="lower", unit="nats")
HIGHER: Final = SeriesDefinition(direction="higher")
OUT_OF_MEMORY: Final = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total"
    " capacity of 79.10 GiB of which 1.12 GiB is free."
)
TRACEBACK: Final = f"""loading shard 58
loading shard 59
Traceback (most recent call last):
  File "/data/node/4f/code/train.py", line 214, in <module>
    main(arguments())
  File "/data/node/4f/code/train.py", line 188, in main
    loss.backward()
  File "/data/node/4f/code/model/attention.py", line 71, in forward
    scores = q @ k.transpose(-2, -1)
{OUT_OF_MEMORY}
"""


class Clock:
    """Clock of SQLite connections, in seconds since the epoch."""

    def __init__(self) -> None:
        self.at = MOMENT

    def attach(self, connection: sqlite3.Connection, _record: object) -> None:
        connection.create_function("julianday", 1, lambda _: (self.at + 5e-4) / DAY + 2_440_587.5)


class NoReceivers:
    """Publisher without receivers."""

    def publish(self, message: Message) -> None: ...


@dataclass
class Site:
    """The database of a team, and acts in it."""

    database: Database
    clock: Clock
    ids: dict[str, str] = field(default_factory=dict)
    """Of jobs, by name."""
    offsets: dict[tuple[str, str], int] = field(default_factory=dict)

    def submit(self, name: str, at: float, actor: str, **changes: Any) -> str:
        """Submit a job at a time, counted back from the last moment."""
        self.clock.at = MOMENT - at
        document = {"name": name, **changes}
        spec = read_spec(document)
        with self.database.jobs() as session:
            row, _ = jobs.create(
                session, document=document, spec=spec, plan=plan_of(spec), actor=actor
            )
        self.ids[name] = row.id
        return row.id

    def start(self, name: str, *devices: tuple[str, Sequence[int]], after: float = 20.0) -> Claim:
        """Place a job, and let its node run it."""
        self.clock.at += after
        with self.database.jobs() as session:
            for node, _ in devices:
                nodes.touch(session, node)
            placed = attempts.place(
                session,
                self.ids[name],
                [(node, tuple(indices)) for node, indices in devices],
                lease_seconds=FOREVER,
            )
            assert placed is not None, name
        claims = []
        for part in placed.assignments:
            with self.database.jobs() as session:
                claim = attempts.claim(
                    session,
                    part.assignment_id,
                    part.node_name,
                    lease_seconds=FOREVER,
                    rendezvous_port=29_500,
                )
                assert claim is not None
                claims.append(claim)
        self.clock.at += 8
        for claim in claims:
            with self.database.series() as session:
                writer = streams.Writer(
                    claim.assignment_id, claim.job_id, claim.attempt_number, claim.token
                )
                assert streams.open_stream(session, writer)
            with self.database.jobs() as session:
                assert attempts.mark_running(session, claim.assignment_id, claim.token)
                if claim.plan is not None:
                    attempts.settle_plan(session, claim.assignment_id, claim.token, claim.plan)
        return claims[0]

    def end(self, claim: Claim, at: float, reason: Reason, message: str, **details: Any) -> None:
        self.clock.at = MOMENT - at
        outcome = Outcome.of(reason, message, **details)
        with self.database.jobs() as session:
            assert attempts.end(
                session, claim.assignment_id, claim.token, outcome, timings=Timings().scaled(1e-6)
            )
        with self.database.series() as session:
            streams.seal(
                session, claim.assignment_id, job_id=claim.job_id, attempt=claim.attempt_number
            )
        with self.database.jobs() as session:
            attempts.release(session, claim.assignment_id, claim.node_name)

    def points(
        self,
        claim: Claim,
        records: Sequence[StepValues],
        *,
        defined: Mapping[str, SeriesDefinition] | None = None,
        source: str | None = None,
    ) -> None:
        before = self.offsets.get((claim.assignment_id, source or ""), 0)
        after = self.offsets[claim.assignment_id, source or ""] = before + len(records)
        with self.database.series() as session:
            assert series.append(
                session,
                assignment_id=claim.assignment_id,
                token=claim.token,
                offset_before=before,
                offset_after=after,
                records=records,
                defined=defined or {},
                source=source,
            )

    def lines(self, claim: Claim, records: Sequence[LogRecord]) -> None:
        with self.database.series() as session:
            assert logs.append(
                session,
                assignment_id=claim.assignment_id,
                token=claim.token,
                offset_before=(0, 0),
                offset_after=(0, len(records)),
                records=records,
            )

    def sampled(self, claim: Claim, percent: Sequence[float], *, memory: float = 0.8) -> None:
        """Store ten minutes of samples of each rank's GPU, up to the last moment."""
        records = []
        for place in range(60):
            values: dict[str, float] = {}
            for rank, use in enumerate(percent):
                at = f"system/rank{rank}/gpu_"
                used = use + 3 * math.sin(place / 5 + rank) if use > 5 else 0.4
                values |= {
                    f"{at}utilization_percent": min(100.0, used),
                    f"{at}memory_bytes": memory * 80 * GIB - rank * GIB / 4,
                    f"{at}power_watts": 90 + 5.6 * used,
                    f"{at}temperature_celsius": round(34 + 0.31 * used),
                }
            values["system/node0/cpu_percent"] = 31 + 4 * math.sin(place / 9)
            values["system/node0/memory_bytes"] = 402 * GIB + place * GIB / 40
            records.append(StepValues(place, MOMENT - 600 + 10 * place, values))
        self.points(claim, records, source=streams.SYSTEM_SOURCE)

    def checkpoint(self, claim: Claim, step: int, size: float, *, final: bool = False) -> None:
        with self.database.jobs() as session:
            assert checkpoints.publish(
                session,
                claim.assignment_id,
                claim.token,
                step=step,
                location=f"{claim.job_id}/{claim.attempt_number}/{step}",
                bytes=int(size),
                sha256=hashlib.sha256(str(step).encode()).hexdigest(),
                final=final,
            )

    def files(self, claim: Claim, sizes: Mapping[str, int]) -> None:
        at, attempt = self.clock.at, claim.attempt_number
        put = [
            kept_files.KeptFile(path, path, size, at - 60, False, attempt, f"kept/{path}")
            for path, size in sizes.items()
        ]
        kept = kept_files.Round(0, put, (), complete=True, age_seconds=1)
        with self.database.jobs() as session:
            kept_files.publish(session, claim.assignment_id, claim.token, kept)

    def marked(self, name: str, actor: str, **given: Any) -> None:
        with self.database.jobs() as session:
            marks.give(session, self.ids[name], JobMarks(**given), actor=actor)

    def node(self, name: str) -> None:
        found = [nodes.DeviceInfo(index, "cuda", "NVIDIA H100", 80 * GIB) for index in range(8)]
        with self.database.jobs() as session:
            nodes.register(session, name, found, version="1", boot_id=name, offers=[PAUSES])

    def drained(self, name: str, by: str, reason: str) -> None:
        with self.database.jobs() as session:
            nodes.set_draining(session, name, draining=True, reason=reason, by=by)

    # --- people

    def token(self, name: str, secret: str) -> None:
        """Give a person a token. Without a role in the service, it has the rights of a member."""
        row = TokenRow(
            id=str(uuid_utils.uuid7()),
            name="laptop",
            sha256=credentials.digest(secret),
            prefix=secret[: credentials.SHOWN_CHARS],
            actor=name,
            created_at=self.clock.at,
        )
        with self.database.jobs() as session:
            session.add(row)

    def person(self, name: str, title: str, role: ServiceRole | None = None) -> None:
        with self.database.jobs() as session:
            users.ensure(session, name, role=role)
            users.change(session, name, UserChange(title=title))

    def program(self, name: str) -> None:
        with self.database.jobs() as session:
            users.add(session, UserNew(name=name, title="Evaluation", service=True))

    def project(self, name: str, title: str, **more: Any) -> None:
        with self.database.jobs() as session:
            projects.add(session, ProjectNew(name=name, title=title, **more))

    def member(self, project: str, name: str, role: ProjectRole) -> None:
        with self.database.jobs() as session:
            projects.set_role(session, project, name, role)

    def audited(
        self,
        actor: str,
        action: Action | Right,
        target: str,
        project: str | None,
        *,
        denied: bool = False,
        **detail: Any,
    ) -> None:
        outcome = AuditOutcome.DENIED if denied else AuditOutcome.OK
        sender = audit.Sender(actor, address="10.4.0.17")
        with self.database.jobs() as session:
            audit.add(
                session,
                sender,
                action,
                target=target,
                project=project,
                outcome=outcome,
                detail=detail,
            )

    def settle(self) -> None:
        """Set the last moment: all nodes are alive, and the scheduler has decided."""
        self.clock.at = MOMENT
        with self.database.jobs() as session:
            for node in nodes.all_nodes(session):
                nodes.touch(session, node.name)
        done = run_cycle(
            self.database,
            NoReceivers(),
            Timings(),
            owner="one",
            clock=lambda: 0.0,
            store_timings=True,
        )
        assert not done.placed, done


def language_model(
    steps: Sequence[int], seconds: float, *, seed: int, began: float, rate: float = 3e-4
) -> list[StepValues]:
    """Return the series of the engine for these steps, each of which takes so many seconds."""
    chance = random.Random(seed)
    found = []
    for step in steps:
        loss = 2.31 + 7.4 * math.exp(-step / 900) + 0.9 * math.exp(-step / 6_000)
        wobble = chance.gauss(0, 0.03)
        values = {
            "train/loss": loss + wobble,
            "train/lr": rate * min(1, step / 500) * (0.1 + 0.9 * 0.99985**step),
            "train/grad_norm": abs(0.6 + 3 * math.exp(-step / 400) + chance.gauss(0, 0.08)),
            "throughput/tokens_per_second": 412_000 + chance.gauss(0, 3_500),
            "throughput/samples_per_second": 402 + chance.gauss(0, 3.4),
            "throughput/mfu": 0.43 + chance.gauss(0, 0.004),
            "time/step_seconds": seconds + abs(chance.gauss(0, 0.01)),
            "time/data_seconds": 0.012 + abs(chance.gauss(0, 0.004)),
            "time/forward_seconds": 0.3 * seconds,
            "time/backward_seconds": 0.55 * seconds,
            "time/communication_seconds": 0.08 * seconds,
            "time/optimizer_seconds": 0.05 * seconds,
            "memory/peak_bytes": 61.5 * GIB,
        }
        if step % 250 < 13:
            values["val/loss"] = loss + 0.06 + chance.gauss(0, 0.01)
        found.append(StepValues(step, began + seconds * step, values))
    return found


def train(gpus: int, *, steps: int = 20_000, lr: float = 3e-4, **more: Any) -> Any:
    return {
        "kind": "train",
        "resources": {"gpus": gpus},
        "train": {
            "task": "causal_lm",
            "batch": {"size": 512, "micro_size": 8},
            "steps": steps,
            "optimizer": {"name": "adamw", "lr": lr, "weight_decay": 0.1},
            "precision": "bf16",
            "checkpoint": {"every_steps": 1_000},
        },
        **more,
    }


def script(gpus: int, *command: str, **more: Any) -> Any:
    return {
        "kind": "script",
        "resources": {"gpus": gpus},
        "script": {"command": list(command)},
        **more,
    }


@contextmanager
def standing(urls: Urls) -> Iterator[Site]:
    """Yield a site without any rows over these files."""
    clock, numbers = Clock(), count(1)

    def counted() -> uuid.UUID:
        stamp = int(clock.at * 1_000) << 80
        return uuid.UUID(int=stamp | 0x7 << 76 | 0x8 << 60 | next(numbers))

    event.listen(Engine, "connect", clock.attach)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(uuid_utils, "uuid7", counted)
        database = Database(*urls)
        try:
            yield Site(database, clock)
        finally:
            database.close()
            event.remove(Engine, "connect", clock.attach)


@contextmanager
def served(
    site: Site, urls: Urls, store: Path, *, port: int = 0, folder: Path = FOLDER
) -> Iterator[str]:
    """Answer on a port of the loopback, by default a free one; yield the address.

    ``folder`` has the built pages.
    """
    store.mkdir(exist_ok=True)
    app = create_app(settings_for(urls, store), site.database, BlobStore(str(store)), NoReceivers())
    app.state.dashboard = Dashboard(folder)
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=port,
        http=ProblemProtocol,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, 60, "the api")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        app.state.parts.following.close()
        server.should_exit = True
        thread.join(timeout=60)
        app.state.parts.following.join()
