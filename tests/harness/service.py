"""A running Lockstep for a test: ``lockstep up`` in a folder of its own, and actions of a user.

Not here: any import of the service's code. These tests use only the interfaces of a user: HTTP, the
command, files and processes.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.harness import forks
from tests.harness.builders import digest, member, packed, slow
from tests.harness.processes import ROOT, free_port, inherited, until
from tests.harness.sharing import SHARING

ENDED = {"succeeded", "failed", "cancelled"}


class Service:
    """``lockstep up --detach`` with its home in ``home``."""

    def __init__(self, home: Path, **environment: str):
        self.home = home
        self.port = free_port()
        self.environment = {
            **inherited(),
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
        words = ("lockstep", "up", "--detach", "--port", str(self.port))
        started = forks.with_all_below(*words, env=self.environment, cwd=ROOT, **forks.PIPES)
        done = forks.ended(started, 120)
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
        words = [sys.executable, "-m", "lockstep", *arguments]
        return forks.run(words, forks.UP, env=self.environment, cwd=cwd, timeout=timeout)

    def another_node(self, name: str, **environment: str) -> forks.Forked:
        """Start an agent beside the service's own. Its log is ``logs/NAME.log``."""
        environment = {
            **self.program("worker").environ(),
            "LOCKSTEP_NODE_NAME": name,
            "LOCKSTEP_NODE_DIR": str(self.home / f"{name}-node"),
            **environment,
        }
        with (self.home / f"logs/{name}.log").open("ab") as log:
            streams = {"stdout": log, "stderr": log}
            return forks.with_all_below("lockstep.worker", env=environment, cwd=ROOT, **streams)

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
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        body = packed(*(member(str(path.relative_to(folder)), path.read_bytes()) for path in files))
        answer = self.http.put(
            f"/v1/uploads/{digest(body)}",
            content=body,
            headers={"Content-Type": "application/gzip"},
        )
        assert answer.status_code in {200, 201}, answer.text
        return digest(body)

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


def service(home: Path, **environment: str) -> Iterator[Service]:
    """Body of a fixture: start the service, then stop it and check that no process remains."""
    running = Service(home, **environment)
    try:
        running.up()
        yield running
    finally:
        running.close()


def own_or_shared(request: pytest.FixtureRequest) -> Iterator[Service]:
    """Body of a fixture of a module: a service of its own, or that of the modules that share."""
    if str(request.path.relative_to(ROOT)) in SHARING:
        yield request.getfixturevalue("shared_service")
    else:
        yield from service(request.getfixturevalue("tmp_path_factory").mktemp("lockstep"))


def weights(service: Service, job_id: str) -> dict[str, Any]:
    """Return the tensors of the model in a job's final checkpoint, flattened by name."""
    import torch  # most users of this module need no tensors

    from lockstep.engine.checkpoints import checkpoint

    items = service.http.get(f"/v1/jobs/{job_id}/checkpoints").json()["items"]
    folder = Path(next(item for item in items if item["final"])["location"].removeprefix("file://"))
    state = checkpoint.load(folder)
    found = {
        name: value for name, value in state["model"].items() if isinstance(value, torch.Tensor)
    }
    assert found
    return found


EVERY_STEPS = 10
"""Steps from one checkpoint to the next."""
STEPS_PER_FAULT = 60
"""Of a job that gets many faults: more than it runs from a resume to the next fault."""


def train(
    service: Service, name: str, steps: int, *, pause: float = 0.002, **train: Any
) -> dict[str, Any]:
    """Return two ranks that train for ``steps`` steps of some 20 ms by default until ``hurry``."""
    checkpoint = {"checkpoint": {"every_steps": EVERY_STEPS}, **train}
    enough = _enough(service, name)
    enough.unlink(missing_ok=True)  # of an earlier job of this name
    args = {"pause": pause, "enough": str(enough)}
    return slow(service, service.home / "code", name, args=args, steps=steps, **checkpoint)


def hurry(service: Service, job_id: str) -> None:
    """Let a job run its last steps without pauses, after its last fault."""
    _enough(service, service.job(job_id)["name"]).touch()


def _enough(service: Service, name: str) -> Path:
    return service.home / f"{name}.enough"


@cache
def undisturbed(service: Service, steps: int) -> dict[str, Any]:
    """Return the result of such a job without faults.

    It runs without pauses, because it needs no time for faults.
    """
    job = service.submit(train(service, f"calm-{steps}", steps, pause=0.0))
    assert service.ended(job["id"], 120)["state"] == "succeeded"
    return weights(service, job["id"])


def same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Return True if two models are equal bit by bit."""
    return one.keys() == two.keys() and all(tensor.equal(two[name]) for name, tensor in one.items())


@dataclass(frozen=True)
class Gang:
    """The processes of one attempt on one node."""

    folder: Path
    launcher: psutil.Process
    ranks: tuple[psutil.Process, ...]

    @property
    def members(self) -> tuple[psutil.Process, ...]:
        return (self.launcher, *self.ranks)


def gang_of(service: Service, job_id: str, attempt: int, seconds: float = 120) -> Gang:
    """Return the processes of an attempt, as soon as its ranks were started."""

    def ask() -> Path | None:
        folders = service.folders(job_id)
        found = folders[-1] if len(folders) >= attempt else None
        return found if found is not None and (found / "ranks.json").exists() else None

    return gang_in(until(ask, seconds, f"ranks of attempt {attempt}"))


def gang_in(folder: Path) -> Gang:
    """Return the processes of the attempt in this folder."""
    ranks = sorted(
        json.loads((folder / "ranks.json").read_text())["ranks"], key=lambda one: one["rank"]
    )
    launcher = json.loads((folder / "launcher.json").read_text())["pid"]
    return Gang(
        folder, psutil.Process(launcher), tuple(psutil.Process(one["pid"]) for one in ranks)
    )


def wait_for_checkpoint(service: Service, job_id: str, attempt: int, seconds: float = 120) -> int:
    """Return the step of the first checkpoint that an attempt has published.

    It counts as progress.
    """

    def ask() -> int | None:
        return next(
            (
                event["data"]["step"]
                for event in service.events(job_id)
                if event["kind"] == "checkpoint" and event["attempt"] == attempt
            ),
            None,
        )

    return until(ask, seconds, f"a checkpoint of attempt {attempt}")


def stepped_at(service: Service, job_id: str, attempt: int, seconds: float = 120) -> float:
    """Return the time of an attempt's first step, in seconds since the epoch."""

    def ask() -> float | None:
        found = points(service, job_id, attempt, "train/loss")
        return found["time"][0] if found else None

    return until(ask, seconds, f"first step of attempt {attempt}")


def points(service: Service, job_id: str, attempt: int, name: str) -> dict[str, Any] | None:
    """Return one stored series of an attempt, with the points that later attempts hide."""
    query = {"names": name, "attempts": "all", "max_points": 10_000}
    answer = service.http.get(f"/v1/jobs/{job_id}/metrics", params=query)
    assert answer.status_code == 200, answer.text
    return next((one for one in answer.json()["series"] if one["attempt"] == attempt), None)


def event_at(
    service: Service,
    job_id: str,
    kind: str,
    attempt: int | None,
    seconds: float = 60,
    *,
    nth: int = 1,
) -> tuple[float, dict[str, Any]]:
    """Return time and data of the nth event of a kind, of an attempt or of the job.

    The time is in seconds since the epoch.
    """

    def ask() -> dict[str, Any] | None:
        found = [
            each
            for each in service.events(job_id)
            if each["kind"] == kind and each["attempt"] == attempt
        ]
        return found[nth - 1] if len(found) >= nth else None

    event = until(ask, seconds, f"{kind} of attempt {attempt}")
    return datetime.fromisoformat(event["at"]).timestamp(), event
