"""Jobs for the pages: quick scripts that write points and lines, and end as requested.

Not here: a training job, which shows data that only the engine has (``tests.harness.builders.digits``).
"""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import uuid_utils
from sqlalchemy import insert, inspect, select, update

from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import TokenRow
from lockstep.storage.db.tables import AttemptRow, EventRow, JobRow
from lockstep.storage.people import tokens
from lockstep.storage.series import definitions, series, streams
from tests.harness.builders import script
from tests.harness.processes import until
from tests.harness.service import Service

CURVE = '''
"""Steps with a pause, one point and one line each: python curve.py STEPS PAUSE_SECONDS SCALE"""

import json
import os
import sys
import time

steps, pause, scale = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
with open(os.environ["LOCKSTEP_METRICS"], "a", buffering=1) as metrics:
    for step in range(1, steps + 1):
        loss = scale * (1 + 9 * 0.9**step)
        if step == 7:
            loss = float("nan")
        metrics.write(json.dumps({"step": step, "train/loss": loss, "train/lr": 0.1 / step}) + "\\n")
        print(f"\\033[32mstep {step}\\033[0m loss {loss:.4f}", flush=True)
        if step == 5:
            print("Error: a shard was read twice", file=sys.stderr, flush=True)
        time.sleep(pause)
'''

WIDE = """
import json, os, sys, time
names = ("train/loss", "train/lr", "train/norm", "val/loss", "val/accuracy", "actor/reward")
with open(os.environ["LOCKSTEP_METRICS"], "a", buffering=1) as metrics:
    for step in range(1, 100_000):
        metrics.write(json.dumps({"step": step} | {name: 7 / (step + 3) for name in names}) + "\\n")
        if step > int(sys.argv[1]):
            print("step", step, flush=True)
            if step % 10 == 0:
                time.sleep(1)
"""
"""Six series in three groups: some points of each at once, then ten of each and ten lines in 1 s,
together, because the agent sends them four times a second."""

DEFINED = """
import json, os
better = {"direction": "lower", "unit": "nats"}
defined = {"val/score": better, "heap": {"kind": "bytes"}, "q": {"colour": 1}}
with open(os.environ["LOCKSTEP_METRICS"], "a") as metrics:
    metrics.write(json.dumps({"define": defined}) + "\\n")
    for step in range(1, 1_501):
        values = {"val/score": abs(step - 700) + 1, "heap": step * 2**20, "accuracy": step}
        metrics.write(json.dumps({"step": step, "q": step} | values) + "\\n")
"""
"""Two series with good definitions, one with a bad one, and one without any."""

FILES = r"""
import os, pathlib, struct, zlib
def part(name, data):
    body = name + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
out = pathlib.Path(os.environ["LOCKSTEP_OUTPUT"])
pixels = b"".join(b"\0" + bytes([x, 90, 120]) * 64 for x in range(0, 192, 3))
(out / "plot.png").write_bytes(
    b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0))
    + part(b"IDAT", zlib.compress(pixels)) + part(b"IEND", b"")
)
(out / "drawn.svg").write_text(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><script>alert(1)</script>'
    '<rect width="9" height="9" onclick="alert(2)"/></svg>'
)
(out / "model.pt").write_bytes(bytes(range(256)) * 400)
(out / "<img src=x onerror=alert(3)>\u202egnp.\n").write_text("one\x1b[2J\ntwo\n")
pathlib.Path("train.log").write_text("".join(f"step {n}\n" for n in range(9000)))
"""
"""An image, a drawing with scripts, weights, a log, and a name that could change a page."""

MILLION = 1_000_000
SPIKE = 654_321
PLANTED = {"Infinity": SPIKE - 20, "100": SPIKE, "-100": SPIKE + 20, "NaN": SPIKE + 40}
"""Step of each of these values among a million values within -1 to 1."""

BATCH = 10_000

Row = TypeVar("Row", JobRow, AttemptRow)


def copied(row: Row, **changes: Any) -> Row:
    """Return a new row with the values of another."""
    values = {column.key: getattr(row, column.key) for column in inspect(type(row)).column_attrs}
    return type(row)(**values | changes)


class Work:
    """Jobs of one running service."""

    def __init__(self, service: Service, folder: Path):
        self._service = service
        folder.mkdir()
        (folder / "curve.py").write_text(CURVE)
        (folder / "wide.py").write_text(WIDE)
        (folder / "defined.py").write_text(DEFINED)
        (folder / "files.py").write_text(FILES)
        self._upload = service.upload(folder)

    def curve(
        self, name: str, *, steps: int = 20, pause: float = 0, scale: float = 1, **more: Any
    ) -> str:
        """Submit a script of one rank that draws a curve; return its id."""
        command = ["curve.py", str(steps), str(pause), str(scale)]
        job: dict[str, Any] = self._service.submit(
            script(name, command, upload=self._upload, **more)
        )
        return str(job["id"])

    def wide(self, name: str, begun: int = 0) -> str:
        """Submit a job that runs until it is cancelled, from a step on; return its id."""
        command = ["wide.py", str(begun)]
        return str(self._service.submit(script(name, command, upload=self._upload))["id"])

    def files(self, name: str, program: str = "files.py") -> str:
        """Submit a job that writes files, wait for its end, and return its id."""
        job_id = str(self._service.submit(script(name, [program], upload=self._upload))["id"])
        self.ended(job_id)
        return job_id

    def million(self, name: str) -> str:
        """Create an ended job whose second attempt has a million points with four outliers.

        Stored as an agent stores them: a script that wrote as many in a moment would be limited to
        a rate.
        """
        job_id = self.curve(name, steps=0)
        self.ended(job_id)
        planted = {step: float(value) for value, step in PLANTED.items()}
        with closing(self._database()) as database:
            with database.series() as session:
                assert streams.open_stream(session, streams.Writer("planted", job_id, 2, "token"))
            for first in range(0, MILLION, BATCH):
                records = []
                for step in range(first + 1, first + BATCH + 1):
                    # A prime apart, so that neighbours differ and every value within -1 to 1
                    # occurs.
                    usual = step * 7919 % 2001 / 1000 - 1
                    records.append(
                        StepValues(step, step / 100, {"train/loss": planted.get(step, usual)})
                    )
                with database.series() as session:
                    assert series.append(
                        session,
                        assignment_id="planted",
                        token="token",
                        offset_before=first,
                        offset_after=first + BATCH,
                        records=records,
                    )
        return job_id

    def copies(self, job_id: str, count: int) -> list[str]:
        """Create jobs like one that has ended, each with a curve.

        These are rows instead of runs, which take a second each.
        """
        ids = [str(uuid_utils.uuid7()) for _ in range(count)]
        with closing(self._database()) as database:
            with database.jobs() as session:
                job = session.get_one(JobRow, job_id)
                attempt = session.scalars(select(AttemptRow).filter_by(job_id=job_id)).one()
                session.add_all(
                    copied(job, id=copy, name=f"{job.name}-{number}")
                    for number, copy in enumerate(ids)
                )
                session.flush()
                session.add_all(copied(attempt, id=copy, job_id=copy) for copy in ids)
            points = [StepValues(step, step, {"train/loss": 1 / step}) for step in range(1, 201)]
            for copy in ids:
                with database.series() as session:
                    assert streams.open_stream(session, streams.Writer(copy, copy, 1, "token"))
                with database.series() as session:
                    assert series.append(
                        session,
                        assignment_id=copy,
                        token="token",
                        offset_before=0,
                        offset_after=1,
                        records=points,
                    )
        return ids

    def sweep(self, job_id: str, count: int, *, points: int = 400) -> list[str]:
        """Create jobs like one that has ended, each with settings and curves of its own."""
        ids = [str(uuid_utils.uuid7()) for _ in range(count)]
        chance = random.Random(count)
        with closing(self._database()) as database:
            with database.jobs() as session:
                job = session.get_one(JobRow, job_id)
                attempt = session.scalars(select(AttemptRow).filter_by(job_id=job_id)).one()
                for number, copy in enumerate(ids):
                    rate = f"{10 ** (-4 + 2 * number / count):.1e}"
                    command = ["train.py", "--lr", rate, f"--wd={number % 3 / 20}"]
                    script = {**job.document["script"], "command": command}
                    name, document = f"sweep-{number:03}", {**job.document, "script": script}
                    session.add(copied(job, id=copy, name=name, document=document))
                session.flush()
                session.add_all(copied(attempt, id=copy, job_id=copy) for copy in ids)
            for number, copy in enumerate(ids):
                low = 1.8 + 0.4 * abs(number / count - 0.4)
                steps = range(1, points - 7 * (number % 5))
                self._store(
                    database,
                    copy,
                    [
                        StepValues(
                            25 * step,
                            1e9 + step,
                            {
                                "val/loss": low + 2 * 0.98**step + chance.gauss(0, 0.02),
                                "train/loss": low + 2 * 0.97**step + chance.gauss(0, 0.05),
                                "train/lr": 1 / (step + number),
                                "val/accuracy": 1 - 0.98**step * 0.9 - low / 10,
                            },
                        )
                        for step in steps
                    ],
                )
        return ids

    @staticmethod
    def _store(database: Database, job_id: str, points: list[StepValues]) -> None:
        """Store points of a job's first attempt, and the directions of what is validated."""
        lower, higher = (SeriesDefinition(direction=each) for each in ("lower", "higher"))
        with database.series() as session:
            assert streams.open_stream(session, streams.Writer(job_id, job_id, 1, "token"))
        with database.series() as session:
            definitions.store(session, job_id, {"val/loss": lower, "val/accuracy": higher})
            assert series.append(
                session,
                assignment_id=job_id,
                token="token",
                offset_before=0,
                offset_after=1,
                records=points,
            )

    def warnings(self, job_id: str, count: int) -> None:
        """Add this many events to a job that has ended, as if they had happened."""
        told = [
            {
                "job_id": job_id,
                "attempt": 1,
                "kind": "warning",
                "message": f"warning {number}",
                "actor": "n1",
                "data": {},
            }
            for number in range(1, count + 1)
        ]
        with closing(self._database()) as database, database.jobs() as session:
            session.execute(insert(EventRow).values(at=db_now()), told)

    def token(self, plaintext: str, *, actor: str) -> None:
        """Register another user's token."""
        with closing(self._database()) as database, database.jobs() as session:
            tokens.ensure(session, plaintext, name=actor, actor=actor)

    def revoke(self, plaintext: str) -> None:
        with closing(self._database()) as database, database.jobs() as session:
            session.execute(
                update(TokenRow)
                .where(TokenRow.sha256 == tokens.digest(plaintext))
                .values(revoked_at=db_now())
            )

    def _database(self) -> Database:
        home = self._service.home
        return Database(f"sqlite:///{home}/jobs.db", f"sqlite:///{home}/series.db")

    def endless(self, name: str, **more: Any) -> str:
        """Submit a job that runs until it is cancelled."""
        return self.curve(name, steps=10_000, pause=0.2, **more)

    def ended(self, *jobs: str) -> None:
        for job in jobs:
            self._service.ended(job)

    def cleared(self, *jobs: str) -> None:
        """Wait until they have ended, and no node has files of them."""
        self.ended(*jobs)

        def are_cleared() -> bool:
            nodes = self._service.http.get("/v1/nodes").json()["items"]
            return not {
                device["job_id"] for node in nodes for device in node["devices"]
            }.intersection(jobs)

        until(are_cleared, 60, "a node with nothing left of them")

    def cancel(self, *jobs: str) -> None:
        for job in jobs:
            self._service.http.post(f"/v1/jobs/{job}/cancel")
        self.ended(*jobs)
