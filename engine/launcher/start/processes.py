"""Process tree of an attempt, and its end.

The launcher is a *subreaper*: a process of the attempt whose parent has died becomes the launcher's
own child, so walking ``/proc`` down from here finds every process that the attempt has started,
whatever sessions, groups or signal handlers it uses. Marks in the environment would not suffice: a
forked child shows the environment of its parent.

Not here: the time of a kill (``engine.launcher.watch``).
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from lockstep.domain.life.attempt import LauncherFile
from lockstep.system.processes import ProcessSnapshot, boot_id, stat_fields

_ENV_START, _ENV_END = 47, 48
"""Fields 50 and 51 of ``/proc/PID/stat``, counted from the third on."""
_WAIT_SECONDS = 0.02
_log = logging.getLogger(__name__)


def enter_group(folder: str | None) -> None:
    """Move this process and its future children into the attempt's control group.

    Without a control group, or if this fails, the agent finds the attempt's processes by a search.
    """
    if folder is None:
        return
    try:
        (Path(folder) / "cgroup.procs").write_text("0")
    except OSError as error:
        _log.warning("entering the control group %s failed: %s", folder, error)


def wait_for_an_end(pids: Iterable[int], seconds: float) -> None:
    """Wait until one of these children has ended or was reaped, at most this long."""
    ends = select.poll()
    with contextlib.ExitStack() as handles:
        try:
            for pid in pids:
                handle = os.pidfd_open(pid)
                handles.callback(os.close, handle)
                ends.register(handle, select.POLLIN)
        except ProcessLookupError:
            return
        except OSError:  # Not supported by the kernel, or too many open descriptors.
            time.sleep(seconds)
            return
        ends.poll(seconds * 1000)


def identity() -> LauncherFile:
    """Return the identity of this process, unique across reboots."""
    pid = os.getpid()
    return LauncherFile(pid=pid, start_ticks=int(stat_fields(pid)[19]), boot_id=boot_id())


def name_process(name: str) -> None:
    """Set the name of this process in ``ps`` and ``top``, at most 15 characters."""
    Path("/proc/self/comm").write_text(name)


def show_environment(environ: Mapping[str, str]) -> None:
    """Set ``/proc/PID/environ`` of this process and of its forks to ``environ``, as after an exec.

    The kernel shows the memory of the process's first environment, which is unused once
    ``os.environ`` was replaced. Variables with the prefix ``LOCKSTEP_`` identify the owner of a
    process: they come first, followed by as many others as fit.
    """
    fields = stat_fields(os.getpid())
    start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    shown = b""
    for name, value in sorted(
        environ.items(), key=lambda item: not item[0].startswith("LOCKSTEP_")
    ):
        entry = os.fsencode(f"{name}={value}") + b"\0"
        if len(shown) + len(entry) <= end - start:
            shown += entry
    ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)


def state_of(pid: int) -> str:
    """Return the kernel's letter for a process's state; ``X`` without one."""
    try:
        return stat_fields(pid)[0]
    except OSError:
        return "X"


def living_descendants(root: int) -> list[int]:
    """Return the ids of living processes below ``root`` at this moment."""
    return [found.key.pid for found in ProcessSnapshot.take().descendants(root)]


def running_at(deadline: float) -> list[str]:
    """Wait until no descendant of this process is left; return the names of those at the deadline.

    ``deadline`` is a time of ``time.monotonic``.
    """
    while left := living_descendants(os.getpid()):
        if time.monotonic() >= deadline:
            return [name for pid in left if (name := _name_of(pid))]
        time.sleep(_WAIT_SECONDS)
    return []


def _name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return ""


def group_of(pid: int) -> int:
    """Return the process group of a process; 0 if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid)
    return 0


def kill_descendants() -> int:
    """Send SIGKILL once to every living descendant of this process; return their number."""
    pids = living_descendants(os.getpid())
    for pid in pids:
        # A process of another user cannot be killed by this one, and must not prevent the kill of
        # the others.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def sweep() -> None:
    """Kill and reap until no process of the attempt is left.

    A process that a killed parent forked last is found in the next round. There is no limit on
    purpose: the result reports that the devices are free, and a process that even SIGKILL cannot
    end (stuck in a driver) still holds one. It reaps *all* children, so exit statuses of ranks are
    unavailable afterwards.
    """
    started = time.monotonic()
    pause_seconds = 0.005
    warned = False
    while True:
        alive = kill_descendants()
        _reap()
        if not alive and not living_descendants(os.getpid()):
            return
        if not warned and time.monotonic() - started > 10.0:
            warned = True
            _log.warning(
                "%d processes of the attempt have not ended after SIGKILL; waiting for them", alive
            )
        time.sleep(pause_seconds)
        pause_seconds = min(1.0, pause_seconds * 1.5)


def out_of_memory_kills() -> int:
    """Return the number of out-of-memory kills in this control group; 0 if unknown.

    A group without memory accounting has no count; the nearest one above it then has. Without
    control groups of version 2 the kills of the whole machine count.
    """
    group = ""
    with contextlib.suppress(OSError):
        group = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2]
    counts = [
        f"/sys/fs/cgroup{folder}/memory.events"
        for folder in (Path(group), *Path(group).parents)
        if group
    ]
    for path in (*counts, "/proc/vmstat"):
        with contextlib.suppress(OSError):
            events = Path(path).read_text()
            return int(dict(line.split() for line in events.splitlines()).get("oom_kill", 0))
    return 0


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
