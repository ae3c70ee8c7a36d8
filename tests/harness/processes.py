"""Programs of the service as real processes: start, wait for a condition, signal and kill.

Not here: several of them together (``tests.harness.plane``, ``tests.harness.service``).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx2
import psutil
import pytest
from redis import Redis
from redis.exceptions import RedisError

from tests.harness import forks

ROOT = forks.ROOT
LOCKSTEP = Path(sys.executable).with_name("lockstep")
START_SECONDS = 180.0
"""Deadline for a program that starts on a busy machine."""
T = TypeVar("T")


def inherited() -> dict[str, str]:
    """Return the environment of the tests without settings of Lockstep."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}


def until(ask: Callable[[], T | None], seconds: float = 120.0, what: str = "") -> T:
    """Poll until the answer is true, or fail after ``seconds`` with ``what`` in the message.

    A question costs up to 5 ms of a core: the longer a wait, the rarer they are.
    """
    began = time.monotonic()
    while not (answer := ask()):
        waited = time.monotonic() - began
        assert waited < seconds, f"{what or ask}: not within {seconds} s"
        time.sleep(min(max(0.02, waited / 20), 0.1))
    return answer


def alive(process: psutil.Process | int) -> bool:
    """Return True if the process runs; of psutil's objects, if exactly this process still does."""
    try:
        found = psutil.Process(process) if isinstance(process, int) else process
        return found.is_running() and found.status() not in (
            psutil.STATUS_ZOMBIE,
            psutil.STATUS_DEAD,
        )
    except psutil.NoSuchProcess:
        return False


def kill(process: psutil.Process) -> None:
    """SIGKILL, and wait for the end."""
    process.send_signal(signal.SIGKILL)
    until(lambda: not alive(process), what="death")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def gone(processes: Iterable[psutil.Process], seconds: float, what: str) -> float:
    """Wait until none of them is left; return that moment in seconds since the epoch."""
    waiting = list(processes)
    deadline = time.monotonic() + seconds
    while any(map(alive, waiting)):
        assert time.monotonic() < deadline, f"{what}: not gone within {seconds} s"
        time.sleep(0.01)
    return time.time()


def signalled(processes: Iterable[psutil.Process], number: signal.Signals) -> float:
    """Send each of them a signal; return that moment in seconds since the epoch."""
    at = time.time()
    for process in processes:
        process.send_signal(number)
    return at


def stop_between_writes(processes: Sequence[psutil.Process], folder: Path) -> float:
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


class Program:
    """``python -m lockstep.api`` with its databases, store and token in one folder.

    ``module`` names another module that serves the api.
    """

    def __init__(self, home: Path, *module: str, **environment: str):
        self.home = home
        self.module = module or ("lockstep.api",)
        self.environment = {
            "PATH": os.environ["PATH"],
            "LOCKSTEP_DATABASE_URL": f"sqlite:///{home}/jobs.db",
            "LOCKSTEP_BROKER_URL": f"redis+socket://{home}/none.sock",
            "LOCKSTEP_STORE": str(home / "store"),
            "LOCKSTEP_TOKEN_FILE": str(home / "token"),
            "LOCKSTEP_LOG_FORMAT": "json",
            "LOCKSTEP_PORT": "0",
            **environment,
        }
        self.process: subprocess.Popen[str] | None = None
        self.lines: list[dict[str, object]] = []
        self.url = ""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the program until it ends by itself."""
        return forks.run(
            [sys.executable, "-m", "lockstep.api", *arguments],
            forks.SERVICE,
            cwd=ROOT,
            env=self.environment,
            timeout=START_SECONDS,
        )

    def start(self) -> None:
        """Start it, and wait until it reports its address."""
        self.process = self.begun()
        listening = threading.Event()

        def read(process: subprocess.Popen[str]) -> None:
            assert process.stderr is not None
            with process.stderr as lines:
                for line in lines:
                    self.lines.append(json.loads(line) if line.startswith("{") else {"text": line})
                    if self.lines[-1].get("event") == "listening":
                        self.url = str(self.lines[-1]["url"])
                        listening.set()
            listening.set()

        self.reader = threading.Thread(target=read, args=(self.process,))
        self.reader.start()
        assert listening.wait(START_SECONDS)
        assert self.process.poll() is None, self.lines

    def begun(self) -> subprocess.Popen[str]:
        """Start the process, with a pipe for its log."""
        return forks.Forked(
            [sys.executable, "-m", *self.module],
            forks.SERVICE,
            cwd=ROOT,
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, number: int = signal.SIGTERM) -> float:
        """Send a signal and wait for the end; return the seconds that it took."""
        if self.process is None:
            return 0.0
        started = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(60)
        self.reader.join(60)
        self.process = None
        return time.monotonic() - started

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def client(self) -> httpx2.Client:
        return httpx2.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}"},
            trust_env=False,
            timeout=60,
        )


class Scheduler:
    def __init__(
        self,
        folder: Path,
        urls: tuple[str, str],
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
            self.process = forks.Forked(
                [sys.executable, "-m", "lockstep.scheduler"],
                forks.SERVICE,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def end(self) -> float:
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()[-3000:]
        return time.monotonic() - start


class Broker:
    """One broker, at one address for the whole test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "b.sock"
        self.url = f"redis+socket://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "lockstep.broker",
                    "--socket",
                    str(self.socket),
                    "--dir",
                    str(self.folder / "data"),
                ],
                stdout=log,
                stderr=log,
            )
        until(self.answers, 60, "the broker's first answer")

    def answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except RedisError:
            return False

    def client(self) -> Redis:
        return Redis(unix_socket_path=str(self.socket), socket_timeout=60)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def freeze(self) -> None:
        """SIGSTOP: the kernel accepts connections, and no request is ever answered."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Run a broker for one test."""
    with running_broker() as running:
        yield running


@contextmanager
def running_broker(*, started: bool = True) -> Iterator[Broker]:
    """Run a broker in a folder with a short name: a unix socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ls-") as folder:
        broker = Broker(Path(folder))
        try:
            if started:
                broker.start()
            yield broker
        finally:
            broker.kill()
