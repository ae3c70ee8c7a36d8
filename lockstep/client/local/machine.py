"""Reliable identification of the service's processes on this machine, for drills.

A pid may have been reused. A program must therefore be a child of ``lockstep up``, a rank's environment must
name the job, a launcher's start time must equal that in its file; signals go through a pidfd that was opened
before these checks.

Not here: supervision (``client.local.supervisor``), and the drills (``client.drills``).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lockstep.client.errors import ClientError, UnreachableError, UsageError
from lockstep.client.local.home import Home, RunFile
from lockstep.domain.life.attempt import ASSIGNMENT, LAUNCHER, RANKS, LauncherFile

PROC: Final = Path("/proc")
JOB: Final = "LOCKSTEP_JOB_ID"
"""Variable in the environment of each rank and its children."""
ANSWER_SECONDS: Final = 0.5
"""For the broker on its socket; it answers within a millisecond or not at all."""


@dataclass(frozen=True)
class Process:
    """One process of this boot: pid and start together name it for good."""

    pid: int
    start_ticks: int
    parent: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has this pid now; None if none has, or it only waits to be reaped."""
        try:
            text = (PROC / str(pid) / "stat").read_bytes()
        except OSError:
            return None
        # The name, in parentheses, may itself hold spaces and parentheses: fields are counted from the last one.
        fields = text[text.rindex(b")") + 2 :].split()
        return None if fields[0] in (b"Z", b"X") else cls(pid, int(fields[19]), int(fields[1]))

    def is_alive(self) -> bool:
        now = Process.of(self.pid)
        return now is not None and now.start_ticks == self.start_ticks

    def environment(self) -> dict[str, str]:
        """Return its command line; empty if it has ended or belongs to another user."""
        try:
            text = (PROC / str(self.pid) / "environ").read_bytes()
        except OSError:
            return {}
        pairs = (word.partition(b"=") for word in text.split(b"\0") if b"=" in word)
        return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}

    def kill(self) -> None:
        """SIGKILL exactly this process.

        Raises
        ------
        ClientError
            If it has ended by itself.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            raise _ended(self) from None
        try:
            if not self.is_alive():
                raise _ended(self)
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
            raise UsageError(f"a drill finds processes in /proc, which {sys.platform} does not have")
        running = self._home.running() if self._home.is_locked() else None
        there = "run the drill on the machine of `lockstep up`, with its LOCKSTEP_HOME: a drill kills processes"
        if running is None:
            raise UsageError(f"no service runs in {self._home.folder}, and {url} is not on this machine: {there}")
        if running.url.rstrip("/") != url.rstrip("/"):
            raise UsageError(
                f"{url} is not the service in {self._home.folder}(at {running.url}): {there}",
                next_step="omit --url and LOCKSTEP_URL to use the local service",
            )
        if not running.ready:
            raise UnreachableError(f"the service at {url} is still starting", next_step="try again in a moment")
        return running

    def program(self, name: str) -> Process:
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
        found = Process.of(pid)
        if found is None or found.parent != running.pid:
            raise ClientError(f"{name} (process {pid}) has just ended", next_step="try again in a moment")
        return found

    def replaced(self, name: str, before: Process) -> bool | None:
        """Return whether a program runs in another process than ``before``; None while it does not run."""
        running = self._home.running()
        pid = None if running is None else running.pids.get(name)
        return None if pid is None else pid != before.pid

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

    def launcher(self, job_id: str) -> Process | None:
        """The launcher of a job's newest attempt here, if it runs."""
        folder = self._folder(job_id)
        document = None if folder is None else _read(folder / LAUNCHER)
        if document is None:
            return None
        file = LauncherFile.model_validate(document)
        found = Process.of(file.pid)
        return found if found is not None and found.start_ticks == file.start_ticks else None

    def ranks(self, job_id: str) -> dict[int, Process]:
        """The running ranks of a job's newest attempt here."""
        folder = self._folder(job_id)
        document = None if folder is None else _read(folder / RANKS)
        found = {one["rank"]: Process.of(one["pid"]) for one in (document or {"ranks": []})["ranks"]}
        return {
            rank: process
            for rank, process in found.items()
            if process is not None and process.environment().get(JOB) == job_id
        }

    def of_job(self, job_id: str) -> list[Process]:
        """Every living process here whose environment names the job."""
        return [process for process in _all() if process.environment().get(JOB) == job_id]

    def _folder(self, job_id: str) -> Path | None:
        """Of the job's newest attempt on this machine's node."""
        found = []
        for path in self._node_folder().glob(f"*/{ASSIGNMENT}"):
            document = _read(path)
            if document is not None and document["job_id"] == job_id:
                found.append((document["attempt_number"], path.parent))
        return max(found)[1] if found else None

    def _node_folder(self) -> Path:
        """The agent's folder may differ from the home's."""
        running = self._home.running()
        agent = None if running is None else Process.of(running.pids.get("worker", 0))
        told = {} if agent is None else agent.environment()
        return Path(told.get("LOCKSTEP_NODE_DIR", self._home.folder / "node"))


def _ended(process: Process) -> ClientError:
    return ClientError(f"process {process.pid} ended before it could be killed", next_step="run the drill again")


def _all() -> Iterator[Process]:
    for path in PROC.iterdir():
        if path.name.isdigit() and (found := Process.of(int(path.name))) is not None:
            yield found


def _read(path: Path) -> dict[str, Any] | None:
    """A file of an attempt's folder, which the agent may be writing or removing."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document
