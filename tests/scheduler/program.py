"""A scheduler as a real process that can be killed; several may run.

Not here: the expected behaviour (``test_process``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.databases import Urls


class Scheduler:
    def __init__(
        self,
        folder: Path,
        urls: Urls,
        broker_url: str,
        *,
        timings_scale: float,
        number: int,
        **settings: str,
    ) -> None:
        self.log = folder / f"scheduler-{number}.log"
        environment = {
            **os.environ,
            "LOCKSTEP_DATABASE_URL": urls[0],
            "LOCKSTEP_SERIES_URL": urls[1],
            "LOCKSTEP_BROKER_URL": broker_url,
            "LOCKSTEP_STORE": str(folder / "store"),
            "LOCKSTEP_TIMINGS_SCALE": str(timings_scale),
            "LOCKSTEP_LOG_FORMAT": "json",
            **settings,
        }
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lockstep.scheduler"],
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def end(self) -> float:
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()[-3000:]
        return time.monotonic() - start
