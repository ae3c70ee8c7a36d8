"""Tests that act as an agent, each in a process of its own.

An agent is a subreaper and kills orphans, and pytest's process has other children (database
servers).

Not here: whole agents (``node``).
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from lockstep.system.processes import become_subreaper
from lockstep.worker.launch.sweeping import Children
from tests.harness import forks
from tests.harness.processes import until

_ACT = "from tests.worker import subreaper; subreaper.act()"
_ACT_SECONDS = 600.0
Test = Callable[[Path, Children], None]


def as_agent(test: Test) -> Callable[[Path], None]:
    """Return the test, to run in a process that is a subreaper."""

    def isolated(tmp_path: Path) -> None:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _act(test, tmp_path)
                code = 0
            except BaseException:  # noqa: BLE001 - a fork must not return into pytest
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert status == 0, "see the traceback above"

    isolated.__name__ = test.__name__
    return isolated


def as_agent_that_forks(test: Test) -> Callable[[Path], None]:
    """Return the test, to run in a subreaper that has imported torch.

    Its warm process is a fork of it, which costs a tenth of one that imports torch again.
    """

    def isolated(tmp_path: Path) -> None:
        words = [sys.executable, "-c", _ACT, test.__module__, test.__name__, tmp_path]
        # No pipes: a warm process that remains after a failure would keep them open.
        done = forks.Forked(words, forks.UP, cwd=forks.ROOT, stdout=1, stderr=2)
        assert done.wait(_ACT_SECONDS) == 0, "see the traceback above"

    isolated.__name__ = test.__name__
    isolated.test = test  # type: ignore[attr-defined] # for ``act``
    return isolated


def act() -> None:
    """Run the test that the command line names."""
    module, name, folder = sys.argv[1:]
    forks.fork_below()
    _act(getattr(importlib.import_module(module), name).test, Path(folder))


def _act(test: Test, tmp_path: Path) -> None:
    become_subreaper()
    children = Children()
    test(tmp_path, children)
    children.release_all()
    until(lambda: children.sweep_orphans() == 0)
