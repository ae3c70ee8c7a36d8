"""Unique identity of processes, read from ``/proc``.

A pid may be reused. Pid, start time and boot together are unique, so processes are stored, signalled and adopted by
``ProcessKey``.

Not here: the killing of processes (``worker.agent.sweeping``).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from lockstep.domain.life.attempt import MARK_VARIABLE, LauncherFile

PROC = Path("/proc")


class ProcessKey(NamedTuple):
    """One process of this boot."""

    pid: int
    start_ticks: int
    """Field 22 of ``/proc/PID/stat``: clock ticks from boot to the process's start."""


class ProcessStat(NamedTuple):
    """Fields of one read of ``/proc/PID/stat``."""

    key: ProcessKey
    parent: int
    session: int
    state: str
    """One letter; ``Z`` and ``X`` are dead and wait to be reaped."""

    @property
    def alive(self) -> bool:
        """Return whether it can still run or write."""
        return self.state not in "ZX"


def boot_id() -> str:
    """Changes with every boot of the machine, and so ends the life of every pid."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def boottime() -> float:
    """Return seconds on the clock of ``fence``, which runs while the machine sleeps and cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process(pid: int) -> ProcessStat | None:
    """The process with this pid now, or None."""
    try:
        text = _contents(f"{PROC}/{pid}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may itself hold spaces and parentheses: fields are counted from the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    state = fields[0].decode()
    if state == "Z" and int(fields[17]) > 1:
        # Only its first thread has ended. The others run, or are exiting and still hold resources.
        state = "R"
    return ProcessStat(ProcessKey(pid, int(fields[19])), int(fields[1]), int(fields[3]), state)


def is_alive(key: ProcessKey) -> bool:
    """Return whether exactly this process still runs."""
    found = process(key.pid)
    return found is not None and found.key == key and found.alive


def send(key: ProcessKey, number: signal.Signals) -> None:
    """Signal exactly this process or none: a pidfd is opened first, then its identity is checked."""
    # One that became another user's may not be signalled by this one, and must not save those after it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        handle = os.pidfd_open(key.pid)
        try:
            found = process(key.pid)
            if found is not None and found.key == key:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def at_end_of(key: ProcessKey, act: Callable[[], None]) -> None:
    """Call ``act`` from a thread of its own as soon as exactly this process has ended.

    Raises
    ------
    OSError
        If the kernel or this process has no descriptor to give.
    """
    try:
        handle = os.pidfd_open(key.pid)
    except ProcessLookupError:
        act()
        return

    def wait() -> None:
        try:
            if is_alive(key):
                end = select.poll()
                end.register(handle, select.POLLIN)
                end.poll()
        finally:
            os.close(handle)
        act()

    threading.Thread(target=wait, name=f"end of {key.pid}", daemon=True).start()


def launcher_key(file: LauncherFile | None) -> ProcessKey | None:
    """The process that ``launcher.json`` names, if this boot is still the one it was written in."""
    if file is None or file.boot_id != boot_id():
        return None
    return ProcessKey(file.pid, file.start_ticks)


class ProcessSnapshot:
    """All processes at one moment. One scan serves every question that is asked about it."""

    def __init__(self, processes: Iterable[ProcessStat]):
        self.by_pid = {found.key.pid: found for found in processes}
        self._children: defaultdict[int, list[ProcessStat]] = defaultdict(list)
        for found in self.by_pid.values():
            self._children[found.parent].append(found)

    @classmethod
    def take(cls) -> ProcessSnapshot:
        """Scan ``/proc`` (about 10 µs per process)."""
        names = (name for name in os.listdir(PROC) if name.isdecimal())  # noqa: PTH208 - names only, no Path per process
        return cls(found for name in names if (found := process(int(name))) is not None)

    def children(self, pid: int) -> list[ProcessStat]:
        return self._children.get(pid, [])

    def descendants(self, pid: int) -> list[ProcessStat]:
        """Every living process below ``pid``, without itself. The dead are passed through: they may have children."""
        found: list[ProcessStat] = []
        waiting = [pid]
        while waiting:
            for child in self.children(waiting.pop()):
                waiting.append(child.key.pid)
                if child.alive:
                    found.append(child)
        return found

    def marked(self, folder: Path) -> list[ProcessStat]:
        """Return living processes that started with this attempt's folder in their environment, oldest first.

        This is the last of several searches: a process may clear its environment, and a fork shows its parent's. Every
        match belongs to the attempt: the folder's name is the assignment's id. A user's program that reads the folder
        does not match.
        """
        name = os.fsencode(folder)
        marks = (MARK_VARIABLE.encode() + b"=" + name + b"\0", b"LOCKSTEP_METRICS=" + name + b"/")
        found = [each for each in self.by_pid.values() if each.alive and _is_marked(each.key.pid, marks)]
        return sorted(found, key=lambda each: each.key.start_ticks)


def _is_marked(pid: int, marks: tuple[bytes, ...]) -> bool:
    try:
        environment = b"\0" + _contents(f"{PROC}/{pid}/environ")
    except OSError:
        return False  # gone, or another user's
    return any(b"\0" + mark in environment for mark in marks)


def _contents(path: str) -> bytes:
    """A small file of ``/proc``. Without ``pathlib`` and ``io``, which take three times as long; a scan reads hundreds."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while piece := os.read(handle, 1 << 16):
            text += piece
        return text
    finally:
        os.close(handle)
