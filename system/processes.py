"""Processes of this machine, read from ``/proc``.

A pid may be reused. Pid, start time and boot together are unique, so processes are stored,
signalled and adopted by ``ProcessKey``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


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


def keep_files_private() -> int:
    """Let this process and its children make files for their user alone; return the former mask."""
    return os.umask(0o077)


def boottime() -> float:
    """Return seconds on the clock of ``fence``: it includes sleep and cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def stat_fields(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the third (state) on.

    The second, the name in parentheses, may itself hold spaces and parentheses.

    Raises
    ------
    OSError
        If there is no such process.
    """
    text = _contents(f"{PROC}/{pid}/stat").decode(errors="replace")
    return text[text.rindex(")") + 2 :].split()


def process(pid: int) -> ProcessStat | None:
    """Return the process with this pid now, or None."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return None
    state = fields[0]
    if state == "Z" and int(fields[17]) > 1:
        # Only its first thread has ended. The others run, or are exiting and still hold resources.
        state = "R"
    return ProcessStat(ProcessKey(pid, int(fields[19])), int(fields[1]), int(fields[3]), state)


def is_alive(key: ProcessKey) -> bool:
    """Return whether exactly this process still runs."""
    found = process(key.pid)
    return found is not None and found.key == key and found.alive


def send(key: ProcessKey, number: signal.Signals) -> None:
    """Signal exactly this process or none: the identity is checked after pidfd_open."""
    # One that became another user's may not be signalled by this one, and must not save those after
    # it.
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


def environment(pid: int) -> dict[str, str]:
    """Return the environment of a process; empty if it has ended or belongs to another user."""
    try:
        text = _contents(f"{PROC}/{pid}/environ")
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in text.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def become_subreaper() -> None:
    """Make this process the parent of every orphan among its descendants, until it ends.

    Raises
    ------
    OSError
        If the kernel refuses, which none since Linux 3.4 does.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Request a SIGKILL from the kernel for the end of the thread that started this process.

    The parent may have ended before the call: compare ``os.getppid()`` afterwards.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl({option}): {os.strerror(code)}")


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
        """Every living process below ``pid``, without itself.

        The dead are passed through: they may have children.
        """
        found: list[ProcessStat] = []
        waiting = [pid]
        while waiting:
            for child in self.children(waiting.pop()):
                waiting.append(child.key.pid)
                if child.alive:
                    found.append(child)
        return found

    def marked(self, marks: Sequence[bytes]) -> list[ProcessStat]:
        """Return living processes whose environment starts an entry with a mark, oldest first.

        A process may clear its environment, and a fork shows its parent's.
        """
        alive = (each for each in self.by_pid.values() if each.alive)
        found = [each for each in alive if _is_marked(each.key.pid, marks)]
        return sorted(found, key=lambda each: each.key.start_ticks)


def _is_marked(pid: int, marks: Sequence[bytes]) -> bool:
    try:
        environment = b"\0" + _contents(f"{PROC}/{pid}/environ")
    except OSError:
        return False  # gone, or another user's
    return any(b"\0" + mark in environment for mark in marks)


def _contents(path: str) -> bytes:
    """A small file of ``/proc``.

    Without ``pathlib`` and ``io``, which take three times as long; a scan reads hundreds.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while piece := os.read(handle, 1 << 16):
            text += piece
        return text
    finally:
        os.close(handle)
