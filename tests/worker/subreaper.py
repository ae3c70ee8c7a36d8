"""Tests that act as an agent, each in a process of its own.

An agent is a subreaper and kills orphans, and pytest's process has other children (database
servers).

Not here: whole agents (``node``).
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

from lockstep.system.processes import become_subreaper
from lockstep.worker.launch.sweeping import Children
from tests.harness.processes import until


def as_agent(test: Callable[[Path, Children], None]) -> Callable[[Path], None]:
    """Return the test, to run in a process that is a subreaper."""

    def isolated(tmp_path: Path) -> None:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                become_subreaper()
                children = Children()
                test(tmp_path, children)
                children.release_all()
                until(lambda: children.sweep_orphans() == 0)
                code = 0
            except BaseException:  # noqa: BLE001 - a fork must not return into pytest
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert status == 0, "see the traceback above"

    isolated.__name__ = test.__name__
    return isolated
