"""The launcher of an attempt as a process, and every process below it.

Not here: its start (``worker.agent.starting``), and the search for processes
(``worker.launch.sweeping``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from lockstep.system import processes
from lockstep.system.processes import ProcessKey, ProcessSnapshot
from lockstep.worker.folders import Folder
from lockstep.worker.launch.identity import launcher_key, started_in
from lockstep.worker.launch.sweeping import Children, ProcessTree


class LauncherProcess:
    """See the module."""

    def __init__(self, folder: Folder, children: Children):
        self._folder, self._children = folder, children
        self._tree = ProcessTree(folder.path, None)
        self.rebooted = False
        """True if it ran before the node was started again."""

    def started(self, launcher: ProcessKey | None) -> None:
        self._tree.launcher = launcher

    def recognise(self) -> bool:
        """Find the launcher that an earlier agent started. Return whether it started one."""
        file = self._folder.launcher()
        self.rebooted = file is not None and file.boot_id != processes.boot_id()
        self._tree.launcher = launcher_key(file)
        if file is not None:
            return True
        # A launcher that just started may not have written its file. The oldest marked process is
        # the launcher.
        found = started_in(self._folder.path, ProcessSnapshot.take())
        self._tree.launcher = found[0].key if found else None
        return bool(found)

    def at_end(self, act: Callable[[], None]) -> None:
        """Call ``act`` once it has ended, where the kernel reports it."""
        if self._tree.launcher is not None:
            with contextlib.suppress(OSError):
                processes.at_end_of(self._tree.launcher, act)

    def is_alive(self) -> bool:
        launcher = self._tree.launcher
        return launcher is not None and self.status() is None and processes.is_alive(launcher)

    def status(self) -> int | None:
        """Return its exit code, if this agent started it and it has ended. Negative: a signal."""
        launcher = self._tree.launcher
        return None if launcher is None else self._children.exit_status(launcher.pid)

    def remember(self, process_snapshot: ProcessSnapshot) -> None:
        """Remember the processes below it, for its death."""
        self._tree.remember(process_snapshot)

    def kill(self) -> bool:
        """Kill it and all processes of the attempt. Return False if one is left."""
        return self._tree.kill()

    def forget(self) -> None:
        """Drop it, once it has ended."""
        if self._tree.launcher is not None:
            self._children.forget(self._tree.launcher.pid)
