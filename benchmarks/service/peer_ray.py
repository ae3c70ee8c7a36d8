"""Ray Jobs on one node of two CPUs: ``ray start --head``, and jobs over its HTTP API.

It is ended by its processes, not by ``ray stop``, which would end every Ray of this machine.

Not here: the requests to it (the rows).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from benchmarks.service.ours import tree
from benchmarks.service.wire import Wire, free_port, wait_until

START_SECONDS: Final = 180.0
ENDED: Final = {"SUCCEEDED", "FAILED", "STOPPED"}


class Ray:
    """A running head node."""

    def __init__(self, url: str, pid: int):
        self.url = url
        self.pid = pid

    def wire(self) -> Wire:
        return Wire(self.url)

    def submit(self, wire: Wire, command: str, *, cpus: float = 0) -> str:
        """Submit a job and return its id.

        ``cpus`` are held while it runs; without them, jobs do not wait for each other.
        """
        document = {"entrypoint": command} | ({"entrypoint_num_cpus": cpus} if cpus else {})
        submitted: str = wire.post("/api/jobs/", document)["submission_id"]
        return submitted

    def ended(self, wire: Wire, submission_id: str) -> bool:
        """Return True if it has ended.

        Raises
        ------
        RuntimeError
            It ended without success.
        """
        job = wire.get(f"/api/jobs/{submission_id}")
        if job["status"] in ENDED - {"SUCCEEDED"}:
            raise RuntimeError(f"Ray's job ended as {job['status']}: {job.get('message')}")
        return bool(job["status"] in ENDED)


@contextmanager
def running(programs: Path, *, cpus: int) -> Iterator[Ray]:
    """Start a head node, and wait until it takes jobs."""
    # A short path, because its unix sockets are below it.
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    port, dashboard = free_port(), free_port()
    words = [
        "start",
        "--head",
        "--block",
        "--disable-usage-stats",
        "--include-dashboard=true",
        f"--num-cpus={cpus}",
    ]
    words += [
        f"--port={port}",
        "--dashboard-host=127.0.0.1",
        f"--dashboard-port={dashboard}",
        f"--temp-dir={folder}",
    ]
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with (folder / "start.log").open("wb") as log:
        process = subprocess.Popen(
            [programs / "ray", *words],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    ray = Ray(f"http://127.0.0.1:{dashboard}", process.pid)
    try:
        wait_until(
            lambda: _answers(process, ray, folder), START_SECONDS, "Ray takes jobs", pause=0.5
        )
        yield ray
    finally:
        _end(process)
        shutil.rmtree(folder, ignore_errors=True)


def _answers(process: subprocess.Popen[bytes], ray: Ray, folder: Path) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"Ray did not start:\n{(folder / 'start.log').read_text()[-2000:]}")
    try:
        return ray.wire().ask("GET", "/api/jobs/").status == 200
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the head node and all its descendants, and no other processes."""
    with suppress(psutil.NoSuchProcess):
        # Listed before, because a process that loses its parent is not found afterwards.
        all_of_it = tree(process.pid)
        process.terminate()
        _, left = psutil.wait_procs(all_of_it, timeout=20)
        for one in left:
            with suppress(psutil.NoSuchProcess):
                one.kill()
    process.wait()
