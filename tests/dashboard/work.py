"""Jobs for pages to show: quick scripts that write points and lines, and end when they should.

Not here: a training job, which shows what only the engine knows (``tests.e2e.specs.digits``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
