"""``api``, ``scheduler`` and ``agent``: one program of the service, in place of this process.

Each reads its settings from ``LOCKSTEP_*`` variables. ``lockstep up`` starts all of them on one
machine.

Not here: the programs themselves (``lockstep.api``, ``lockstep.scheduler``, ``lockstep.worker``).
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from lockstep.client.local import required_packages


def api() -> None:
    """Serve the HTTP API and the pages."""
    _become("api", required_packages.SERVER)


def scheduler() -> None:
    """Run a scheduler; one of several works, the others take over when it ends."""
    _become("scheduler", required_packages.SERVER)


def agent() -> None:
    """Run this machine's node agent."""
    _become("worker", required_packages.NODE)


def _become(module: str, packages: tuple[str, ...]) -> NoReturn:
    """Replace this process, so that signals and the exit code are the program's."""
    required_packages.require(packages)
    # -P: a folder named lockstep in the working folder must not be imported.
    os.execv(sys.executable, [sys.executable, "-P", "-m", f"lockstep.{module}"])  # noqa: S606 - no shell is wanted
