"""A process that submits jobs and stores points at full speed, and records accepted ones.

It runs until it is killed.

Not here: the kill (``tests.faults.test_sqlite_kill``).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from lockstep.domain.spec.job import JobSpec
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import jobs
from lockstep.storage.series import series, streams
from tests.harness.databases import Urls

BATCH = 3
"""Points of one append."""
LIFE_SECONDS = 120.0
"""Limit, in case the killing process died first."""


def submit_until_killed(urls: Urls, name: str, accepted: Path) -> None:
    """Write a line with the id of each accepted job.

    Each accepted batch of points gives a line with their number.
    """
    database = Database(*urls)
    out = os.open(accepted, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stream = {"assignment_id": name, "token": name}
    with database.series() as session:
        streams.open_stream(session, streams.Writer(job_id=name, attempt=1, **stream))
    document = {
        "name": name,
        "kind": "script",
        "script": {"command": ["true"]},
        "labels": {"by": name},
    }
    spec = JobSpec.model_validate(document)
    count = 0
    ends_at = time.monotonic() + LIFE_SECONDS
    while time.monotonic() < ends_at:
        key = (f"{name}-{count}", "fingerprint")
        with database.jobs() as session:
            job, _new = jobs.create(
                session, document=document, spec=spec, plan=None, actor=name, idempotency=key
            )
        os.write(out, f"job {job.id}\n".encode())
        records = [StepValues(count + index, 1.0, {"loss": 1.0}) for index in range(BATCH)]
        with database.series() as session:
            stored = series.append(
                session, offset_before=count, offset_after=count + BATCH, records=records, **stream
            )
        if stored:
            count += BATCH
            os.write(out, f"points {count}\n".encode())


def main() -> None:
    submit_until_killed((sys.argv[1], sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
