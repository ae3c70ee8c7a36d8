"""Jobs and points, stored in a database as by the agent, for rows that read them.

Not here: the speed of this (``rows_series.ingest``).
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training.metrics import StepValues
from lockstep.domain.training.plan import plan_of
from lockstep.domain.version import VERSION
from lockstep.storage.attempts import attempts, nodes
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import jobs
from lockstep.storage.series import series, streams
from lockstep.worker.upload.stream import Stream

SPEC: Final[dict[str, Any]] = {
    "name": "gpt",
    "kind": "train",
    "resources": {"gpus": 2},
    "labels": {"team": "language", "purpose": "benchmark"},
    "train": {
        "task": "causal_lm",
        "batch": {"size": 64, "micro_size": 8},
        "steps": 100_000,
        "optimizer": {"name": "adamw", "lr": 3.0e-4},
    },
}
SERIES: Final = (
    *("train/loss", "train/lr", "train/grad_norm", "train/weight", "throughput/samples_per_second"),
    *(
        "time/step_seconds",
        "time/data_seconds",
        "time/forward_seconds",
        "time/backward_seconds",
        "memory/peak_bytes",
    ),
)
"""Ten, as in a run of the engine."""
RECORDS_AT_ONCE: Final = 2_000
LEASE_SECONDS: Final = 86_400.0


def records(steps: range, names: Sequence[str] = SERIES) -> Iterator[StepValues]:
    """Return every step's values: numbers of full length, like measured ones."""
    numbers = random.Random(steps.start)
    began = time.time() - len(steps)
    for step in steps:
        yield StepValues(
            step, began + step - steps.start, {name: numbers.random() for name in names}
        )


def job(database: Database) -> str:
    """Create a queued job and return its id."""
    spec = read_spec(SPEC)
    with database.jobs() as session:
        row, _ = jobs.create(
            session,
            document=SPEC,
            spec=spec,
            plan=plan_of(spec),
            actor="benchmark",
            idempotency=None,
        )
        return row.id


def running(database: Database, node: str) -> str:
    """Create a job that runs on a node of its own, and return its id."""
    job_id, devices = job(database), (0, 1)
    with database.jobs() as session:
        found = [nodes.DeviceInfo(index, "cpu", "cpu") for index in devices]
        nodes.register(session, node, found, version=VERSION, boot_id=node)
        placed = attempts.place(session, job_id, [(node, devices)], lease_seconds=LEASE_SECONDS)
    if placed is None:
        raise RuntimeError(f"job {job_id} cannot be placed on {node}")
    with database.jobs() as session:
        claimed = attempts.claim(
            session,
            placed.assignments[0].assignment_id,
            node,
            lease_seconds=LEASE_SECONDS,
            rendezvous_port=29_500,
        )
        if claimed is None or not attempts.mark_running(
            session, claimed.assignment_id, claimed.token
        ):
            raise RuntimeError(f"job {job_id} cannot run on {node}")
    return job_id


def opened(database: Database, job_id: str) -> Stream:
    """Open the stream of a first attempt of a job."""
    stream = Stream(uuid.uuid4().hex, job_id, 1, uuid.uuid4().hex)
    with database.series() as session:
        writer = streams.Writer(stream.assignment_id, job_id, stream.attempt_number, stream.token)
        if not streams.open_stream(session, writer):
            raise RuntimeError(f"the stream of job {job_id} cannot be opened: it has a later one")
    return stream


class Planter:
    """Appender to one job's stream."""

    def __init__(self, database: Database, job_id: str, names: Sequence[str] = SERIES):
        self._database = database
        self._stream = opened(database, job_id)
        self._names = names
        self._step = 0
        self._offset = 0

    def append(self, steps: int) -> None:
        """Append this number of steps, in one transaction per batch."""
        end = self._step + steps
        while self._step < end:
            batch = list(
                records(
                    range(self._step + 1, min(end, self._step + RECORDS_AT_ONCE) + 1), self._names
                )
            )
            with self._database.series() as session:
                stored = series.append(
                    session,
                    assignment_id=self._stream.assignment_id,
                    token=self._stream.token,
                    offset_before=self._offset,
                    offset_after=self._offset + len(batch),
                    records=batch,
                )
            if not stored:
                raise RuntimeError(f"points of job {self._stream.job_id} were refused")
            self._offset += len(batch)
            self._step += len(batch)
