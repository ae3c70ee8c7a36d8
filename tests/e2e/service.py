"""A running Lockstep for a test: ``lockstep up`` in a folder of its own, and actions of a user.

Not here: any import of the service's code. These tests use only the interfaces of a user: HTTP, the
command, files and processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import psutil

ROOT = Path(__file__).resolve().parents[2]
LOCKSTEP = Path(sys.executable).with_name("lockstep")
ENDED = {"succeeded", "failed", "cancelled"}
T = TypeVar("T")


def until(ask: Callable[[], T | None], seconds: float, what: str) -> T:
    """Poll until the answer is true, or fail after ``seconds`` with ``what`` in the message."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.1)


class Service:
    """``lockstep up --detach`` with its home in ``home``."""

    def __init__(self, home: Path, **environment: str):
        self.home = home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith("LOCKSTEP_")
            },
            "LOCKSTEP_HOME": str(home),
            "LOCKSTEP_CPU_SLOTS": "4",
            "LOCKSTEP_KEEP_FOLDERS": "100",
            "NO_COLOR": "1",
            "COLUMNS": "120",
            **environment,
        }
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx2.Client(base_url=self.url, timeout=60)

    def up(self) -> None:
        done = self.run("up", "--detach", "--port", str(self.port), timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr + self.service_logs()
        self.http.headers["Authorization"] = f"Bearer {(self.home / 'token').read_text().strip()}"

    def down(self) -> subprocess.CompletedProcess[str]:
        return self.run("down", timeout=60)

    def close(self) -> None:
        self.http.close()
        self.down()

    def run(
        self, *arguments: str, timeout: float = 120, cwd: Path = ROOT
    ) -> subprocess.CompletedProcess[str]:
        """Run the ``lockstep`` command."""
        return subprocess.run(  # noqa: PLW1510 -- the tests check the exit code
            [str(LOCKSTEP), *arguments],
            env=self.environment,
            cwd=cwd,
            timeout=timeout,
            capture_output=True,
            text=True,
        )

    def service_logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text()[-3000:]}"
            for path in sorted(self.home.glob("logs/*.log"))
        )

    # --- actions of a user

    def submit(self, spec: dict[str, Any]) -> dict[str, Any]:
        answer = self.http.post("/v1/jobs", json=spec)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def upload(self, folder: Path) -> str:
        """Send a code folder as the client does; return its digest."""
        import hashlib
        import io
        import tarfile

        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, arcname=path.name)
        body = buffer.getvalue()
        digest = hashlib.sha256(body).hexdigest()
        answer = self.http.put(
            f"/v1/uploads/{digest}", content=body, headers={"Content-Type": "application/gzip"}
        )
        assert answer.status_code in {200, 201}, answer.text
        return digest

    def job(self, job_id: str) -> dict[str, Any]:
        answer = self.http.get(f"/v1/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ended(self, job_id: str, seconds: float = 120) -> dict[str, Any]:
        """Wait until the job has ended, and return it."""

        def ask() -> dict[str, Any] | None:
            job = self.job(job_id)
            return job if job["state"] in ENDED else None

        try:
            return until(ask, seconds, f"end of job {job_id}")
        except AssertionError as error:
            raise AssertionError(
                f"{error}\n{json.dumps(self.job(job_id), indent=1)[:3000]}\n{self.service_logs()}"
            ) from None

    def at_step(self, job_id: str, step: int, seconds: float = 60) -> dict[str, Any]:
        """Wait until the running job has completed ``step`` steps, and return it."""

        def ask() -> dict[str, Any] | None:
            job = self.job(job_id)
            assert job["state"] not in ENDED, job
            return job if job["progress"] and job["progress"]["step"] >= step else None

        return until(ask, seconds, f"step {step} of job {job_id}")

    def series(self, job_id: str, attempts: str = "current") -> dict[str, dict[int, float]]:
        """Return every series of a job, by name and step."""
        answer = self.http.get(
            f"/v1/jobs/{job_id}/metrics", params={"attempts": attempts, "max_points": 10_000}
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, dict[int, float]] = {}
        for one in answer.json()["series"]:
            found.setdefault(one["name"], {}).update(zip(one["step"], one["value"], strict=True))
        return found

    def log_lines(self, job_id: str, **query: Any) -> list[dict[str, Any]]:
        """Return every log line of a job."""
        lines: list[dict[str, Any]] = []
        cursor = None
        while True:
            params = {"limit": 1000, **query} | ({"cursor": cursor} if cursor else {})
            page = self.http.get(f"/v1/jobs/{job_id}/logs", params=params).json()
            lines += page["lines"]
            if not page["lines"] or page["next_cursor"] == cursor:
                return lines
            cursor = page["next_cursor"]

    def events(self, job_id: str) -> list[dict[str, Any]]:
        return self.http.get(f"/v1/jobs/{job_id}/events", params={"limit": 500}).json()["items"]

    # --- actions of an operator

    def program(self, name: str) -> psutil.Process:
        """Return the running process of one of the service's programs."""

        def ask() -> psutil.Process | None:
            for process in psutil.process_iter(["cmdline"]):
                line = process.info["cmdline"] or []
                with contextlib.suppress(psutil.Error):
                    if self._is(name, line) and (name == "broker" or self._is_ours(process)):
                        return process
            return None

        return until(ask, 60, f"process of {name}")

    def _is(self, name: str, line: list[str]) -> bool:
        if name == "broker":
            # The server replaces its command line and its environment with its own title.
            title = " ".join(line)
            return (
                "valkey-server" in title or "redis-server" in title
            ) and f"{self.home}/broker/" in title
        return line[1:4] == ["-P", "-m", f"lockstep.{name}"]

    def _is_ours(self, process: psutil.Process) -> bool:
        return process.environ().get("LOCKSTEP_HOME") == str(self.home)

    def folders(self, job_id: str) -> list[Path]:
        """Return the folders of a job's attempts on its node, oldest first."""
        found = []
        for path in (self.home / "node").glob("*/assignment.json"):
            document = json.loads(path.read_text())
            if document["job_id"] == job_id:
                found.append((document["attempt_number"], path.parent))
        return [folder for _, folder in sorted(found)]

    def rank_pids(self, job_id: str) -> dict[int, int]:
        """Return the process ids of the newest attempt's ranks, by rank."""

        def ask() -> dict[int, int] | None:
            folders = self.folders(job_id)
            if not folders or not (folders[-1] / "ranks.json").exists():
                return None
            return {
                one["rank"]: one["pid"]
                for one in json.loads((folders[-1] / "ranks.json").read_text())["ranks"]
            }

        return until(ask, 60, f"ranks of {job_id}")

    def processes_of(self, job_id: str) -> list[psutil.Process]:
        """Return every living process that has the job's id in its environment."""
        found = []
        for process in psutil.process_iter(["environ", "status"]):
            environment = process.info["environ"] or {}
            if (
                environment.get("LOCKSTEP_JOB_ID") == job_id
                and process.info["status"] != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
        return found


def alive(process: psutil.Process) -> bool:
    """Return True if exactly this process still runs; psutil also compares its start time."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # between the two calls
        return False


def kill(process: psutil.Process) -> None:
    """SIGKILL, and wait for the end."""
    process.send_signal(signal.SIGKILL)
    until(lambda: not alive(process), 60, "death")


def service(home: Path, **environment: str) -> Iterator[Service]:
    """Body of a fixture: start the service, then stop it and check that no process remains."""
    running = Service(home, **environment)
    try:
        running.up()
        yield running
    finally:
        running.close()
