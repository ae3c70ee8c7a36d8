"""Reliable identification of the service's processes on this machine, for drills.

A pid may have been reused. A program must therefore be a child of ``lockstep up``, a rank's
environment must name the job, a launcher's start time must equal that in its file; signals go
through a pidfd that was opened before these checks.

Not here: supervision (``client.local.supervisor``), and the drills (``client.drills``).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

from lockstep.client.errors import ClientError, UnreachableError, UsageError
from lockstep.client.local.home import Home, RunFile
from lockstep.domain.life.attempt import ASSIGNMENT, LAUNCHER, RANKS, LauncherFile
from lockstep.system import processes
from lockstep.system.processes import ProcessSnapshot, ProcessStat
from lockstep.system.untrusted import MODEL_BYTES_MAX, Untrusted

JOB: Final = "LOCKSTEP_JOB_ID"
"""Variable in the environment of each rank and its children."""
ANSWER_SECONDS: Final = 0.5
"""For the broker on its socket; it answers within a millisecond or not at all."""


def living(pid: int) -> ProcessStat | None:
    """Return the process with this pid; None if there is none, or it only waits to be reaped."""
    found = processes.process(pid)
    return found if found is not None and found.alive else None


def kill(victim: ProcessStat) -> None:
    """Send SIGKILL to exactly this process.

    Raises
    ------
    ClientError
        If it has ended by itself.
    """
    try:
        descriptor = os.pidfd_open(victim.key.pid)
    except ProcessLookupError:
        raise _ended(victim) from None
    try:
        if not processes.is_alive(victim.key):
            raise _ended(victim)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


class Machine:
    """Processes of the ``lockstep up`` on this machine.

    Parameters
    ----------
    home : Home
    """

    def __init__(self, home: Home):
        self._home = home

    def check(self, url: str) -> RunFile:
        """Return the processes of the service at ``url``.

        Raises
        ------
        UsageError
            If that service runs elsewhere, or its processes cannot be inspected.
        UnreachableError
            If it is not ready.
        """
        if sys.platform != "linux":
            raise UsageError(
                f"a drill finds processes in /proc, which {sys.platform} does not have"
            )
        running = self._home.running() if self._home.is_locked() else None
        there = (
            "run the drill on the machine of `lockstep up`, with its LOCKSTEP_HOME: a drill kills "
            "processes"
        )
        if running is None:
            raise UsageError(
                f"no service runs in {self._home.folder}, and {url} is not on this machine: {there}"
            )
        if running.url.rstrip("/") != url.rstrip("/"):
            raise UsageError(
                f"{url} is not the service in {self._home.folder}(at {running.url}): {there}",
                next_step="omit --url and LOCKSTEP_URL to use the local service",
            )
        if not running.ready:
            raise UnreachableError(
                f"the service at {url} is still starting", next_step="try again in a moment"
            )
        return running

    def program(self, name: str) -> ProcessStat:
        """The running process of one of the programs.

        Raises
        ------
        ClientError
            If it does not run, or is not this service's own.
        """
        running = self._home.running()
        pid = None if running is None else running.pids.get(name)
        if running is None or pid is None:
            raise ClientError(
                f"no {name} of this service runs on this machine",
                next_step="it may be starting, or run on another machine",
            )
        found = living(pid)
        if found is None or found.parent != running.pid:
            raise ClientError(
                f"{name} (process {pid}) has just ended", next_step="try again in a moment"
            )
        return found

    def replaced(self, name: str, before: ProcessStat) -> bool | None:
        """Return whether a program runs in another process than ``before``.

        None while it does not run.
        """
        running = self._home.running()
        pid = None if running is None else running.pids.get(name)
        return None if pid is None else pid != before.key.pid

    def broker_answers(self) -> bool:
        """Return whether the bundled broker answers on its socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_SECONDS)
            try:
                connection.connect(str(self._home.socket()))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
            except OSError:
                return False

    def launcher(self, job_id: str) -> ProcessStat | None:
        """The launcher of a job's newest attempt here, if it runs."""
        folder = self._folder(job_id)
        document = None if folder is None else _read(folder, LAUNCHER)
        if document is None:
            return None
        file = LauncherFile.model_validate(document)
        found = living(file.pid)
        return found if found is not None and found.key.start_ticks == file.start_ticks else None

    def ranks(self, job_id: str) -> dict[int, ProcessStat]:
        """The running ranks of a job's newest attempt here."""
        folder = self._folder(job_id)
        document = None if folder is None else _read(folder, RANKS)
        found = {one["rank"]: living(one["pid"]) for one in (document or {"ranks": []})["ranks"]}
        return {
            rank: process
            for rank, process in found.items()
            if process is not None and processes.environment(process.key.pid).get(JOB) == job_id
        }

    def of_job(self, job_id: str) -> list[ProcessStat]:
        """Every living process here whose environment names the job."""
        alive = (found for found in ProcessSnapshot.take().by_pid.values() if found.alive)
        return [found for found in alive if processes.environment(found.key.pid).get(JOB) == job_id]

    def _folder(self, job_id: str) -> Path | None:
        """Of the job's newest attempt on this machine's node."""
        found = []
        for path in self._node_folder().glob(f"*/{ASSIGNMENT}"):
            document = _read(path.parent, ASSIGNMENT)
            if document is not None and document["job_id"] == job_id:
                found.append((document["attempt_number"], path.parent))
        return max(found)[1] if found else None

    def _node_folder(self) -> Path:
        """The agent's folder may differ from the home's."""
        running = self._home.running()
        agent = None if running is None else living(running.pids.get("worker", 0))
        told = {} if agent is None else processes.environment(agent.key.pid)
        return Path(told.get("LOCKSTEP_NODE_DIR", self._home.folder / "node"))


def _ended(process: ProcessStat) -> ClientError:
    return ClientError(
        f"process {process.key.pid} ended before it could be killed",
        next_step="run the drill again",
    )


def _read(folder: Path, name: str) -> dict[str, Any] | None:
    """A file of an attempt's folder, which the agent may be writing or removing."""
    try:
        text = Untrusted(folder).read(name, most=MODEL_BYTES_MAX)
        document: dict[str, Any] | None = None if text is None else json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    return document
