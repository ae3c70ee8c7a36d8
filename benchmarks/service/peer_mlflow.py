"""MLflow's tracking server, as ``mlflow server`` starts it.

Its own number of workers, over SQLite or PostgreSQL.

Not here: the requests to it (the rows).
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.service.wire import Wire, free_port, wait_until

START_SECONDS: Final = 300.0
API: Final = "/api/2.0/mlflow"
INTERVAL: Final = "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval"
"""Source of the charts on its own pages."""
BATCH_POINTS: Final = 1_000
"""The limit of ``log_batch``."""
PARAMETERS = {"lr": "0.001", "batch_size": "64", "task": "causal_lm"}


class Mlflow:
    """A running server."""

    def __init__(self, url: str, uri: str, process: subprocess.Popen[bytes]):
        self.url = url
        self.uri = uri
        """Of its database."""
        self.pid = process.pid
        self.experiment: str = self.wire().post(f"{API}/experiments/create", {"name": "bench"})[
            "experiment_id"
        ]

    def wire(self) -> Wire:
        return Wire(self.url)

    def run_document(self, number: int) -> dict[str, Any]:
        """Return the body of ``runs/create`` with a name and a few tags, as its client sends it."""
        tags = [{"key": key, "value": value} for key, value in PARAMETERS.items()]
        now = int(time.time() * 1e3)
        return {
            "experiment_id": self.experiment,
            "start_time": now,
            "run_name": f"run-{number}",
            "tags": tags,
        }

    def create_run(self, wire: Wire) -> str:
        """Create a run and return its id."""
        created: str = wire.post(f"{API}/runs/create", self.run_document(0))["run"]["info"][
            "run_id"
        ]
        return created

    def log(self, wire: Wire, run_id: str, names: list[str], steps: range) -> int:
        """Send one ``log_batch`` with these series at these steps; return the number of points."""
        now = int(time.time() * 1e3)
        metrics = [
            {"key": name, "value": step * 0.001 + place, "timestamp": now + step, "step": step}
            for step in steps
            for place, name in enumerate(names)
        ]
        wire.post(f"{API}/runs/log-batch", {"run_id": run_id, "metrics": metrics})
        return len(metrics)


@contextmanager
def running(programs: Path, folder: Path, uri: str) -> Iterator[Mlflow]:
    """Start a server, and wait until it answers."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = ["server", "--host", "127.0.0.1", "--port", str(port), "--backend-store-uri", uri]
    words += ["--default-artifact-root", str(folder / "artifacts")]
    # Its workers are killed in the middle of a request if they do not answer their parent within 5
    # s, as under full load.
    words += ["--uvicorn-opts", "--timeout-worker-healthcheck 120"]
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    with (folder / "mlflow.log").open("wb") as log:
        process = subprocess.Popen(
            [programs / "mlflow", *words],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until(lambda: _answers(process, url, folder), START_SECONDS, "MLflow answers")
        yield Mlflow(url, uri, process)
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)


def _answers(process: subprocess.Popen[bytes], url: str, folder: Path) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"MLflow did not start:\n{(folder / 'mlflow.log').read_text()[-2000:]}")
    try:
        return Wire(url).ask("GET", "/health").status == 200
    except OSError:
        return False
