"""``lockstep up``: start, supervision and stop of the service on this machine.

1. Take the home's lock; it is held until the end, so there is one service per home.
2. Check that the port is free, before anything is started.
3. Bring the databases up to date, in a process that runs to its end.
4. Start broker, api, worker, scheduler; write ``run.json``.
5. Wait until the api is ready and a node has registered; print the next steps.
6. Restart programs that end.
7. On SIGTERM, SIGINT or SIGHUP: scheduler first, which ends placement; then the worker, which stops
   its jobs (they are queued again and go on at the next start); then api and broker. No process is
   left; ``run.json`` is removed.

If this process is SIGKILLed its programs die with it (``client.local.die_with_parent``), and the
jobs' ranks at their fence.

Not here: keeping processes alive (``client.local.supervisor``).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from lockstep.client.errors import ClientError, ExitCode, UnreachableError, UsageError
from lockstep.client.local.home import Home, RunFile
from lockstep.client.local.settings import Options, Service
from lockstep.client.local.supervisor import (
    POLL_SECONDS,
    Program,
    ServiceSupervisor,
    end,
    has_ended,
    how,
    reap,
)
from lockstep.domain.errors import SETTINGS_REFUSED

READY_SECONDS: Final = 90.0
"""From the start to an api that can work; a busy machine with a cold disk needs some of it."""
NODE_SECONDS: Final = 30.0
"""Wait for a registered node. A timeout is reported and not fatal: jobs wait for nodes."""
MIGRATE_SECONDS: Final = 600.0
ENDS_AT_START_MAX: Final = 3
"""A program that ends so often before the service is ready will not come up by itself."""
TAIL_LINES: Final = 12
PROBE_SECONDS: Final = 0.1
DETACHED_LOG: Final = "up.log"

Tell = Callable[[str], None]
Probe = Callable[[], bool]


class Stop:
    """Requests to end this process: whether there was one, and whether it was repeated."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> bool:
        return self.asked > 0

    def again(self) -> bool:
        """Asked a second time: do not wait."""
        return self.asked > 1

    def note(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked += 1


def run(
    home: Home,
    service: Service,
    *,
    tell: Tell,
    ready: Probe | None = None,
    has_node: Probe | None = None,
) -> int:
    """Run the service until it is asked to end. Must be called from the main thread.

    Parameters
    ----------
    home : Home
    service : Service
        Programs to start.
    tell : callable
        Receives one line for the user.
    ready, has_node : callable
        Return whether the api is ready and whether a node has registered; by default over HTTP.
    """
    home.create()
    tell = _unbreakable(tell)
    with home.locked(), _stop_signals() as stop:
        # The file of a killed service names a pid that may have been reused, and `lockstep down`
        # reads it.
        home.run_file.unlink(missing_ok=True)
        _check_port(service)
        supervisor = ServiceSupervisor(
            service.programs,
            folder=home.folder,
            logs=home.logs,
            environment=service.environment,
            tell=tell,
        )
        run_file = RunFile(
            url=service.url, pid=os.getpid(), started=time.time(), token_file=service.token_file
        )
        tell(f"starting in {home.folder} …")
        try:
            _migrate(supervisor, service.migrate, stop)
            _start(
                home,
                supervisor,
                run_file,
                stop,
                ready or (lambda: _answers(f"{service.url}/readyz")),
            )
            if not stop():
                _await_node(supervisor, stop, tell, has_node or (lambda: _a_node_is_ready(service)))
                # In this order: a caller that waits for `ready` then reads the printed lines.
                _greet(home, service, tell)
                home.write_run_file(
                    run_file.model_copy(update={"ready": True, "pids": supervisor.pids()})
                )
            noted = True
            while not stop():
                if supervisor.tend() or not noted:
                    noted = _note(home, run_file, supervisor)
                time.sleep(POLL_SECONDS)
            tell(
                "stopping: running jobs are stopped and continue at the next `lockstep up`; "
                "press Ctrl-C again to end at once"
            )
        finally:
            supervisor.stop(stop.again)
            home.run_file.unlink(missing_ok=True)
        tell("stopped")
    return ExitCode.OK


def _note(home: Home, run_file: RunFile, supervisor: ServiceSupervisor) -> bool:
    """Write ``run.json`` of a running service; False if the disk is full at the moment."""
    try:
        home.write_run_file(run_file.model_copy(update={"ready": True, "pids": supervisor.pids()}))
    except OSError:
        return False
    return True


def _unbreakable(tell: Tell) -> Tell:
    """Return ``tell`` that drops a line where stderr is closed or on a full disk."""

    def told(line: str) -> None:
        with contextlib.suppress(OSError):
            tell(line)

    return told


@contextlib.contextmanager
def _stop_signals() -> Iterator[Stop]:
    """Take note of the signals that end the service, instead of being ended by them."""
    stop = Stop()
    # Signals that the caller ignores (nohup, a shell's background job) stay ignored.
    wished = [
        each
        for each in (signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(each) is not signal.SIG_IGN
    ]
    signals = (signal.SIGTERM, *wished)
    before = [signal.signal(each, stop.note) for each in signals]
    try:
        yield stop
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


def _check_port(service: Service) -> None:
    family = socket.AF_INET6 if ":" in service.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As uvicorn binds: a port in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((service.host, service.port))
    except OSError as error:
        raise UsageError(
            f"port {service.port} of {service.host} cannot be used: "
            f"{(error.strerror or str(error)).lower()}",
            next_step="choose another port with --port",
        ) from None


def _migrate(supervisor: ServiceSupervisor, program: Program, stop: Stop) -> None:
    process = supervisor.start(program)
    deadline = time.monotonic() + MIGRATE_SECONDS
    while not has_ended(process):
        if stop() or time.monotonic() > deadline:
            end(process, program.stop_seconds)
            if stop():
                return
            raise ClientError(f"migrating the databases took longer than {MIGRATE_SECONDS:g} s")
        time.sleep(POLL_SECONDS)
    code = reap(process)
    if code == SETTINGS_REFUSED:
        raise _refused(supervisor, program)
    if code != 0:
        raise _did_not_start(
            "migrating the databases failed", how(code), supervisor.log_of(program)
        )


def _start(
    home: Home, supervisor: ServiceSupervisor, run_file: RunFile, stop: Stop, ready: Probe
) -> None:
    """Start the programs and wait until the api can work."""
    deadline = time.monotonic() + READY_SECONDS
    while not stop():
        if supervisor.tend():
            home.write_run_file(run_file.model_copy(update={"pids": supervisor.pids()}))
        _require_settings(supervisor)
        if ready():
            return
        worst, ends = supervisor.most_ends()
        if ends >= ENDS_AT_START_MAX:
            raise _did_not_start(
                f"{worst.name} does not start", f"it ended {ends} times", supervisor.log_of(worst)
            )
        if time.monotonic() > deadline:
            raise _did_not_start(
                "the api does not answer", f"waited {READY_SECONDS:g} s", home.logs / "api.log"
            )
        time.sleep(PROBE_SECONDS)


def _require_settings(supervisor: ServiceSupervisor) -> None:
    """Raise UsageError if a program refuses its settings: each start would end so."""
    program = supervisor.refusing()
    if program is not None:
        raise _refused(supervisor, program)


def _refused(supervisor: ServiceSupervisor, program: Program) -> UsageError:
    last = " ".join(tail(supervisor.log_of(program), 1))
    return UsageError(
        f"{program.name} refuses its settings: {last}", next_step="see: lockstep settings"
    )


def _await_node(supervisor: ServiceSupervisor, stop: Stop, tell: Tell, has_node: Probe) -> None:
    deadline = time.monotonic() + NODE_SECONDS
    while not stop():
        supervisor.tend()
        _require_settings(supervisor)
        if has_node():
            return
        if time.monotonic() > deadline:
            tell(
                "the node of this machine is not registered yet, so jobs wait; see the log of the "
                "worker"
            )
            return
        time.sleep(PROBE_SECONDS)


def _did_not_start(what: str, why: str, log: Path) -> ClientError:
    return ClientError(f"{what}: {why}; the end of {log}:\n" + "\n".join(tail(log)))


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 64 * 1024))
            return file.read().decode("utf-8", "replace").splitlines()[-lines:]
    except OSError:
        return []


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - our own http:// address
            return bool(response.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


def _a_node_is_ready(service: Service) -> bool:
    from lockstep.client.api import Client

    token_file = Path(service.token_file)
    token = token_file.read_text(encoding="utf-8").strip() if token_file.exists() else None
    try:
        with Client(service.url, token, patience_seconds=0, say=lambda _: None) as client:
            return any(node.state == "ready" for node in client.nodes())
    except UnreachableError:
        return False


def _greet(home: Home, service: Service, tell: Tell) -> None:
    tell(f"Lockstep is up at {service.url}")
    tell(f"  pages   {service.url}/  (sign in with: lockstep open)")
    if Path(service.token_file).exists():
        tell(f"  token   {service.token_file}")
    tell(f"  data    {home.folder}")
    if home.folder != Home.of({}).folder:
        # Commands in other terminals look in the user's own home, where this service is not.
        tell(
            f"  first   export LOCKSTEP_HOME={shlex.quote(str(home.folder))}   # in each terminal "
            f"you work from"
        )
    tell("  next    lockstep submit FILE · lockstep ps · lockstep nodes · lockstep down")


def run_detached(home: Home, options: Options, *, tell: Tell) -> int:
    """Start ``lockstep up`` in the background and return when the service is ready."""
    home.create()
    with home.locked():
        # Only to refuse early and in the same words; the process in the background takes the lock
        # for itself.
        pass
    # A file of its own: of two that start at once, the one without the lock reports that, too.
    log = home.logs / f"{DETACHED_LOG}.{os.getpid()}"
    argv = [
        sys.executable,
        "-P",
        "-m",
        "lockstep",
        "up",
        "--home",
        str(home.folder),
        *options.words(),
    ]
    log.touch(mode=0o600)
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _await_detached(home, process)
    except BaseException:
        # Interrupted or timed out: the caller reports that nothing runs, so nothing may run.
        if process.poll() is None:
            end(process, READY_SECONDS)
        raise
    finally:
        lines = tail(log, 2 * TAIL_LINES)
        running = home.running()
        if running is None or running.pid == process.pid:
            log.replace(home.logs / DETACHED_LOG)
        else:
            log.unlink()
    for line in lines:
        tell(line)
    if process.returncode is not None:
        return process.returncode if process.returncode > 0 else ExitCode.FAILED
    # The process stays; that this object forgets it is meant.
    process.returncode = 0
    return ExitCode.OK


def _await_detached(home: Home, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + MIGRATE_SECONDS + READY_SECONDS + NODE_SECONDS
    while process.poll() is None:
        running = home.running()
        if running is not None and running.pid == process.pid and running.ready:
            return
        if time.monotonic() > deadline:
            raise ClientError(
                "`lockstep up` did not become ready in time", next_step=f"read {home.logs}"
            )
        time.sleep(POLL_SECONDS)
