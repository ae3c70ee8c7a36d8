"""Our programs, as the rows need them.

The api alone, the whole service, the service with simulated ranks.

Rows about HTTP have the api alone, with a real broker and no scheduler: they measure one program.
Rows about jobs have everything that ``lockstep up`` starts.

Not here: starting a program and using it (the tests' own harnesses, which use the interfaces of a
user).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.service.stores import Urls
from benchmarks.service.wire import Wire, wait_until
from tests.harness.processes import ROOT, Program
from tests.harness.service import Service

UP_SECONDS = 120.0
WARM_MODULE = "lockstep.engine.launcher.fork_server"
"""The process that has imported torch.

It takes the name ``lockstep-warm`` only after that, so it is identified by its command.
"""


@contextmanager
def api_alone(folder: Path, urls: Urls, broker_url: str) -> Iterator[Program]:
    """Run one api process over these databases."""
    folder.mkdir(parents=True, exist_ok=True)
    program = _Api(folder, urls, broker_url)
    program.start()
    try:
        yield program
    finally:
        program.end()


@contextmanager
def older_api(python: Path, folder: Path, urls: Urls, broker_url: str) -> Iterator[Program]:
    """Run one api process of another installation over an empty database.

    Parameters
    ----------
    python : Path
        Its interpreter.
    folder : Path
    urls : Urls
        Of databases without tables.
    broker_url : str
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = _Api(folder, urls, broker_url)
    program.python, program.cwd = str(python), folder
    words = [program.python, "-m", "lockstep.api", "migrate"]
    subprocess.run(words, cwd=folder, env=program.environment, check=True)
    program.start()
    try:
        yield program
    finally:
        program.end()


@contextmanager
def whole_service(
    folder: Path,
    urls: Urls,
    *,
    python: Path = Path(sys.executable),
    simulated: bool = False,
    **environment: str,
) -> Iterator[Service]:
    """Run ``lockstep up`` of an installation over these databases.

    With ``simulated``, its agent starts simulated launchers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    home = folder / "home"
    environment = {**urls.environment(), "LOCKSTEP_KEEP_FOLDERS": "0", **environment}
    service = _Simulated(home, **environment) if simulated else _Executed(python, home, environment)
    try:
        service.up()
        yield service
    finally:
        service.close()


class _Api(Program):
    """The api of an interpreter, executed as a user does it.

    The tests' api is a fork of a process that has imported it, and would be measured with the heap
    of that process.
    """

    python = sys.executable
    cwd = ROOT

    def __init__(self, folder: Path, urls: Urls, broker_url: str):
        super().__init__(folder, **urls.environment(), LOCKSTEP_BROKER_URL=broker_url)

    def begun(self) -> subprocess.Popen[str]:
        words = [self.python, "-m", *self.module]
        return subprocess.Popen(
            words, cwd=self.cwd, env=self.environment, stderr=subprocess.PIPE, text=True
        )


def wire_to(service: Service | Program) -> Wire:
    """Return a connection with the service's token."""
    return Wire(service.url, (service.home / "token").read_text().strip())


class _Executed(Service):
    """The service of an interpreter, executed as a user does it (see ``_Api``)."""

    def __init__(self, python: Path, home: Path, environment: dict[str, str]):
        super().__init__(home, **environment)
        self._command = python.with_name("lockstep")

    def up(self) -> None:
        words = [self._command, "up", "--detach", "--port", str(self.port)]
        subprocess.run(
            words,
            env=self.environment,
            cwd="/",
            check=True,
            timeout=UP_SECONDS,
            capture_output=True,
        )

    def run(
        self, *arguments: str, timeout: float = 120, cwd: Path = ROOT
    ) -> subprocess.CompletedProcess[str]:
        words = [str(self._command), *arguments]
        return subprocess.run(
            words,
            env=self.environment,
            cwd=cwd,
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
        )


class _Simulated(Service):
    """The service whose agent is ``benchmarks.service.simulated``'s."""

    def up(self) -> None:
        self.home.mkdir(parents=True)
        with (self.home / "up.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.service.simulated", "up"],
                env={**self.environment, "LOCKSTEP_PORT": str(self.port)},
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
        wait_until(self._ready, UP_SECONDS, f"the service is up; see {self.home / 'up.log'}")

    def _ready(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"the service did not start:\n{(self.home / 'up.log').read_text()}")
        path = self.home / "run.json"
        return path.exists() and bool(json.loads(path.read_text())["ready"])

    def close(self) -> None:
        super().close()
        self._process.wait(60)


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def pss_gigabytes(processes: list[psutil.Process], *, without: str = "") -> float:
    """Return their proportional set sizes: common memory counts once.

    ``without`` omits the process that runs that module.
    """
    total = 0
    for process in processes:
        if without and without in process.cmdline():
            continue
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        total += next(
            int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")
        )
    return total * 1024 / 1e9


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system
