"""Supervisor of a few programs on this machine; it stops them in order.

Each program is a process in its own group (Ctrl-C at a terminal reaches only ``lockstep up``), with
a parent-death signal (``client.local.die_with_parent``) and its output in a log file. A program
that ends is restarted, at first after a second, then at growing intervals. A program that sent
signs of life and then is silent is killed, and restarted likewise.

The supervision goes on while the disk of the logs is full: a program then starts without a log.

The kernel sends the signal when the *thread* that started the process ends. All calls must
therefore come from one thread that lives as long as the service: the main thread of ``lockstep
up``.

Not here: the programs (``client.local.settings``), and the messages to the user
(``client.local.up``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from lockstep.client.local import die_with_parent
from lockstep.client.local.liveness import Notifications, Ping, Signs
from lockstep.domain.errors import SETTINGS_REFUSED

LOG_BYTES_MAX: Final = 10 * 1024 * 1024
"""A log larger than this at a start is set aside as ``NAME.log.1``, in place of the one before."""
BACKOFF_SECONDS: Final = 1.0
BACKOFF_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A program that has run for so long has recovered: its next end counts as the first."""
SILENT_SECONDS: Final = 30.0
"""A program without a sign of life for so long is killed. It sends one each second."""
AWAY_SECONDS: Final = 5.0
"""A longer interval between two looks means that this process itself was stopped."""
POLL_SECONDS: Final = 0.05


@dataclass(frozen=True)
class Program:
    """Something to keep running."""

    name: str
    argv: tuple[str, ...]
    stop_seconds: float
    """From SIGTERM to SIGKILL."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of this program, in addition to the common ones."""
    socket: Path | None = None
    """Unix socket of a program that is a Redis server; the others send notifications."""


@dataclass
class _Running:
    """One program's process, or the wait for its next."""

    program: Program
    signs: Signs
    heard_at: float | None = None
    """Time of the last sign of life; None before the first."""
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_at: float = 0.0
    ends: int = 0
    """Ends in a row, since it last ran steadily."""
    refuses: bool = False
    """True if it ended because it refuses its settings."""


class ServiceSupervisor:
    """The programs of one service.

    Parameters
    ----------
    programs : sequence of Program
        In the order in which they are started; they are stopped in the opposite order.
    folder : Path
        Their working directory.
    logs : Path
    environment : mapping
    tell : callable
        Receives one line for the user.
    clock : callable
        ``time.monotonic``.
    silent_seconds : float
    """

    def __init__(
        self,
        programs: tuple[Program, ...],
        *,
        folder: Path,
        logs: Path,
        environment: Mapping[str, str],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        silent_seconds: float = SILENT_SECONDS,
    ):
        self._running = [_Running(program, _signs_of(program)) for program in programs]
        self._silent_seconds = silent_seconds
        self._looked_at = clock()
        self._folder = folder
        self._logs = logs
        self._environment = dict(environment)
        self._tell = tell
        self._clock = clock

    def log_of(self, program: Program) -> Path:
        return self._logs / f"{program.name}.log"

    def pids(self) -> dict[str, int]:
        """Process ids of the programs that run now."""
        return {
            each.program.name: each.process.pid
            for each in self._running
            if each.process is not None
        }

    def most_ends(self) -> tuple[Program, int]:
        """The program that ended most often in a row, and how often."""
        worst = max(self._running, key=lambda each: each.ends)
        return worst.program, worst.ends

    def refusing(self) -> Program | None:
        """Return a program that refuses its settings, if there is one."""
        return next((each.program for each in self._running if each.refuses), None)

    def tend(self) -> bool:
        """Start programs that are due and record those that ended.

        Return True if there was either.
        """
        changed = False
        now = self._clock()
        away = now - self._looked_at > AWAY_SECONDS
        self._looked_at = now
        for each in self._running:
            self._look_for_signs(each, now, away=away)
            if each.process is not None and has_ended(each.process):
                self._note_end(each, now)
                changed = True
            if each.process is None and now >= each.start_at:
                each.process = self._start(each)
                each.started_at = now
                changed = True
        return changed

    def _look_for_signs(self, each: _Running, now: float, *, away: bool) -> None:
        if each.signs.received() or (away and each.heard_at is not None):
            each.heard_at = now
        if each.process is None or each.heard_at is None:
            return
        if now - each.heard_at > self._silent_seconds and not has_ended(each.process):
            each.heard_at = None
            self._tell(
                f"{each.program.name} gave no sign of life for {self._silent_seconds:g} s: "
                f"killing it"
            )
            os.kill(each.process.pid, signal.SIGKILL)

    def _start(self, each: _Running) -> subprocess.Popen[bytes] | None:
        """Start a program; None if that must be tried again."""
        each.heard_at = None
        try:
            return self.start(each.program, each.signs.environment)
        except OSError as error:
            # Out of memory or processes, for example.
            each.start_at = self._clock() + BACKOFF_SECONDS_MAX
            self._tell(f"{each.program.name} cannot be started: {error}")
            return None

    def _note_end(self, each: _Running, now: float) -> None:
        assert each.process is not None
        code = reap(each.process)
        each.process = None
        each.refuses = code == SETTINGS_REFUSED
        each.ends = 1 if now - each.started_at >= STEADY_SECONDS else each.ends + 1
        wait = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2.0 ** min(each.ends - 1, 30))
        each.start_at = now + wait
        name = each.program.name
        self._tell(
            f"{name} ended ({how(code)}); restarting it in {wait:g} s; its log: "
            f"{self.log_of(each.program)}"
        )

    def start(
        self, program: Program, signs: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start one process of ``program``."""
        stub = [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid())]
        with self._open_log(program) as log:
            return subprocess.Popen(
                [*stub, *program.argv],
                cwd=self._folder,
                env={**self._environment, **program.environment, **(signs or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def _open_log(self, program: Program) -> IO[bytes]:
        path = self.log_of(program)
        try:
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size > LOG_BYTES_MAX:
                    path.replace(path.with_suffix(".log.1"))
            path.touch(mode=0o600)
            return path.open("ab")
        except OSError:
            return Path(os.devnull).open("ab")

    def stop(self, hurry: Callable[[], bool] = lambda: False) -> None:
        """Stop all programs in the opposite order of their start, one after the other.

        Parameters
        ----------
        hurry : callable
            True once the user repeats the request: programs are then killed without a wait.
        """
        for each in reversed(self._running):
            if each.process is not None:
                if end(each.process, each.program.stop_seconds, hurry, self._clock) and not hurry():
                    seconds = each.program.stop_seconds
                    self._tell(
                        f"{each.program.name} did not end within {seconds:g} s of SIGTERM and was "
                        f"killed"
                    )
                each.process = None
            each.signs.close()


def _signs_of(program: Program) -> Signs:
    return Notifications() if program.socket is None else Ping(program.socket)


def end(
    process: subprocess.Popen[bytes],
    seconds: float,
    hurry: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Ask a process to end, wait, and then kill it with its whole group.

    True if it had to be killed.
    """
    deadline = clock() + seconds
    # Not Popen.send_signal: it would take the exit status of a process that has just ended, and its
    # group's id with it.
    if not has_ended(process):
        os.kill(process.pid, signal.SIGTERM)
    while not has_ended(process) and clock() < deadline and not hurry():
        time.sleep(POLL_SECONDS)
    killed = not has_ended(process)
    reap(process)
    return killed


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process has ended, without reaping it: its id stays reserved."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def reap(process: subprocess.Popen[bytes]) -> int:
    """Kill the rest of a process's group, then reap the process.

    In this order: the group's id stays reserved until its leader is reaped.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def how(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
