"""Random jobs with all that a list shows, and the answers of a list by plain Python.

Not here: the tests (``tests/storage/test_lists.py``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import insert, update
from sqlalchemy.orm import Session

from lockstep.domain.life.lifecycle import TERMINAL, JobState
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.training.plan import plan_of
from lockstep.storage.db.database import Database
from lockstep.storage.db.series_tables import ProgressRow, SeriesLatestRow
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import jobs
from tests.storage import scenes

NOW = 1_790_000_000.0
METRICS = ("train/loss", "val/loss", "score")
NAMES = ("gpt-small", "gpt_1.b", "digits", "resnet-50", "mix")


@dataclass
class Job:
    """Facts of a job, kept beside the database."""

    id: str
    name: str
    owner: str
    project: str
    kind: str
    state: JobState
    labels: dict[str, str]
    gpus: int
    priority: int
    created: float
    started: float | None
    finished: float | None
    attempts: int
    steps: int | None
    step: int | None
    settings: dict[str, float | str]
    metrics: dict[str, dict[str, float | None]] = field(default_factory=dict)

    @property
    def progress(self) -> float | None:
        if self.steps is None or self.step is None:
            return None
        return 1.0 if self.state is JobState.SUCCEEDED else min(1.0, self.step / self.steps)

    @property
    def age(self) -> float:
        return NOW - self.created

    @property
    def duration(self) -> float | None:
        if self.started is None:
            return None
        return (NOW if self.finished is None else self.finished) - self.started

    def value(self, column: str) -> Any:
        """Return the value of a column by its whole name."""
        if column == "lr":
            both = (self.settings.get(f"{where}.lr") for where in ("train.optimizer", "args"))
            return next((value for value in both if value is not None), None)
        source, _, rest = column.partition(":")
        if source == "setting":
            return self.settings.get(rest)
        if source == "metric":
            name, part = rest.rsplit(":", 1)
            return self.metrics.get(name, {}).get(part)
        return getattr(self, column)


def make(database: Database, count: int, seed: int) -> list[Job]:
    """Write random jobs into both databases."""
    chance = random.Random(seed)
    with database.jobs() as session:
        found = [_job(session, chance) for _ in range(count)]
    with database.series() as session:
        for job in found:
            _write_series(session, job, chance)
    return found


def _job(session: Session, chance: random.Random) -> Job:
    is_script = chance.random() < 0.3
    lr, gpus = chance.choice((1e-4, 3e-4, 1e-3, 0.01)), chance.choice((1, 2, 4, 8))
    labels = {
        key: chance.choice(("a", "b", "mix")) for key in ("team", "sweep") if chance.random() < 0.5
    }
    body = scenes.document(
        name=chance.choice(NAMES),
        project=chance.choice(("default", "nlp", "vision")),
        resources={"gpus": gpus},
        priority=chance.randrange(5),
        labels=labels,
    )
    if is_script:
        command = ["train.py", "--lr", str(lr), "data=c4", "--fast"]
        body |= {"kind": "script", "script": {"command": command}, "env": {"MODE": "x*y"}}
        del body["train"]
        settings: dict[str, float | str] = {"args.lr": lr, "args.data": "c4", "env.MODE": "x*y"}
    else:
        precision = chance.choice(("fp32", "bf16"))
        body["train"] |= {"optimizer": {"name": "sgd", "lr": lr}, "precision": precision}
        settings = {"train.optimizer.lr": lr, "train.precision": precision, "train.steps": 20.0}
    spec = JobSpec.model_validate(body)
    owner = chance.choice(("ada", "Bob", "zoë"))
    row, _new = jobs.create(session, document=body, spec=spec, plan=plan_of(spec), actor=owner)
    state = chance.choice(list(JobState))
    started = None if state is JobState.QUEUED else NOW - chance.randrange(1, 50) * 3_600.0
    job = Job(
        row.id,
        spec.name,
        owner,
        spec.project,
        spec.kind,
        state,
        labels,
        gpus,
        spec.priority,
        NOW - 100 * 3_600.0 - chance.randrange(30) * 86_400.0,
        started,
        NOW - 60.0 if state in TERMINAL else None,
        0 if started is None else chance.randrange(1, 4),
        None if is_script else 20,
        None,
        settings,
    )
    session.execute(
        update(JobRow)
        .where(JobRow.id == job.id)
        .values(
            state=state,
            created_at=job.created,
            started_at=job.started,
            finished_at=job.finished,
            attempt_count=job.attempts,
        )
    )
    return job


def _write_series(session: Session, job: Job, chance: random.Random) -> None:
    if job.started is None:
        return
    if chance.random() < 0.8:
        job.step = 20 if job.state is JobState.SUCCEEDED else chance.randrange(25)
        row = {"job_id": job.id, "seq": 1, "attempt": 1, "step": job.step}
        session.execute(insert(ProgressRow), row)
    for name in METRICS:
        if chance.random() < 0.6:
            values = [chance.choice((0.5, 1.0, 1.5, 2.0, 3.25)) for _ in range(3)]
            last = None if chance.random() < 0.1 else values[-1]
            found = {"last": last, "min": min(values), "max": max(values)}
            job.metrics[name] = found
            given = {"value": last, "min": found["min"], "max": found["max"]}
            about = {"job_id": job.id, "name": name, "attempt": 1, "step": 3, "time": NOW}
            session.execute(insert(SeriesLatestRow), {**about, **given, "point_count": 3})


def ordered(found: list[Job], column: str, *, down: bool) -> list[str]:
    """Return the ids in an order: without a value last, equal ones newest first."""

    def key(job: Job) -> Any:
        if column == "state":
            return list(JobState).index(job.state)
        return job.id if column == "created" else job.value(column)

    newest = sorted(found, key=lambda job: job.id, reverse=True)
    values = {job.id: job.value(column) for job in newest}
    sides = [
        [job for job in newest if values[job.id] is not None and isinstance(values[job.id], kind)]
        for kind in (int | float, str)
    ]
    without = [job for job in newest if values[job.id] is None]
    # A stable sort keeps equal ones in the order of their ids, also of the largest first.
    sides = [sorted(side, key=key, reverse=down) for side in sides]
    return [job.id for side in (*sides, without) for job in side]
