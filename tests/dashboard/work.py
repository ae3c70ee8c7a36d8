"""Jobs for pages to show: quick scripts that write points and lines, and end when they should.

Not here: a training job, which shows what only the engine knows (``tests.e2e.specs.digits``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from domain.metrics import Record
from storage import series, streams
from storage.database import Database
from tests.e2e.service import Service
from tests.e2e.specs import script

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

MILLION = 1_000_000
SPIKE = 654_321
PLANTED = {"Infinity": SPIKE - 20, "100": SPIKE, "-100": SPIKE + 20, "NaN": SPIKE + 40}
"""At which step each of these values stands among a million within -1 to 1."""

BATCH = 10_000


class Work:
    """Jobs of one running service."""

    def __init__(self, service: Service, folder: Path):
        self._service = service
        folder.mkdir()
        (folder / "curve.py").write_text(CURVE)
        self._upload = service.upload(folder)

    def curve(self, name: str, *, steps: int = 20, pause: float = 0, scale: float = 1, **more: Any) -> str:
        """A script of one rank that draws a curve; its id."""
        command = ["curve.py", str(steps), str(pause), str(scale)]
        job: dict[str, Any] = self._service.submit(script(name, command, upload=self._upload, **more))
        return str(job["id"])

    def million(self, name: str) -> str:
        """A job that has ended, and whose second attempt has a million points, of which four are out of line.

        Stored as an agent stores them: a script that wrote as many in a moment would be held to a rate.
        """
        job_id = self.curve(name, steps=0)
        self.ended(job_id)
        home = self._service.home
        database = Database(f"sqlite:///{home}/jobs.db", f"sqlite:///{home}/series.db")
        planted = {step: float(value) for value, step in PLANTED.items()}
        try:
            with database.series() as session:
                assert streams.open_stream(session, streams.Writer("planted", job_id, 2, "token"))
            for first in range(0, MILLION, BATCH):
                records = []
                for step in range(first + 1, first + BATCH + 1):
                    # A prime apart, so that neighbours differ and every value within -1 to 1 occurs.
                    usual = step * 7919 % 2001 / 1000 - 1
                    records.append(Record(step, step / 100, {"train/loss": planted.get(step, usual)}))
                with database.series() as session:
                    assert series.append(
                        session,
                        assignment_id="planted",
                        token="token",
                        offset_before=first,
                        offset_after=first + BATCH,
                        records=records,
                    )
        finally:
            database.close()
        return job_id

    def endless(self, name: str, **more: Any) -> str:
        """Goes on until somebody cancels it."""
        return self.curve(name, steps=10_000, pause=0.2, **more)

    def ended(self, *jobs: str) -> None:
        for job in jobs:
            self._service.ended(job)

    def cancel(self, *jobs: str) -> None:
        for job in jobs:
            self._service.http.post(f"/v1/jobs/{job}/cancel")
        self.ended(*jobs)
