"""Common parts of the drills on the processes of one job: the job, its processes, times, leftovers.

Not here: the service itself (``tests.e2e.service``), and any fault (the ``test_*`` beside this).
"""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import torch

from tests.e2e.service import Service, alive, until
from tests.e2e.specs import SLOW_TASK, slow
from tests.e2e.weights import weights

EVERY_STEPS = 10
"""Steps from one checkpoint to the next."""
STEPS_PER_FAULT = 60
"""Of a job that gets many faults: more than it runs from a resume to the next fault."""
DAEMON = """
import os, pathlib, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
pathlib.Path(sys.argv[1], str(os.getpid())).touch()
time.sleep(600)
"""
TRICKY_TASK = (
    SLOW_TASK
    + f'''

import signal, subprocess, sys

DAEMON = """{DAEMON}"""


class Stubborn(Slow):
    """Traps SIGTERM, and leaves a daemon that has no parent, no session and no environment in common with it."""

    def __init__(self, folder, hang_from):
        super().__init__(pause=0.01)
        self.hang_from = hang_from
        signal.signal(signal.SIGTERM, lambda *_: None)
        subprocess.run([sys.executable, "-c", DAEMON, folder], env={{}}, check=True)

    def loss(self, model, batch):
        if self.seen >= self.hang_from:
            while True:
                time.sleep(1)
        return super().loss(model, batch)


class Lagging(Slow):
    """On rank 1 everything takes five times as long."""

    def __init__(self, pause):
        super().__init__(pause=pause * (5 if os.environ["RANK"] == "1" else 1))


class Stuck(Slow):
    """At its first attempt rank 1 leaves the others alone in a collective."""

    def __init__(self, how):
        super().__init__(pause=0.01)
        self.how = how

    def loss(self, model, batch):
        if os.environ["LOCKSTEP_ATTEMPT"] == os.environ["RANK"] == "1" and self.seen == 40:
            stay_away(self.how)
        return super().loss(model, batch)


def stay_away(how):
    if how == "sleeps":
        time.sleep(600)
    torch.distributed.recv(torch.zeros(1), src=0, tag=77)  # which rank 0 never sends
'''
)


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


def tricky(
    service: Service, folder: Path, task: str, *, args: dict[str, Any], steps: int, **more: Any
) -> dict[str, Any]:
    """Return a job of one of the tasks above.

    ``more`` goes into ``train``, except for ``retry``.
    """
    folder.mkdir(exist_ok=True)
    (folder / "task.py").write_text(TRICKY_TASK)
    retry = {"retry": more.pop("retry")} if "retry" in more else {}
    return {
        "name": task.lower(),
        "kind": "train",
        "resources": {"gpus": 2},
        "code": {"upload": service.upload(folder)},
        "train": {
            "task": f"task.py:{task}",
            "task_args": args,
            "batch": {"size": 16, "micro_size": 4},
            "steps": steps,
            "optimizer": {"name": "sgd", "lr": 0.01},
            **more,
        },
        **retry,
    }


@cache
def undisturbed(service: Service, steps: int) -> dict[str, torch.Tensor]:
    """Return the result of such a job without faults.

    It runs without pauses, because it needs no time for faults.
    """
    job = service.submit(train(service, f"calm-{steps}", steps, pause=0.0))
    assert service.ended(job["id"], 120)["state"] == "succeeded"
    return weights(service, job["id"])


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    """Return True if two models are equal bit by bit."""
    return one.keys() == two.keys() and all(tensor.equal(two[name]) for name, tensor in one.items())


def gone(processes: Iterable[psutil.Process], seconds: float, what: str) -> float:
    """Wait until none of them is left; return that moment in seconds since the epoch."""
    waiting = list(processes)
    deadline = time.monotonic() + seconds
    while any(map(alive, waiting)):
        assert time.monotonic() < deadline, f"{what}: not gone within {seconds} s"
        time.sleep(0.01)
    return time.time()


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


def signalled(processes: Iterable[psutil.Process], number: signal.Signals) -> float:
    """Send each of them a signal; return that moment in seconds since the epoch."""
    at = time.time()
    for process in processes:
        process.send_signal(number)
    return at


def frozen(processes: Sequence[psutil.Process], folder: Path) -> float:
    """SIGSTOP them at a moment without a write to the SQLite files in ``folder``.

    Return that moment in seconds since the epoch. A process that is stopped inside a transaction
    blocks all other writers, because only one machine stands still.
    """
    for _ in range(100):
        at = signalled(processes, signal.SIGSTOP)
        until(
            lambda: all(each.status() == psutil.STATUS_STOPPED for each in processes),
            60,
            "their standstill",
        )
        if all(map(_can_be_written, folder.glob("*.db"))):
            return at
        signalled(processes, signal.SIGCONT)
        time.sleep(0.2)  # until its end
    raise AssertionError("there is always one of them that writes")


def _can_be_written(file: Path) -> bool:
    connection = sqlite3.connect(file, timeout=1.0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


def saved_by(service: Service, job_id: str, attempt: int, seconds: float = 120) -> int:
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
