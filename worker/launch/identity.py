"""Processes of an attempt, by its launcher's file and by their environment.

Not here: processes in general (``system.processes``), killing them (``worker.launch.sweeping``).
"""

from __future__ import annotations

import os
from pathlib import Path

from lockstep.domain.life.attempt import MARK_VARIABLE, LauncherFile
from lockstep.system.processes import ProcessKey, ProcessSnapshot, ProcessStat, boot_id


def launcher_key(file: LauncherFile | None) -> ProcessKey | None:
    """Return the process that ``launcher.json`` names, if it was written during this boot."""
    if file is None or file.boot_id != boot_id():
        return None
    return ProcessKey(file.pid, file.start_ticks)


def started_in(folder: Path, snapshot: ProcessSnapshot) -> list[ProcessStat]:
    """Return living processes with an attempt's folder in their environment, oldest first.

    This is the last of several searches. Every match belongs to the attempt: the folder's name is
    the assignment's id. A user's program that reads the folder does not match.
    """
    name = os.fsencode(folder)
    marks = (MARK_VARIABLE.encode() + b"=" + name + b"\0", b"LOCKSTEP_METRICS=" + name + b"/")
    return snapshot.marked(marks)
