"""Reliable end of every process of an attempt.

A rank may ignore SIGTERM, start children, fork twice and leave its session. It cannot leave the
process tree: the launcher is a *subreaper*, so processes without a parent become its children; the
agent is one, too, so the rest of a dead launcher becomes the agent's children. This holds while
either lives. After the death of both there are three searches: the attempt's control group, if it
has one (``worker.launch.groups``); descendants recorded earlier, by pid and start time; and
processes whose initial environment names the attempt's folder.

Without a group a launcher is stopped (SIGSTOP) before its tree is killed: alive, it still collects
orphans; stopped, it starts nothing.

Not here: graceful stops (``stop``, ``worker.agent.assignment``), and the fence, by which a launcher
kills its ranks without an agent (``engine.launcher``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from lockstep.system.processes import ProcessKey, ProcessSnapshot, ProcessStat, is_alive, send
from lockstep.worker.launch.fork_client import ForkServer, ForkServerError
from lockstep.worker.launch.groups import ControlGroup
from lockstep.worker.launch.identity import started_in

KILL_SECONDS = 1.0
"""SIGKILL works within milliseconds; longer than this is not for the caller to wait."""
_ROUND_SECONDS = 0.02


class Children:
    """The agent's own children.

    Launchers, which are known, and orphans, which are to be killed and reaped.

    Starting and looking exclude each other: a launcher that exists but is not known yet would be
    taken for an orphan.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._launchers: dict[int, subprocess.Popen[bytes] | _Forked] = {}

    def start(
        self, command: list[str], *, cwd: Path, environment: Mapping[str, str], output: int
    ) -> int:
        """Start a launcher in its own session, with nothing of the agent open in it.

        Returns its pid.
        """
        with self._lock:
            launcher = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                close_fds=True,
            )
            self._launchers[launcher.pid] = launcher
            return launcher.pid

    def fork(
        self, fork_server: ForkServer, *, cwd: Path, environment: Mapping[str, str], output: int
    ) -> int | None:
        """As :meth:`start`, by a fork of the warm process; None where that is not ready.

        Raises
        ------
        ForkServerError
            If it did not answer. Whatever it may have started is dead then.
        """
        with self._lock:
            try:
                pid = fork_server.fork(cwd, environment, output)
            except ForkServerError:
                self._sweep_orphans()
                raise
            if pid is not None:
                self._launchers[pid] = _Forked(pid)
            return pid

    def exit_status(self, pid: int) -> int | None:
        """Return the exit code of a launcher that this agent started and that has ended, or None.

        A negative one is a signal.
        """
        with self._lock:
            launcher = self._launchers.get(pid)
            return None if launcher is None else launcher.poll()

    def forget(self, pid: int) -> None:
        """Drop a launcher that has ended."""
        with self._lock:
            launcher = self._launchers.get(pid)
            if launcher is not None and launcher.poll() is not None:
                del self._launchers[pid]

    def release_all(self) -> None:
        """Release the launchers from this agent: their exit status will not be read."""
        with self._lock:
            for launcher in self._launchers.values():
                # Popen warns about a child whose exit status was not read, which is intended here.
                launcher.returncode = launcher.poll() or 0
            self._launchers.clear()

    def sweep_orphans(self) -> int:
        """Kill orphans of dead launchers, and reap dead ones. Return the number of living orphans.

        An orphan is a child in another session than the agent's: every descendant of a launcher is,
        and children of the agent's libraries are not.
        """
        with self._lock:
            return self._sweep_orphans()

    def _sweep_orphans(self) -> int:
        session = os.getsid(0)
        process_snapshot = ProcessSnapshot.take()
        orphans = [
            child
            for child in process_snapshot.children(os.getpid())
            if child.key.pid not in self._launchers and child.session != session
        ]
        alive = 0
        for orphan in orphans:
            if not orphan.alive:
                _reap(orphan.key.pid)
                continue
            alive += 1
            kill([orphan, *process_snapshot.descendants(orphan.key.pid)])
        return alive


class _Forked:
    """A child that this process did not start itself.

    As much of ``subprocess.Popen`` as is used here.
    """

    def __init__(self, pid: int):
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self.returncode = (
                    0  # Its status was read elsewhere; the value is Popen's for that case.
                )
            else:
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def kill(processes: Iterable[ProcessStat]) -> None:
    """SIGKILL each of exactly these."""
    for found in processes:
        send(found.key, signal.SIGKILL)


class ProcessTree:
    """Every process of one attempt: its launcher, its descendants, and search results."""

    def __init__(self, folder: Path, launcher: ProcessKey | None):
        self.folder = folder
        self.launcher = launcher
        self.group = ControlGroup(folder.name)
        self._seen: set[ProcessKey] = set()

    def remember(self, process_snapshot: ProcessSnapshot) -> None:
        """Record the launcher's current descendants, for its death while no agent is its parent."""
        if self.launcher is None:
            return
        found = process_snapshot.by_pid.get(self.launcher.pid)
        if found is not None and found.key == self.launcher:
            self._seen = {
                process.key for process in process_snapshot.descendants(self.launcher.pid)
            }

    def survivors(self) -> list[ProcessStat]:
        """Every living process of the attempt, the launcher included."""
        process_snapshot = ProcessSnapshot.take()
        roots = [key for key in (self.launcher, *self._seen) if key is not None]
        found: dict[int, ProcessStat] = {}
        for key in roots:
            root = process_snapshot.by_pid.get(key.pid)
            if root is not None and root.key == key:
                for process in (root, *process_snapshot.descendants(key.pid)):
                    found[process.key.pid] = process
        grouped = [
            process_snapshot.by_pid[pid]
            for pid in self.group.pids()
            if pid in process_snapshot.by_pid
        ]
        for process in (*started_in(self.folder, process_snapshot), *grouped):
            for each in (process, *process_snapshot.descendants(process.key.pid)):
                found[each.key.pid] = each
        return [process for process in found.values() if process.alive]

    def kill(self, seconds: float = KILL_SECONDS) -> bool:
        """Kill all processes.

        Return False if one is left after this time, such as a process that waits for a dead disk.
        """
        deadline = time.monotonic() + seconds
        while not self._kill_once():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_ROUND_SECONDS)
        self.group.remove()
        return True

    def _kill_once(self) -> bool:
        """Run one round.

        Return whether no process was left before it: forks between scan and kill are found by the
        next.
        """
        self.group.kill()
        survivors = self.survivors()
        if self.launcher is not None and is_alive(self.launcher):
            ranks = [process for process in survivors if process.key != self.launcher]
            if ranks:
                send(self.launcher, signal.SIGSTOP)
                kill(ranks)
                return False
        kill(survivors)
        return not survivors
