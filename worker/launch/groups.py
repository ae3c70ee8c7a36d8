"""A control group for each attempt (cgroup v2), where the kernel lets this agent make one.

No process leaves it by forking, by a session of its own or by losing its parents, and one write
kills all of them at once. It needs the right to make a folder below the agent's own group: root has
it, and so has a systemd unit with ``Delegate=yes``. Elsewhere, and against user code that runs as
root and moves itself away, the nets of ``worker.launch.sweeping`` do the same by looking.

The launcher enters by itself, before it starts anything
(``engine.launcher.start.processes.enter_group``).

Not here: limits of memory or processor time; nothing is limited by these groups.
"""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

_PREFIX = "lockstep-"


class ControlGroup:
    """The group of one attempt, whether or not it exists.

    Parameters
    ----------
    name : str
        The assignment's id.
    """

    def __init__(self, name: str):
        below = own_group()
        self.path = None if below is None else below / f"{_PREFIX}{name}"

    def create(self) -> Path | None:
        """Make it, if it may be made; its folder.

        It may exist already: preparing is repeated after a failure.
        """
        if self.path is None:
            return None
        try:
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            log.debug(
                "no control group for this attempt: its processes are found by a scan of all "
                "processes",
                error=str(error),
            )
            return None
        # Version 5.14 of the kernel brought the file. Without it the group would be a list of pids,
        # which sweeping has.
        return self.path if (self.path / "cgroup.kill").exists() else None

    def kill(self) -> None:
        """SIGKILL all processes in it and in groups below it, including concurrent forks."""
        if self.path is not None:
            with contextlib.suppress(OSError):  # It was never made, or is gone.
                (self.path / "cgroup.kill").write_text("1")

    def pids(self) -> list[int]:
        """Return the processes in it and in groups below it, including zombies."""
        if self.path is None:
            return []
        found: list[int] = []
        for folder in self._folders():
            with contextlib.suppress(OSError):
                found += map(int, (folder / "cgroup.procs").read_text().split())
        return found

    def remove(self) -> None:
        """Remove the control group. It must be empty."""
        for folder in reversed(self._folders()):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _folders(self) -> list[Path]:
        """Return the group and the groups below it, parents first; empty if it does not exist."""
        if self.path is None or not self.path.is_dir():
            return []
        return [self.path, *sorted(folder for folder in self.path.rglob("*") if folder.is_dir())]


@cache
def own_group() -> Path | None:
    """The folder of the group that this process is in, or None where version 2 is not mounted."""
    try:
        name = next(
            line[3:]
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::")
        )
        mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
        # "… <mount point at 4> … - <type> <source> <options>", after a variable number of fields
        # (proc(5)).
        root = next(fields[4] for fields in mounts if fields[fields.index("-") + 1] == "cgroup2")
    except (OSError, StopIteration, ValueError):
        return None
    folder = Path(root + name)
    return folder if folder.is_dir() else None
